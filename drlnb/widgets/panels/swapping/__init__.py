"""Show training steps under a byte budget: of a run, and tried out."""
