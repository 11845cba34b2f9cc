"""Carry pictures, commands and messages between kernel and page."""
