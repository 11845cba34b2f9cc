"""Compare hold planners on simulated workloads."""
