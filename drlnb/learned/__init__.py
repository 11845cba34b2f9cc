"""Planners with weights: they learned what they know before, and are asked like any other."""
