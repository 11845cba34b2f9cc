"""Run trials of the seed's learner of plans, and tell what they came to."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from drlnb.planning.swapping.learned import QTable

__all__ = ["Learned", "learn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a number of trials came to."""

    #: Plan of the cheapest trial, and the one that would run next: the seed knows only that one.
    best: int
    chosen: int
    #: Of each trial.
    costs: tuple[float, ...]
    #: Trial, from 1, in which the best plan ran first.
    found_at: int


def learn(table: QTable, measure: Callable[[int], float], n_trials: int, generator: np.random.Generator) -> Learned:
    """Run trials of the seed's learner, at least one.

    Parameters
    ----------
    table
        What was learned so far; it learns on.
    measure
        Plan -> its cost.
    n_trials
        Number of trials.
    generator
        See :meth:`QTable.step`.
    """
    costs: list[float] = []
    plans: list[int] = []
    for _ in range(n_trials):
        plans.append(table.plan)
        costs.append(measure(table.plan))
        table.step(costs[-1], generator)
    at = int(np.argmin(costs))
    return Learned(best=plans[at], chosen=table.plan, costs=tuple(costs), found_at=at + 1)
