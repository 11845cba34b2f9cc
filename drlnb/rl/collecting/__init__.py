"""Collect experience, evaluate policies and record episodes."""
