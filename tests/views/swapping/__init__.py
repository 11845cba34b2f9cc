"""Tests of the pictures of swapping."""
