"""Learn: one file per algorithm, and the protocol that they share."""
