"""Decide how many executors share one device."""
