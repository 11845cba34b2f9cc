"""Planners of batching: one deals shares to several learners in turn, one learns from what rounds took."""

from drlnb.planning.batching import BatchPlan

__all__ = ["InTurn", "Learns"]


class InTurn:
    """Every collector makes the algorithm's own steps; their gradients are computed by the learners in turn."""

    name = "in-turn"

    def __init__(self, n_learners=2):
        self.n_learners = n_learners

    def plan(self, view):
        n = len(view.collectors)
        return BatchPlan(n_steps=(view.n_steps,) * n, learners=tuple(k % self.n_learners for k in range(n)))


class Learns:
    """Moves a step from the slowest collector to the fastest for each round that it has seen; at most three."""

    name = "learns"

    def __init__(self, fails=0):
        #: Round whose report it cannot learn from.
        self.fails = fails

    def plan(self, view):
        steps = dict.fromkeys(view.collectors, view.n_steps)
        if view.memory:
            moved = min(view.memory["n_rounds"], 3)
            steps[view.memory["fast"]] += moved
            steps[view.memory["slow"]] -= moved
        return BatchPlan(n_steps=tuple(steps.values()))

    def observe(self, memory, report):
        if report.round == self.fails:
            raise ValueError("no\nidea")
        by_pace = sorted(zip(report.compute_s, map(int, report.members), strict=True))
        return {"n_rounds": 1 + (memory or {"n_rounds": 0})["n_rounds"], "fast": by_pace[0][1], "slow": by_pace[-1][1]}
