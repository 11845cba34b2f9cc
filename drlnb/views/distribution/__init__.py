"""Show how versions reach the hosts: computed, simulated and measured (seed 001)."""
