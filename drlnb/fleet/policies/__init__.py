"""Use and save trained policies."""
