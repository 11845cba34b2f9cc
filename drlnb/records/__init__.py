"""Define the one vocabulary of events, decisions and commands, and the journal of them."""
