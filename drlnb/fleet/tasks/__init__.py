"""Describe what to train: tasks, environments, planners, live settings."""
