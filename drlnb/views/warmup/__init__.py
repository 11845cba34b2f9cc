"""Show when collectors started and why (seed 000)."""
