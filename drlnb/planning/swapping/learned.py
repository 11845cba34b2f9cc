"""Learn plans by trials: the seed's table of costs to the letter, and one that corrects the cost model.

A learner is told the cost of the plan that has just run and answers with the next one, so it works the same on measured
steps and on predicted ones.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.swapping.heuristics import fastest
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, Action, SwapPlan
from drlnb.planning.swapping.search import Choice, Search

__all__ = ["OVERFLOW", "Learned", "QFine", "QTable", "cost", "learn", "predicted_cost", "swapped_types"]

#: Cost of a plan that did not fit: the seed's formula knows no budget.
OVERFLOW = 5.0
#: Steps of the plan in force that its spread is taken from, and the spreads by which a trial must be better.
_STEPS, _SPREADS = 12, 2.0
#: Standard deviations of a normal distribution per median absolute deviation.
_MAD = 1.4826
#: Rows of a unit where the profile has no blocks.
_UNIT_ROWS = 8


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

    def step(self, measured: float, generator: np.random.Generator) -> int:
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
        least = range(self.n_types)
        if generator.random() >= self.epsilon:
            least = [each for each, value in enumerate(values) if value == min(values)]
        chosen = int(least[generator.integers(len(least))])
        if self.changed is not None:
            before = self.table.get((self.plan, self.changed), 0.0)
            target = measured + self.gamma * values[chosen]
            self.table[self.plan, self.changed] = before + self.alpha * (target - before)
        self.plan, self.changed = self.plan ^ 1 << chosen, chosen
        return self.plan

    def dumps(self) -> str:
        """Return what was learned as JSON."""
        return json.dumps(to_plain(self))

    @classmethod
    def loads(cls, text: str) -> "QTable":
        """Return what :meth:`dumps` has written."""
        return from_plain(cls, json.loads(text))


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
        shares = {"pretrain_fraction": pretrain_fraction, "alpha": alpha, "gamma": gamma, "epsilon": epsilon, "w": w}
        for name, value in shares.items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be a number from 0 to 1, got {value:g}")
        if n_trials < 2:
            raise ValueError(f"n_trials must be >= 2, got {n_trials}")
        self._n_trials, self._fraction, self._w = n_trials, pretrain_fraction, w
        self._rates = {"alpha": alpha, "gamma": gamma, "epsilon": epsilon}

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the plan of the cheapest trial."""
        if view.profile is None or view.budget_bytes is None:
            return SwapPlan.keeping(view.profile)
        search = Search(view, (SWAP,))
        table = QTable(n_types=len(view.profile.types), **self._rates)
        costs: dict[int, float] = {}

        def measure(bits: int) -> float:
            if bits not in costs:
                costs[bits] = predicted_cost(search, swapped_types(search, bits), self._w)
            return costs[bits]

        first = min(self._n_trials - 1, max(1, round(self._fraction * self._n_trials)))
        learn(table, measure, first, search.generator)
        table = QTable.loads(table.dumps())
        learn(table, measure, self._n_trials - first, search.generator)
        return search.plan(swapped_types(search, table.best[1] if table.best else 0))


# ------------------------------------------------------------------ beside the search
class QFine:
    """Begins with the search's plan and corrects the cost model by what trials measure.

    The value of a move is the predicted change of the cost plus what such moves cost beyond their predictions so far; a
    plan has no effect beyond its own steps, so nothing is discounted.  A trial that is not better than the plan in
    force by two spreads is rolled back.

    Parameters
    ----------
    search
        What is allowed.
    start
        The first plan in force.
    alpha, epsilon
        Step size, share of random moves.
    w
        Weight of the memory.
    """

    def __init__(
        self, search: Search, start: Choice, *, alpha: float = 0.5, epsilon: float = 0.1, w: float = 0.0
    ) -> None:
        self._search, self._alpha, self._epsilon, self._w = search, alpha, epsilon, w
        self.kept, self._steps = start, list[float]()
        #: (unit, action) -> what such moves cost beyond their predictions.
        self.errors: dict[tuple[int, Action], float] = {}
        self._units = list(_units(search))
        self._trial: tuple[tuple[int, Action], Choice] | None = None

    def _moved(self, unit: int, action: Action) -> Choice:
        wanted = list(self.kept.actions)
        for i in self._units[unit]:
            wanted[i] = action if action in self._search.options[i] else wanted[i]
        return self._search.choice(wanted, self.kept.blocks)

    def _value(self, move: tuple[int, Action], choice: Choice) -> float:
        return predicted_cost(self._search, choice, self._w) - self._predicted() + self.errors.get(move, 0.0)

    def _predicted(self) -> float:
        return predicted_cost(self._search, self.kept, self._w)

    def propose(self) -> Choice:
        """Return the choice of the next trial; the one in force if no move changes it."""
        moves = [(unit, action) for unit in range(len(self._units)) for action in (KEEP, SWAP, DERIVE)]
        trials = [(move, choice) for move in moves if (choice := self._moved(*move)) != self.kept]
        trials = [pair for pair in trials if self._search.score(pair[1])[0] <= self._search.score(self.kept)[0]]
        if not trials:
            self._trial = None
            return self.kept
        if self._search.generator.random() < self._epsilon:
            self._trial = trials[self._search.generator.integers(len(trials))]
        else:
            self._trial = min(trials, key=lambda pair: self._value(*pair))
        return self._trial[1]

    def observe(self, costs: Sequence[float]) -> bool:
        """Learn from the measured costs of the steps of a trial, or of the plan in force; return whether the trial stays.

        Raises
        ------
        ValueError
            If there are none.
        """
        if not costs:
            raise ValueError("a trial needs at least one step")
        if self._trial is None or not self._steps:
            self._steps = [*self._steps, *costs][-_STEPS:]
            return False
        (move, choice), self._trial = self._trial, None
        middle = float(np.median(self._steps))
        spread = _MAD * float(np.median(np.abs(np.array(self._steps) - middle)))
        change = float(np.median(costs)) - middle
        error = change - self._value(move, choice)
        self.errors[move] = self.errors.get(move, 0.0) + self._alpha * error
        if change >= -_SPREADS * spread / len(costs) ** 0.5:
            return False
        self.kept, self._steps = choice, list(costs)[-_STEPS:]
        return True


def _units(search: Search) -> Iterator[list[int]]:
    """Yield the rows of each innermost block, and runs of those that lie in none."""
    blocks = search.profile.blocks
    inner = [a for a in blocks if not any(set(b.rows) < set(a.rows) for b in blocks)]
    yield from ([search.profile.number[key] for key in block.rows] for block in inner)
    covered = {key for block in inner for key in block.rows}
    others = [i for i, row in enumerate(search.profile.rows) if row.key not in covered]
    yield from (others[i : i + _UNIT_ROWS] for i in range(0, len(others), _UNIT_ROWS))


class FinePlanner:
    """The search's plan, tried on by :class:`QFine` on the cost model itself.

    Parameters
    ----------
    n_trials
        Number of trials.
    """

    name = "qfine"

    def __init__(self, n_trials: int) -> None:
        if n_trials < 1:
            raise ValueError(f"n_trials must be >= 1, got {n_trials}")
        self._n_trials = n_trials

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the plan in force after the trials; it is never slower than the search's by the cost model."""
        if view.profile is None or view.budget_bytes is None:
            return SwapPlan.keeping(view.profile)
        search = Search(view)
        fine = QFine(search, fastest(search)[0])
        fine.observe([predicted_cost(search, fine.kept, 0.0)])
        for _ in range(self._n_trials):
            fine.observe([predicted_cost(search, fine.propose(), 0.0)])
        return search.plan(fine.kept)


SWAPPING.register(
    "qtable",
    TablePlanner,
    {"n_trials": 300, "pretrain_fraction": 0.8, "alpha": 0.5, "gamma": 0.9, "epsilon": 0.2, "w": 0.5},
)
SWAPPING.register("qfine", FinePlanner, {"n_trials": 20})
