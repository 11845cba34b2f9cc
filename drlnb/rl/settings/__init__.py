"""Declare the hyper-parameters of every algorithm and check them."""
