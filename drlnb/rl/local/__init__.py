"""Train in one process, without a cluster."""
