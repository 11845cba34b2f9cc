"""Carry out swap plans around training steps (the swapping patent)."""
