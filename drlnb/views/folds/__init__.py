"""Fold journal rows into columns."""
