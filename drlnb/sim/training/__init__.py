"""Simulate whole trainings on the virtual clock."""
