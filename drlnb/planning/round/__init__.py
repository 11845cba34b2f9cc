"""Decide what happens next in one task's round."""
