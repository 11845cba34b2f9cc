"""SHOWS: journal rows become columns, and columns become pictures; pure, one file per system."""
