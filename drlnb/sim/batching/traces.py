"""Draw the speeds of members that share their machines with others: four families of contention.

A trace is indexed by split, not by time, so every planner meets the same contention however long its splits take.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from drlnb.records.settings import (
    ANYTHING,
    Declared,
    Kind,
    between,
    choice,
    count,
    fitting,
    is_number,
    is_whole,
    setting,
)

__all__ = ["FAMILIES", "MIXED", "Contention", "Slowed"]

_Array = npt.NDArray[np.float64]
_Draw = Callable[["Contention", np.random.Generator], npt.NDArray[np.bool_]]

#: Speeds of eight unequal members in samples per second.
MIXED = (200.0, 200.0, 200.0, 160.0, 120.0, 100.0, 70.0, 50.0)
#: Share of splits in which a member of a memoryless trace is slow.
_DUTY_FRAC = 0.12
#: Splits that a member is slow for, where that is no chance.
_BURST_SPLITS = 2
#: Chance that a correlated trace's pause ends with a split.
_PAUSE_ENDS = 0.08
#: Most members: a gang has no more learners.
_MOST_MEMBERS = 64
_MOST_SPLITS = 100_000


def _several(words: str, fits: Callable[[object], bool]) -> Kind:
    """Return the kind of tuples whose entries all fit, at least one and at most one per member."""

    def all_fit(value: object) -> bool:
        return isinstance(value, tuple) and 1 <= len(value) <= _MOST_MEMBERS and all(map(fits, value))

    return fitting(f"1 to {_MOST_MEMBERS} {words}", all_fit)


def _static(trace: "Contention", rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Nobody is ever slow."""
    return np.zeros(trace.shape, dtype=bool)


def _memoryless(trace: "Contention", rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Each member becomes slow, and fast again, by a chance that is the same in every split."""
    ends = 1.0 / trace.dwell
    begins = _DUTY_FRAC / (1.0 - _DUTY_FRAC) * ends
    chance = rng.random(trace.shape)
    slow = np.empty(trace.shape, dtype=bool)
    now = rng.random(trace.shape[1]) < _DUTY_FRAC
    for split, drawn in enumerate(chance):
        slow[split] = now
        now = np.where(now, drawn >= ends, drawn < begins)
    return slow


def _periodic(trace: "Contention", rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Each member is slow once per period; its period is one of the trace's, its phase is drawn."""
    n_splits, n = trace.shape
    periods = rng.choice(np.array(trace.periods), size=n)
    phases = (rng.random(n) * periods).astype(int)
    slow: npt.NDArray[np.bool_] = (np.arange(n_splits)[:, None] + phases) % periods < _BURST_SPLITS
    return slow


def _correlated(trace: "Contention", rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """After a pause of chance one burst visits all members, in an order that is drawn once."""
    n_splits, n = trace.shape
    order = rng.permutation(n)
    slow = np.zeros(trace.shape, dtype=bool)
    split = int(rng.geometric(_PAUSE_ENDS))
    while split < n_splits:
        for member in order:
            slow[split : split + _BURST_SPLITS, member] = True
            split += _BURST_SPLITS
        split += int(rng.geometric(_PAUSE_ENDS))
    return slow


#: Family of contention -> what draws in which splits each member is slow, shape ``(n_splits, n_members)``.
_FAMILIES: Mapping[str, _Draw] = {
    "static": _static,
    "memoryless": _memoryless,
    "periodic": _periodic,
    "correlated": _correlated,
}
#: Families of contention: ``static``: none; ``memoryless``: bursts of chance; ``periodic``: each member at its own
#: period; ``correlated``: a burst that visits one member after the other.
FAMILIES = tuple(_FAMILIES)


class Slowed(NamedTuple):
    """A member that is so many times slower in some splits, beside all else."""

    #: Its number, from 0.
    member: int
    times: float
    #: Number of the first of these splits, from 0, and how many they are.
    first: int
    n_splits: int


@dataclass(frozen=True, kw_only=True)  # no slots: what is drawn is kept
class Contention(Declared):
    """How fast each member is in each split: its own speed, times its contention, times noise."""

    #: One of :data:`FAMILIES`.
    family: str = setting("static", choice(*FAMILIES))
    #: Samples per second of each member that nothing slows.
    speeds: tuple[float, ...] = setting(
        MIXED, _several("speeds > 0 in samples per second", lambda s: is_number(s) and s > 0)
    )
    #: Splits of the trace.
    n_splits: int = setting(2000, count(10, _MOST_SPLITS))
    #: Mean splits of a memoryless burst.
    dwell: float = setting(20.0, between(1, _MOST_SPLITS))
    #: Splits of a period; each member has one of them.
    periods: tuple[int, ...] = setting(
        (10, 13), _several(f"whole numbers > {_BURST_SPLITS}", lambda p: is_whole(p, _BURST_SPLITS + 1, _MOST_SPLITS))
    )
    #: What is left of a member's speed while it is slow.
    slow_frac: float = setting(0.3, between(0.01, 1))
    #: Spread of the noise: standard deviation of the logarithm of a speed.
    noise: float = setting(0.05, between(0, 1))
    seed: int = setting(0, count(0, 2**31))
    #: Slowed down on purpose.
    planted: tuple[Slowed, ...] = setting((), ANYTHING)

    @property
    def shape(self) -> tuple[int, int]:
        """Splits and members."""
        return self.n_splits, len(self.speeds)

    @cached_property
    def slow(self) -> npt.NDArray[np.bool_]:
        """Whether each member is slow, shape ``(n_splits, n_members)``."""
        return _FAMILIES[self.family](self, np.random.default_rng([self.seed, 0]))

    @cached_property
    def speeds_hz(self) -> _Array:
        """Samples per second of each member in each split, shape ``(n_splits, n_members)``."""
        noise = np.exp(self.noise * np.random.default_rng([self.seed, 1]).standard_normal(self.shape))
        speeds: _Array = np.array(self.speeds) * np.where(self.slow, self.slow_frac, 1.0) * noise
        for each in self.planted:
            speeds[each.first : each.first + each.n_splits, each.member] /= each.times
        return speeds
