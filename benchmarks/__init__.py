"""The claims as ratios against named baselines: each module with a ``main`` is one ``python -m benchmarks NAME``."""
