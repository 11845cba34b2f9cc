"""Declare benches, measure their rows in turn, and report them: what every bench shares."""
