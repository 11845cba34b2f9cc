"""Derive status, tables, summaries and exports from journal rows."""
