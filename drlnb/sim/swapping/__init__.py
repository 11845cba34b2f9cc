"""Simulate training steps under swap plans."""
