"""Measure what starting collectors ahead gives, in simulation and in real processes."""
