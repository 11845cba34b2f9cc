"""Simulate how versions reach hosts over a network."""
