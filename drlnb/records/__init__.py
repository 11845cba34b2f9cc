"""The floor that SAYS: one vocabulary of events, decisions and commands, and the journal of them."""
