"""Measure what sharing slots gives, in simulation and in real processes."""
