"""Find the panels and reports of headless objects."""
