"""Place jobs, gangs of functions that are placed without a training around them."""
