"""Show on which slots gangs are, and what another placement would change (the placement patent)."""
