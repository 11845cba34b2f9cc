"""Draw which faults strike a simulated run, and when."""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from drlnb.records.errors import ConfigError

__all__ = ["FAULT_KINDS", "Fault", "fault_rates", "poisson_faults", "rate_problems"]

#: What can happen: the death of a task's collector, of a slot's executor, of a node or a slot (which come back), of a
#: holder of a lease (its task's master: another attempt follows), or that a holder stands still for a while.
FAULT_KINDS = ("collector", "executor", "node", "holder", "frozen", "slot")
#: Seconds until it is over, drawn evenly between these: a node and a slot are back, a master runs again elsewhere, a
#: frozen one goes on.  Half of the frozen ones come back before their time to live is over (10 s), half after it.
_DOWN_S: Mapping[str, tuple[float, float]] = {
    "node": (5.0, 5.0),
    "slot": (5.0, 20.0),
    "holder": (0.1, 2.0),
    "frozen": (1.0, 19.0),
}
#: Most faults of one kind per hour: above, hardly a round ends.
_MOST_PER_H = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault."""

    #: Seconds since the start of the run.
    t: float
    #: One of :data:`FAULT_KINDS`.
    kind: str
    #: Chooses who is struck: an index, taken modulo the number of candidates.
    index: int
    #: Seconds until it is over, where it ends by itself.
    down_s: float = 5.0


def poisson_faults(per_h: Mapping[str, float], *, seed: int) -> Iterator[Fault]:
    """Yield faults without end, each kind at its rate per hour, in the order of time.

    Each kind has a generator of its own, so that another rate of one leaves the others as they were.
    """
    several = [_of_kind(kind, per_h[kind], seed) for kind in FAULT_KINDS if per_h.get(kind)]
    return heapq.merge(*several, key=lambda fault: fault.t)


def _of_kind(kind: str, per_h: float, seed: int) -> Iterator[Fault]:
    rng = np.random.default_rng([seed, 3, FAULT_KINDS.index(kind)])
    t = 0.0
    while True:
        t += rng.exponential(3600.0 / per_h)
        yield Fault(t=round(t, 6), kind=kind, index=int(rng.integers(1 << 16)), down_s=_down_s(rng, kind))


def _down_s(rng: np.random.Generator, kind: str) -> float:
    return round(float(rng.uniform(*_DOWN_S.get(kind, (0.0, 0.0)))), 6)


def rate_problems(per_h: Mapping[str, float], kinds: tuple[str, ...] = FAULT_KINDS) -> list[str]:
    """Return what is wrong with some rates, in words."""
    problems = [f"faults must name some of {', '.join(kinds)}, got {kind!r}" for kind in per_h if kind not in kinds]
    return problems + [
        f"faults of {kind} must be in 0..{_MOST_PER_H:g} per hour, got {rate}"
        for kind, rate in per_h.items()
        if not (math.isfinite(rate) and 0 <= rate <= _MOST_PER_H)
    ]


def fault_rates(text: str) -> tuple[tuple[str, float], ...]:
    """Return the rates per hour that a text like ``holder=2,frozen=1`` names, in its order.

    Raises
    ------
    ConfigError
        If it is not made of ``KIND=NUMBER``, or names a kind twice.

    Examples
    --------
    >>> fault_rates("holder=2,frozen=0.5")
    (('holder', 2.0), ('frozen', 0.5))
    """
    rates: dict[str, float] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        kind, equals, rate = word.partition("=")
        try:
            number = float(rate)
        except ValueError:
            equals = ""
        if not equals or kind in rates:
            raise ConfigError(f"--faults must be KIND=RATE_PER_HOUR by commas, each kind once, got {word!r}")
        rates[kind] = number
    return tuple(rates.items())
