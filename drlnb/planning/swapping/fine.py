"""Correct the cost model by what trials measure, beginning with the search's plan."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import numpy as np

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.swapping.heuristics import fastest
from drlnb.planning.swapping.learned import Learner, check, practised, predicted_cost
from drlnb.planning.swapping.planner import SwapView
from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, Action, SwapPlan, read, written
from drlnb.planning.swapping.search import Choice, Search
from drlnb.records.base import Row

__all__ = ["FinePlanner", "Move", "QFine"]

#: (number of the unit, what is done with its rows).
Move = tuple[int, Action]
#: Steps of the plan in force that its spread is taken from, and the spreads by which a trial must be better.
_STEPS, _SPREADS = 12, 2.0
#: Standard deviations of a normal distribution per median absolute deviation.
_MAD = 1.4826
#: Most rows of a unit.
_UNIT_ROWS = 8


@dataclass(slots=True)
class QFine:
    """Changes one unit of the plan in force per trial, by a table that begins with the cost model's predictions.

    The value of a move is the predicted change of the cost, plus what such moves have cost beyond their predictions. A
    plan has no effect beyond its own steps, so nothing is discounted. A trial that is not better than the plan in force
    by two spreads is rolled back; one that has become the plan in force, too, if more of its steps say that it is not
    better than the one before.
    """

    #: What is allowed.
    search: Search = field(metadata=TRANSIENT)
    #: The plan in force: at first the one that the trials begin with.
    kept: Choice
    #: Step size, share of random moves, weight of the memory.
    alpha: float = field(default=0.5, kw_only=True, metadata=TRANSIENT)
    epsilon: float = field(default=0.1, kw_only=True, metadata=TRANSIENT)
    w: float = field(default=0.0, kw_only=True, metadata=TRANSIENT)
    #: Costs of the newest steps of the plan in force; the one before, with the costs of its steps.
    steps: list[float] = field(default_factory=list, kw_only=True)
    before: tuple[Choice, list[float]] | None = field(default=None, kw_only=True)
    #: Cost of such moves beyond their predictions.
    errors: dict[Move, float] = field(default_factory=dict, kw_only=True)
    #: The move that is tried, and what comes of it; None: the plan in force is measured.
    trial: tuple[Move, Choice] | None = field(default=None, kw_only=True)
    #: Whether chance chose it, not the table.
    explored: bool = field(default=False, kw_only=True)
    n_trials: int = field(default=0, kw_only=True)
    n_left: int = field(default=0, kw_only=True)
    #: Profile and weight that the costs are of.
    of: tuple[str, float] = field(default=("", 0.0), kw_only=True)

    def predicted(self, choice: Choice) -> float:
        """Return the cost of a choice by the cost model."""
        return predicted_cost(self.search, choice, self.w)

    def _moved(self, move: Move, rows: list[int]) -> Choice:
        wanted = list(self.kept.actions)
        for i in rows:
            wanted[i] = move[1] if move[1] in self.search.options[i] else wanted[i]
        return self.search.choice(wanted, self.kept.blocks)

    def _value(self, move: Move, choice: Choice) -> float:
        before, after = (self.predicted(each) for each in (self.kept, choice))
        return after - before + self.errors.get(move, 0.0)

    def propose(self) -> Choice:
        """Return the choice of the next trial; the one in force if no move is allowed."""
        units, generator = list(_units(self.search)), np.random.default_rng((self.search.view.seed, self.n_trials))
        moves: list[Move] = list(itertools.product(range(len(units)), (KEEP, SWAP, DERIVE)))
        over = self.search.score(self.kept)[0]
        trials = [(move, choice) for move in moves if (choice := self._moved(move, units[move[0]])) != self.kept]
        trials = [(move, choice) for move, choice in trials if self.search.score(choice)[0] <= over]
        self.trial, self.explored = None, bool(trials) and bool(generator.random() < self.epsilon)
        if self.explored:
            self.trial = trials[generator.integers(len(trials))]
        elif trials:
            self.trial = min(trials, key=lambda pair: self._value(*pair))
        return self.trial[1] if self.trial else self.kept

    def observe(self, costs: Sequence[float]) -> bool:
        """Learn from the costs of steps, of a trial or of the plan in force; return whether the trial replaces that.

        Costs are as of :func:`.cost`, beside a step that keeps everything; there is at least one.
        """
        if self.trial is None or not self.steps:
            self.steps = [*self.steps, *costs][-_STEPS:]
            if self.before and len(self.steps) == _STEPS:
                was = self.before
                self.kept, self.steps = was if median(was[1]) < median(self.steps) else (self.kept, self.steps)
                self.before = None
            return False
        (move, choice), self.trial = self.trial, None
        self.n_trials += 1
        middle = median(self.steps)
        spread = _MAD * median([abs(each - middle) for each in self.steps])
        change = median(costs) - middle
        self.errors[move] = self.errors.get(move, 0.0) + self.alpha * (change - self._value(move, choice))
        if change >= -_SPREADS * spread / len(costs) ** 0.5:
            return False
        self.before = (self.kept, self.steps)
        self.kept, self.steps = choice, list(costs)[-_STEPS:]
        return True

    # -- a course of trials ------------------------------------------------------------------------------------------
    @property
    def choice(self) -> Choice | None:
        """What runs next: the plan in force until its spread is known, then a trial; None: the course is over."""
        if len(self.steps) < _STEPS:
            return self.kept
        if self.n_left and self.trial is None:
            self.propose()
        return self.trial[1] if self.trial else None

    @property
    def best(self) -> Choice:
        """The plan in force."""
        return self.kept

    def learn(self, costs: list[float]) -> Row:
        """Observe, and return the fields of :class:`.SwapLearned`."""
        trial, names = self.trial, tuple([self.search.profile.rows[rows[0]].name for rows in _units(self.search)])
        ran = trial[1] if trial else self.kept
        self.observe(costs)
        said = {"trial": self.n_trials, "cost": median(costs), "units": names, "rolled_back": ran != self.kept}
        if trial is None:
            return said
        self.n_left -= 1
        unit, action = trial[0]
        value = self.errors[unit, action]
        return said | {"explored": self.explored, "row": action, "unit": names[unit], "value": value}

    def saved(self) -> str:
        """Return what it knows."""
        return written(self)


def _units(search: Search) -> Iterator[list[int]]:
    """Yield the rows of each innermost block, and runs of those that lie in none."""
    inner = [[search.profile.number[key] for key in search.blocks[path]] for path in search.innermost()]
    yield from map(sorted, inner)
    covered = {i for rows in inner for i in rows}
    others = [i for i in range(len(search.options)) if i not in covered]
    yield from (others[i : i + _UNIT_ROWS] for i in range(0, len(others), _UNIT_ROWS))


class FinePlanner:
    """The search's plan, corrected by trials.

    Parameters
    ----------
    n_trials
        Number of trials.
    alpha, epsilon, w
        As of :class:`QFine`.
    """

    name, learns = "qfine", True

    def __init__(self, n_trials: int, alpha: float, epsilon: float, w: float) -> None:
        check(n_trials, 1, alpha=alpha, epsilon=epsilon, w=w)
        self._n_trials, self.w = n_trials, w
        self._new = partial(QFine, alpha=alpha, epsilon=epsilon, w=w)

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the plan in force after trials on the cost model, by which it never costs more than the search's."""
        return practised(self, view)

    def start(self, view: SwapView) -> SwapPlan:
        """Return the search's plan."""
        search = Search(view)
        return search.plan(fastest(search)[0])

    def learner(self, view: SwapView, saved: str, start: SwapPlan | None = None) -> Learner:
        """Return what was saved, or what begins with a plan."""
        assert view.profile is not None, "trials are of a profile"
        search, of = Search(view), (view.profile.key, self.w)
        before = read(QFine, saved, search=search, **self._new.keywords) if saved else None
        if start is None:
            assert before is not None, "trials go on where they were"
            return before
        fine = self._new(search, Choice(start.actions, frozenset(start.blocks)), n_left=self._n_trials, of=of)
        if before is not None and before.of == of:
            fine.errors, fine.n_trials = before.errors, before.n_trials
        return fine
