"""Measure what real CUDA devices cost, carry and survive."""
