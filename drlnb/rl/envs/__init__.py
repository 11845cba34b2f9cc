"""Build environments, wrap them, and take their snapshots."""
