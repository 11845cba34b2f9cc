"""Read entries of rl-baselines3-zoo files."""
