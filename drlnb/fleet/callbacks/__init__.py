"""Call user functions while a model learns."""
