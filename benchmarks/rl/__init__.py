"""Measure training beside Stable-Baselines3, and what the shipped settings earn."""
