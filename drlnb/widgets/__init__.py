"""CLICKS: panels for notebooks, one file per system; controls + one run + views, no logic."""
