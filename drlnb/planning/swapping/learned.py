"""Learn plans by trials: the patent's table of costs, to the letter.

A learner is told the cost of the plan that has just run and answers with the next one, so it works the same on measured
steps and on predicted ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import numpy as np

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.registry import Planner
from drlnb.planning.swapping.planner import SwapView
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapPlan, read, written
from drlnb.planning.swapping.search import Choice, Search
from drlnb.records.base import Row

__all__ = [
    "OVERFLOW",
    "Course",
    "QTable",
    "TablePlanner",
    "cost",
    "learning",
    "practice",
    "predicted_cost",
    "relative_cost",
    "swapped_types",
]

#: Cost of a plan that did not fit: the patent's formula knows no budget.
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
    The swapping patent, paragraphs 35-37.

    Examples
    --------
    >>> cost(1.5, 0.5, 0.25)
    1.25
    """
    return time_frac + w * (memory_frac - time_frac)


def predicted_cost(search: Search, choice: Choice, w: float) -> float:
    """Return the cost of a choice by the cost model."""
    peak, seconds = search.walked(choice)
    return OVERFLOW if peak > search.room else relative_cost(search, seconds, peak, w)


def relative_cost(search: Search, seconds: float, peak_bytes: float, w: float) -> float:
    """Return the cost of a step, measured or predicted; its peak without what stays anyway."""
    plain_bytes, plain_s = search.plain
    return cost(seconds / plain_s, peak_bytes / plain_bytes, w)


@dataclass(slots=True, kw_only=True)
class QTable:
    """The patent's learner: a table of costs by plan and changed layer type, SARSA, one type per trial.

    A plan is a number whose bit i says that type i is swapped; changing a type toggles it, so the plan after the change
    and the type name the change.  A pair that was never tried costs 0, less than any other.  There is no way to stay.

    References
    ----------
    The swapping patent, paragraphs 38-44 and 58.
    """

    n_types: int
    alpha: float = field(default=0.5, metadata=TRANSIENT)
    gamma: float = field(default=0.9, metadata=TRANSIENT)
    epsilon: float = field(default=0.2, metadata=TRANSIENT)
    #: Plan that runs, and the type that was changed last; None before the first change.
    plan: int = 0
    changed: int | None = None
    #: Whether chance changed it, not the table.
    explored: bool = False
    n_trials: int = 0
    #: Plan -> costs of its trials in this course, and trials that are left of it.
    costs: dict[int, list[float]] = field(default_factory=dict)
    n_left: int = 0
    #: (plan after the change, changed type) -> cost.
    table: dict[tuple[int, int], float] = field(default_factory=dict)
    #: Profile and weight that the costs are of.
    of: tuple[str, float] = ("", 0.0)

    @property
    def best(self) -> tuple[float, int] | None:
        """Cost and plan of the best trials by their median, the earliest of equal ones; None before the first one."""
        tried = [(OVERFLOW in costs, median(costs), plan) for plan, costs in self.costs.items()]
        return min(tried, key=lambda each: each[:2])[1:] if tried else None

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
        self.costs.setdefault(self.plan, []).append(measured)
        values = [self.table.get((self.plan ^ 1 << each, each), 0.0) for each in range(self.n_types)]
        least = list(range(self.n_types))
        self.explored = bool(generator.random() < self.epsilon)
        if not self.explored:
            least = [each for each, value in enumerate(values) if value == min(values)]
        chosen = int(least[generator.integers(len(least))])
        if self.changed is not None:
            before = self.table.get((self.plan, self.changed), 0.0)
            target = measured + self.gamma * values[chosen]
            self.table[self.plan, self.changed] = before + self.alpha * (target - before)
        self.plan, self.changed = self.plan ^ 1 << chosen, chosen
        return self.plan


def swapped_types(search: Search, bits: int) -> Choice:
    """Return the choice that swaps all rows of the layer types whose bits are set."""
    chosen = {name for i, name in enumerate(search.profile.types) if bits >> i & 1}
    return search.choice([SWAP if row.layer_type in chosen else KEEP for row in search.profile.rows])


class Course:
    """The patent's table in a course of trials on one step; all that it knows can be written down."""

    def __init__(self, view: SwapView, table: QTable) -> None:
        self._search, self._seed, self.table = Search(view, (SWAP,)), view.seed, table

    @property
    def choice(self) -> Choice | None:
        """What the next trial runs; None: the course is over."""
        return swapped_types(self._search, self.table.plan) if self.table.n_left else None

    @property
    def best(self) -> Choice:
        """What has cost least so far."""
        return swapped_types(self._search, self.table.best[1] if self.table.best else 0)

    def learn(self, costs: list[float]) -> Row:
        """Learn from the costs of a trial's steps, at least one; return the fields of :class:`.SwapLearned`."""
        table, types, measured = self.table, self._search.profile.types, median(costs)
        bits, changed, explored = table.plan, table.changed, table.explored
        table.step(measured, np.random.default_rng((self._seed, table.n_trials)))
        table.n_left -= 1
        row = "".join(str(bits >> i & 1) for i in range(table.n_types))
        said = {"trial": table.n_trials, "cost": measured, "explored": explored, "row": row, "units": types}
        return said if changed is None else said | {"unit": types[changed], "value": table.table[bits, changed]}

    def saved(self) -> str:
        """Return what it knows."""
        return written(self.table)


class TablePlanner:
    """The patent's planner: the plan that has cost least in trials, each of which changes one layer type.

    Parameters
    ----------
    n_trials
        Number of trials.
    alpha, gamma, epsilon, w
        Step size, discount, share of random changes, weight of the memory.
    """

    name = "qtable"

    def __init__(self, n_trials: int, alpha: float, gamma: float, epsilon: float, w: float) -> None:
        if not 2 <= n_trials <= _MOST_TRIALS:
            raise ValueError(f"n_trials must be a whole number from 2 to {_MOST_TRIALS}, got {n_trials}")
        for name, share in {"alpha": alpha, "gamma": gamma, "epsilon": epsilon, "w": w}.items():
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} must be a number from 0 to 1, got {share}")
        self._n_trials, self.w = n_trials, w
        self._new = partial(QTable, alpha=alpha, gamma=gamma, epsilon=epsilon)

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the cheapest plan of a whole course of trials on the cost model."""
        if view.profile is None or view.memory_budget_bytes is None or not view.profile.rows:
            return SwapPlan.keeping(view.profile)
        search, course = Search(view), self.learner(view, "", self.start(view))
        list(practice(course, search, self.w))
        return search.plan(course.best)

    def start(self, view: SwapView) -> SwapPlan:
        """Return the plan that keeps all, but for pins."""
        search = Search(view, (SWAP,))
        return search.plan(search.every(KEEP))

    def learner(self, view: SwapView, saved: str, start: SwapPlan | None = None) -> Course:
        """Go on with what was saved; with a first plan: begin a new course of trials, of steps that may cost otherwise.

        What was learned of other rows, or by another weight of the memory, is forgotten.
        """
        assert view.profile is not None, "trials are of a profile"
        of, n_types = (view.profile.key, self.w), len(view.profile.types)
        table = read(QTable, saved, **self._new.keywords) if saved else self._new(n_types=0)
        if table.of != of:
            table = self._new(n_types=n_types, of=of)
        if start is not None:
            table.n_left, table.costs = self._n_trials, {}
        return Course(view, table)


def learning(planner: Planner[SwapView, SwapPlan]) -> TablePlanner | None:
    """Return a planner whose plans come of trials; None of any other."""
    return planner if isinstance(planner, TablePlanner) else None


def practice(course: Course, search: Search, w: float) -> Iterator[Row]:
    """Make trials on the cost model until the course is over; yield what each came to, as of :meth:`Course.learn`."""
    while (choice := course.choice) is not None:
        yield course.learn([predicted_cost(search, choice, w)])
