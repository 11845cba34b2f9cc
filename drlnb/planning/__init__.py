"""The floor that DECIDES: pure planners and machines, one room per system, and two files that route between them."""
