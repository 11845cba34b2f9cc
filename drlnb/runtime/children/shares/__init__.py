"""Make steps of supervised work out of shares of their samples that several slots compute."""
