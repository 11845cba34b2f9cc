"""Play a recorded run again under other settings."""
