"""Places that saved tensors go to, and come back from."""
