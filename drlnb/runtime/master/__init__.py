"""Coordinate one task: host its round machine and carry out its commands."""
