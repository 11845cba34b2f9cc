"""Show which saved tensors leave the device (the swapping patent): computed, simulated, and measured step by step."""
