"""The terminal: ``drlnb train | resume | runs | replay | simulate | doctor``, one file per command."""
