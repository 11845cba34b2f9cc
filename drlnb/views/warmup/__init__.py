"""Show when collectors started and why (the leasing patent)."""
