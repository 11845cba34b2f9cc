"""Choose actions in collectors."""
