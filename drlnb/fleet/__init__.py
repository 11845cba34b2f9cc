"""Train tasks on a fleet: what a user's script or notebook works with."""
