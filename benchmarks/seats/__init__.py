"""Measure leases with seats beside what a lab does without leases."""
