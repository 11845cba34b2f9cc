"""Show on which slots gangs are and why: of a run, and tried out."""
