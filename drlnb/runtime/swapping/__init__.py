"""Carry out swap plans around training steps (seed 004)."""
