"""The floor that PRETENDS: the same machines as in a real run, on a virtual clock."""
