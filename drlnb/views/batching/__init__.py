"""Show how work is split among members of different speed (the batching patent): measured, and compared."""
