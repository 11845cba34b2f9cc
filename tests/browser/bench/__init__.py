"""Measure panels and reports in a real JupyterLab."""
