"""Send versions of parameters to hosts, forward them there, and keep them."""
