"""Find how many executors share one device while tasks train."""
