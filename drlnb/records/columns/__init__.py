"""Declare the records of the six systems, one file each."""
