"""Show how work is split among members of different speed: of a run, and tried out."""
