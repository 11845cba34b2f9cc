"""Play the episodes that networks of batching are trained on, and reward what was planned."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from drlnb.learned.batching.features import features
from drlnb.learned.batching.network import Array
from drlnb.learned.batching.patent import Received, after_step, seen, shares
from drlnb.learned.batching.planner import after_report, histories
from drlnb.planning.batching import BatchPlan, BatchReport, BatchView
from drlnb.sim.batching.play import Gang, Played, play_splits
from drlnb.sim.batching.traces import Contention

__all__ = ["OVER", "QUORUM", "REWARDS", "UNDER", "WEIGHTS", "Foreseen", "Gathered", "Reward", "foreseen", "objectives"]

#: Price of foreseeing too much, which makes everybody wait, and too little: per unit of the speed's logarithm.
OVER, UNDER = 3.0, 0.6
#: Whom splits of planner `patent` wait for.
QUORUM = 0.75
#: The price of their time, of samples that are not used, and of age.
WEIGHTS = (1.0, 1.0, 0.1)


def _priced(over: Array) -> Array:
    """Return the rewards of speeds that were foreseen too high, by their logarithms."""
    reward: Array = -(OVER * np.maximum(over, 0.0) + UNDER * np.maximum(-over, 0.0))
    return reward


class Foreseen:
    """An episode that rewards each member by how well its own speed was foreseen."""

    def __init__(self, trace: Contention) -> None:
        self.n_splits = trace.n_splits
        self._trace, self._split = trace, 0
        self._names = tuple(str(i) for i in range(len(trace.speeds)))
        self._memory: object = after_report(None, self._report(np.array(trace.speeds)))  # what a probe says

    def seen(self) -> Array:
        """Return the features of the splits so far."""
        return features(histories(self._memory, self._names))

    def split(self, performance: Array) -> Array:
        """Return each member's reward for the factor of its long-run speed that it was planned at."""
        self._memory = after_report(self._memory, self._report(self._trace.speeds_hz[self._split]))
        self._split += 1
        return _priced(np.log(performance) - histories(self._memory, self._names)[-1])

    def _report(self, speeds_hz: Array) -> BatchReport:
        """Return a report of shares that took a second each."""
        n = len(self._names)
        return BatchReport(
            round=self._split,
            members=self._names,
            sizes=(100,) * n,
            n_done=(100,) * n,
            compute_s=tuple((100 / speeds_hz).tolist()),
            elapsed_s=(None,) * n,
            duration_s=1.0,
        )


# ---------------------------------------------------------------------- splits that are made
#: Returns the rewards of the members that a split was planned for, from the split, the one of `jump-reset` on the same
#: contention, and by how much each one's speed was foreseen too high, as a logarithm.
Reward = Callable[[Played, Played, Gang, Array], Array]


def objectives(mine: Played, theirs: Played, gang: Gang, over: Array) -> Array:
    """Return the price of the split's time, unused samples and age, the same for all (mechanism 2-16)."""
    step = mine.step
    ages_s = [age_s for n, age_s in zip(step.used, step.free_s, strict=True) if n]
    age = math.fsum(ages_s) / len(ages_s) / gang.oldest_s(mine.predicted_s)
    prices = (math.log(step.duration_s / theirs.step.duration_s), 1.0 - step.n_used / gang.n_units, age)
    return np.full(len(over), -math.fsum(weight * price for weight, price in zip(WEIGHTS, prices, strict=True)))


def goodput(mine: Played, theirs: Played, gang: Gang, over: Array) -> Array:
    """Return how much more the split was worth per second than that of `jump-reset`, the same for all.

    A gradient of n samples brings training on by n / (noise scale + n) of what one without noise would (Pollux).
    """
    worth = [each.step.n_used / (gang.noise_scale + each.step.n_used) / each.step.duration_s for each in (mine, theirs)]
    return np.full(len(over), math.log(worth[0] / worth[1]))


def foreseen(mine: Played, theirs: Played, gang: Gang, over: Array) -> Array:
    """Return each member's own reward: how well its speed was foreseen."""
    return _priced(over)


#: Name -> reward.
REWARDS: Mapping[str, Reward] = {"objectives": objectives, "goodput": goodput, "per member": foreseen}


class _Told:
    """Planner `patent` with factors that it is told."""

    name = "patent"

    def __init__(self) -> None:
        self.memory: Received | None = None
        self.performance: Array = np.array([])

    def plan(self, view: BatchView) -> BatchPlan:
        return shares(view, [float(self.performance[int(each.id)]) for each in view.members])

    def observe(self, memory: object, report: BatchReport) -> Received:
        self.memory = after_step(memory, report)
        return self.memory


class Gathered:
    """An episode whose splits are made by planner `patent`, and by `jump-reset` beside it."""

    def __init__(self, trace: Contention, gang: Gang, reward: Reward) -> None:
        self.n_splits = trace.n_splits
        self._gang, self._reward = gang, reward
        self._planner = _Told()
        self._mine, self._theirs = play_splits(trace, self._planner, gang), play_splits(trace, "jump-reset", gang)
        self._names = tuple(str(i) for i in range(len(trace.speeds)))

    def seen(self) -> Array:
        """Return what the network sees after the splits so far."""
        return seen(self._planner.memory, self._names)

    def split(self, performance: Array) -> Array:
        """Return each member's reward; NaN of one that had no part in the split, since it was still busy."""
        self._planner.performance = performance
        mine, theirs = next(self._mine), next(self._theirs)
        there = [int(each.id) for each in mine.members]
        over = np.log(performance) - histories(self._planner.memory, self._names)[-1]
        rewards = np.full(len(self._names), np.nan)
        rewards[there] = self._reward(mine, theirs, self._gang, over[there])
        return rewards
