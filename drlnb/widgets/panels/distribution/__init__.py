"""Show how versions reach hosts: of a run, and tried out."""
