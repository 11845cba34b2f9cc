"""Compare warm-up planners on simulated rounds."""
