"""Show leases, queues and what sharing saved (seed 000)."""
