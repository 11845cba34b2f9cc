"""Connect a fleet to its cluster and lease slots to user loops."""
