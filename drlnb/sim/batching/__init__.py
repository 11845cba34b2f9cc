"""Compare planners of batching on simulated members."""
