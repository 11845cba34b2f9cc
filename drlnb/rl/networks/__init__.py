"""Build the networks of policies and value functions."""
