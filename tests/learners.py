"""A plan of batching that deals collectors' shares to several learners in turn: a lease has a slot for each of them."""

from drlnb.planning.batching import BatchPlan

__all__ = ["InTurn"]


class InTurn:
    """Every collector makes the algorithm's own steps; their gradients are computed by the learners in turn."""

    name = "in-turn"

    def __init__(self, n_learners=2):
        self.n_learners = n_learners

    def plan(self, view):
        n = len(view.collectors)
        return BatchPlan(n_steps=(view.n_steps,) * n, learners=tuple(k % self.n_learners for k in range(n)))
