"""Publish versions over shaped links: a network of namespaces on one machine, and what each plan makes of it."""
