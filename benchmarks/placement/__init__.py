"""Place the jobs of a trace on slots that fail, by each planner, and hold the simulator to what is known exactly."""
