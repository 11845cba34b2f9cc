"""Preview a change of settings before it is made."""
