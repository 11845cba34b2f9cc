"""Build the panels: controls, one run and views."""
