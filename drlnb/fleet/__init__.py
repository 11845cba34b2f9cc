"""THE DOOR: fleets, tasks and trainings, as a person's script or notebook sees them."""
