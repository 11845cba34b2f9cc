"""Show how versions reach the hosts: computed, simulated and measured (the distribution patent)."""
