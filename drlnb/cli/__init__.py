"""The terminal: ``drlnb train | resume | runs | replay | simulate | bench | doctor``, one file per command."""
