"""Compute metrics and send them to sinks."""
