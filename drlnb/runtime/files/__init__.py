"""Lay out run directories and checkpoints."""
