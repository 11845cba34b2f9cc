"""Show leases, queues and what sharing saved (the leasing patent)."""
