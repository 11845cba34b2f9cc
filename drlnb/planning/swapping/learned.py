"""Learn plans by trials: the seed's table of costs, to the letter.

A learner is told the cost of the plan that has just run and answers with the next one, so it works the same on measured
steps and on predicted ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapPlan, read, written
from drlnb.planning.swapping.search import Choice, Search

__all__ = [
    "OVERFLOW", "Learned", "QTable", "check", "cost", "learn", "predicted_cost", "pretraining",
    "swapped_types",
]  # fmt: skip

#: Cost of a plan that did not fit: the seed's formula knows no budget.
OVERFLOW = 5.0
#: Most trials: beyond, a slip of the finger is likelier than a wish.
_MOST_TRIALS = 100_000


def cost(time_frac: float, memory_frac: float, w: float) -> float:
    """Return (1 - w) r_time + w r_mem, which is to be made small.

    Parameters
    ----------
    time_frac, memory_frac
        Seconds and peak bytes of a step, relative to those of a step without a plan.
    w
        Weight of the memory, from 0 to 1.

    References
    ----------
    Seed 004, paragraphs 35-37.

    Examples
    --------
    >>> cost(1.5, 0.5, 0.25)
    1.25
    """
    return time_frac + w * (memory_frac - time_frac)


@dataclass(slots=True, kw_only=True)
class QTable:
    """The seed's learner: a table of costs by plan and changed layer type, SARSA, one type per trial.

    A plan is a number whose bit i says that type i is swapped; changing a type toggles it, so the plan after the change
    and the type name the change.  A pair that was never tried costs 0, less than any other.  There is no way to stay.

    References
    ----------
    Seed 004, paragraphs 38-44 and 58.
    """

    n_types: int
    alpha: float = 0.5
    gamma: float = 0.9
    epsilon: float = 0.2
    #: Plan that runs, and the type that was changed last; None before the first change.
    plan: int = 0
    changed: int | None = None
    n_trials: int = 0
    #: Cost and plan of the best trial; None before the first one.
    best: tuple[float, int] | None = None
    #: (plan after the change, changed type) -> cost.
    table: dict[tuple[int, int], float] = field(default_factory=dict)

    def step(self, measured: float, generator: "np.random.Generator") -> int:
        """Return the plan of the next trial.

        Parameters
        ----------
        measured
            Cost of the trial that has just run.
        generator
            Decides when to explore, and between equal costs.
        """
        self.n_trials += 1
        if self.best is None or measured < self.best[0]:
            self.best = measured, self.plan
        values = [self.table.get((self.plan ^ 1 << each, each), 0.0) for each in range(self.n_types)]
        least = list(range(self.n_types))
        if generator.random() >= self.epsilon:
            least = [each for each, value in enumerate(values) if value == min(values)]
        chosen = int(least[generator.integers(len(least))])
        if self.changed is not None:
            before = self.table.get((self.plan, self.changed), 0.0)
            target = measured + self.gamma * values[chosen]
            self.table[self.plan, self.changed] = before + self.alpha * (target - before)
        self.plan, self.changed = self.plan ^ 1 << chosen, chosen
        return self.plan


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


def check(n_trials: int, fewest: int, **shares: float) -> None:
    """Raise ValueError, which names the parameter, if trials are too few or too many, or a share is none."""
    if not fewest <= n_trials <= _MOST_TRIALS:
        raise ValueError(f"n_trials must be a whole number from {fewest} to {_MOST_TRIALS}, got {n_trials}")
    for name, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} must be a number from 0 to 1, got {share}")


def learn(table: QTable, measure: Callable[[int], float], n_trials: int, generator: "np.random.Generator") -> Learned:
    """Run trials of the seed's learner, at least one.

    Parameters
    ----------
    table
        What was learned so far: that of a part of the data, say (paragraphs 20 and 45); it learns on.
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


def pretraining(n_trials: int, fraction: float) -> int:
    """Return how many of the trials are made on a part of the data: at least one, and not all of them."""
    return min(n_trials - 1, max(1, round(fraction * n_trials)))


def predicted_cost(search: Search, choice: Choice, w: float) -> float:
    """Return the cost of a choice by the cost model, relative to keeping all, or to the budget if that is less."""
    n, kept = search.numbers, search.every(KEEP)
    walk = n.walk(choice.actions, choice.blocks, search.room)
    plain = n.walk(kept.actions, (), float("inf"))
    if walk.peak > search.room:
        return OVERFLOW
    return cost(walk.t / plain.t, walk.peak / min(plain.peak, search.room), w)


def swapped_types(search: Search, bits: int) -> Choice:
    """Return the choice that swaps all rows of the layer types whose bits are set."""
    chosen = {name for i, name in enumerate(search.profile.types) if bits >> i & 1}
    return search.choice([SWAP if row.layer_type in chosen else KEEP for row in search.profile.rows])


class TablePlanner:
    """The seed's planner on the cost model: trials on a part of the data first, then the others, from what was saved.

    Parameters
    ----------
    n_trials
        Number of trials.
    pretrain_fraction
        Share of them that is made on a part of the data.
    alpha, gamma, epsilon, w
        Step size, discount, share of random changes, weight of the memory.
    """

    name = "qtable"

    def __init__(
        self, n_trials: int, pretrain_fraction: float, alpha: float, gamma: float, epsilon: float, w: float
    ) -> None:
        check(n_trials, 2, pretrain_fraction=pretrain_fraction, alpha=alpha, gamma=gamma, epsilon=epsilon, w=w)
        self._n_trials, self._fraction, self._w = n_trials, pretrain_fraction, w
        self._new = partial(QTable, alpha=alpha, gamma=gamma, epsilon=epsilon)

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the plan of the cheapest trial."""
        if view.profile is None or view.budget_bytes is None:
            return SwapPlan.keeping(view.profile)
        search = Search(view, (SWAP,))
        table = self._new(n_types=len(view.profile.types))
        costs: dict[int, float] = {}

        def measure(bits: int) -> float:
            if bits not in costs:
                costs[bits] = predicted_cost(search, swapped_types(search, bits), self._w)
            return costs[bits]

        first = pretraining(self._n_trials, self._fraction)
        learn(table, measure, first, search.generator)
        table = read(QTable, written(table))
        learn(table, measure, self._n_trials - first, search.generator)
        return search.plan(swapped_types(search, table.best[1] if table.best else 0))


SWAPPING.register(
    "qtable",
    TablePlanner,
    {"n_trials": 300, "pretrain_fraction": 0.8, "alpha": 0.5, "gamma": 0.9, "epsilon": 0.2, "w": 0.5},
)
