"""Play the machines of a real run on a virtual clock."""
