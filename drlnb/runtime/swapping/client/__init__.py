"""Swap in a loop of the user's own, without a training: the swapper, what chooses for it, and predictions."""
