"""Show which saved tensors leave the device: computed for a plan, simulated, and measured step by step (seed 004)."""
