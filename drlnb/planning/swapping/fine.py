"""Correct the cost model by what trials measure, beginning with the search's plan."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from drlnb.planning.swapping.heuristics import fastest
from drlnb.planning.swapping.learned import check, predicted_cost
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, Action, SwapPlan
from drlnb.planning.swapping.search import Choice, Search

__all__ = ["FinePlanner", "Move", "QFine"]

#: (number of the unit, what is done with its rows).
Move = tuple[int, Action]
#: Steps of the plan in force that its spread is taken from, and the spreads by which a trial must be better.
_STEPS, _SPREADS = 12, 2.0
#: Standard deviations of a normal distribution per median absolute deviation.
_MAD = 1.4826
#: Most rows of a unit.
_UNIT_ROWS = 8


class QFine:
    """Changes one unit of the plan in force per trial, by a table that begins with the cost model's predictions.

    The value of a move is the predicted change of the cost, plus what such moves have cost beyond their predictions. A
    plan has no effect beyond its own steps, so nothing is discounted. A trial that is not better than the plan in force
    by two spreads is rolled back.

    Parameters
    ----------
    search
        What is allowed.
    start
        The first plan in force.
    alpha, epsilon, w
        Step size, share of random moves, weight of the memory.
    """

    def __init__(
        self, search: Search, start: Choice, *, alpha: float = 0.5, epsilon: float = 0.1, w: float = 0.0
    ) -> None:
        self._search, self._alpha, self._epsilon, self._w = search, alpha, epsilon, w
        self.kept, self._steps = start, list[float]()
        #: Cost of such moves beyond their predictions.
        self.errors: dict[Move, float] = {}
        self._units = list(_units(search))
        self._trial: tuple[Move, Choice] | None = None

    def predicted(self, choice: Choice) -> float:
        """Return the cost of a choice by the cost model."""
        return predicted_cost(self._search, choice, self._w)

    def _moved(self, move: Move) -> Choice:
        unit, action = move
        wanted = list(self.kept.actions)
        for i in self._units[unit]:
            wanted[i] = action if action in self._search.options[i] else wanted[i]
        return self._search.choice(wanted, self.kept.blocks)

    def _value(self, move: Move, choice: Choice) -> float:
        before, after = (self.predicted(each) for each in (self.kept, choice))
        return after - before + self.errors.get(move, 0.0)

    def propose(self) -> Choice:
        """Return the choice of the next trial; the one in force if no move is allowed."""
        moves: list[Move] = list(itertools.product(range(len(self._units)), (KEEP, SWAP, DERIVE)))
        over = self._search.score(self.kept)[0]
        trials = [(move, choice) for move in moves if (choice := self._moved(move)) != self.kept]
        trials = [(move, choice) for move, choice in trials if self._search.score(choice)[0] <= over]
        self._trial = None
        if trials and self._search.generator.random() < self._epsilon:
            self._trial = trials[self._search.generator.integers(len(trials))]
        elif trials:
            self._trial = min(trials, key=lambda pair: self._value(*pair))
        return self._trial[1] if self._trial else self.kept

    def observe(self, costs: Sequence[float]) -> bool:
        """Learn from the costs of steps, of a trial or of the plan in force; return whether the trial replaces that.

        Costs are as of :func:`.cost`, beside a step that keeps everything; there is at least one.
        """
        if self._trial is None or not self._steps:
            self._steps = [*self._steps, *costs][-_STEPS:]
            return False
        (move, choice), self._trial = self._trial, None
        middle = float(np.median(self._steps))
        spread = _MAD * float(np.median(np.abs(np.array(self._steps) - middle)))
        change = float(np.median(costs)) - middle
        self.errors[move] = self.errors.get(move, 0.0) + self._alpha * (change - self._value(move, choice))
        if change >= -_SPREADS * spread / len(costs) ** 0.5:
            return False
        self.kept, self._steps = choice, list(costs)[-_STEPS:]
        return True


def _units(search: Search) -> Iterator[list[int]]:
    """Yield the rows of each innermost block, and runs of those that lie in none."""
    inner = [[search.profile.number[key] for key in search.blocks[path]] for path in search.innermost()]
    yield from map(sorted, inner)
    covered = {i for rows in inner for i in rows}
    others = [i for i in range(len(search.options)) if i not in covered]
    yield from (others[i : i + _UNIT_ROWS] for i in range(0, len(others), _UNIT_ROWS))


class FinePlanner:
    """The search's plan, and trials on the cost model itself.

    Parameters
    ----------
    n_trials
        Number of trials.
    alpha, epsilon, w
        As of :class:`QFine`.
    """

    name = "qfine"

    def __init__(self, n_trials: int, alpha: float, epsilon: float, w: float) -> None:
        check(n_trials, 1, alpha=alpha, epsilon=epsilon, w=w)
        self._n_trials, self._new = n_trials, partial(QFine, alpha=alpha, epsilon=epsilon, w=w)

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the plan in force after the trials; by the cost model it never costs more than the search's."""
        if view.profile is None or view.budget_bytes is None:
            return SwapPlan.keeping(view.profile)
        search = Search(view)
        fine = self._new(search, fastest(search)[0])
        fine.observe([fine.predicted(fine.kept)])
        for _ in range(self._n_trials):
            fine.observe([fine.predicted(fine.propose())])
        return search.plan(fine.kept)


SWAPPING.register("qfine", FinePlanner, {"n_trials": 20, "alpha": 0.5, "epsilon": 0.1, "w": 0.0})
