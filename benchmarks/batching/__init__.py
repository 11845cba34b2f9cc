"""Batching: what the planners of shares give, on simulated members."""
