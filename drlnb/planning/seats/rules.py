"""Decide on seats by the numbers of a probe: limits and rules of the seats machine, each one pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drlnb.records.settings import POSITIVE, Declared, count, fitting, is_whole, setting

__all__ = [
    "ISOLATIONS",
    "SeatsSettings",
    "aggregate",
    "choose",
    "isolation_problem",
    "levels",
    "n_seats_problem",
    "percentile",
    "slowed",
    "virtual_limit",
    "wait_s",
]

#: How the tasks of a slot are kept: in one process that serves them all, or in one each.
ISOLATIONS = ("shared", "process")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatsSettings(Declared):
    """Every setting of seats (ours)."""

    #: Most seats of a device: each one costs a context of its own (0.25-0.7 GiB on CUDA).
    n_most: int = setting(4, count(1))
    #: Seconds that a whole probe measures.
    probe_s: float = setting(5.0, POSITIVE)
    #: Share of a device's memory that may be in use once one more seat is up.
    memory_frac: float = setting(0.9, POSITIVE)
    #: Fewer seats are taken if they are worse by no more than this share of the best.
    margin_frac: float = setting(0.03, POSITIVE)
    #: A 95th percentile of a round's compute above so many times the probe's is too slow.
    slow_factor: float = setting(1.5, POSITIVE)
    #: Fewest rounds that are enough to be compared with the probe's.
    fewest: int = setting(20, count(1))
    #: Seconds of training over which rounds are compared with the probe's, and a number of seats with the one before.
    settle_s: float = setting(5.0, POSITIVE)
    #: Rounds of each task before its device is probed.
    first_rounds: int = setting(2, count(1))
    #: Least seconds between two probes of a device; doubles with each in a row that nothing came of, up to the second.
    again_s: float = setting(60.0, POSITIVE)
    again_max_s: float = setting(960.0, POSITIVE)


def n_seats_problem(seats: object, n_most: int = SeatsSettings().n_most) -> str:
    """Return what is wrong with the number of seats that a user gives, in words; empty if nothing is.

    Examples
    --------
    >>> n_seats_problem(0)
    "seats must be 'auto' or a whole number from 1 to 4, got 0"
    """
    words = f"'auto' or a whole number from 1 to {n_most}"
    return fitting(words, lambda value: value == "auto" or is_whole(value, 1, n_most)).problem("seats", seats)


def isolation_problem(isolation: object, seats: object) -> str:
    """Return what is wrong with a user's word for how tasks share a slot's process; empty if nothing is.

    Examples
    --------
    >>> isolation_problem("thread", 1)
    "isolation must be 'shared' or 'process', got 'thread'"
    """
    if isolation not in ISOLATIONS:
        return f"isolation must be {' or '.join(map(repr, ISOLATIONS))}, got {isolation!r}"
    if isolation == "process" and seats == "auto":
        return "seats='auto' needs isolation='shared': its probe tries rounds of all tasks in one process"
    return ""


def virtual_limit(n_cpus: int, n_devices: int, n_most: int) -> tuple[int, str]:
    """Return the most seats of each virtual device of a machine, and why no more.

    Parameters
    ----------
    n_cpus
        Cores of the machine that its devices share.
    n_devices
        Virtual devices on it.
    n_most
        Most seats of any device.

    Examples
    --------
    >>> virtual_limit(2, 1, 4)
    (2, '2 CPU cores')
    >>> virtual_limit(2, 2, 4)
    (1, '2 CPU cores for 2 devices')
    """
    share = max(1, n_cpus // n_devices)
    if share >= n_most:
        return n_most, f"at most {n_most} seats"
    return share, f"{n_cpus} CPU core{'s' * (n_cpus > 1)}" + (f" for {n_devices} devices" if n_devices > 1 else "")


def levels(n_most: int) -> tuple[int, ...]:
    """Return the numbers of seats in the order in which a probe measures them: up, and down again.

    So each is measured twice, and a machine that gets busier or less busy meanwhile favours none.

    Examples
    --------
    >>> levels(3)
    (1, 2, 3, 3, 2, 1)
    """
    up = tuple(range(1, n_most + 1))
    return up + up[::-1]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that is not below this share of them.

    Examples
    --------
    >>> percentile([5.0, 1.0, 3.0, 2.0, 4.0], 0.8)
    4.0
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def aggregate(alone_s: Mapping[str, float], n_rounds: Sequence[Mapping[str, int]], elapsed_s: Sequence[float]) -> float:
    """Return the work per second of executors that compute together.

    Work is counted in seconds that it takes one executor alone, so that tasks of any size add up.

    Parameters
    ----------
    alone_s
        Seconds of a round by task, with one executor.
    n_rounds
        Rounds that each executor computed, by task; shape ``(n_seats,)``.
    elapsed_s
        Seconds that each executor took for them; shape ``(n_seats,)``.

    Examples
    --------
    >>> aggregate({"a": 0.5, "b": 2.0}, [{"a": 4}, {"b": 1}], [2.0, 4.0])
    1.5
    """
    seats = zip(n_rounds, elapsed_s, strict=True)
    return sum(sum(alone_s.get(task, 0.0) * n for task, n in rounds.items()) / s for rounds, s in seats if s > 0)


def choose(rates: Sequence[float], margin_frac: float) -> tuple[int, str]:
    """Return the number of seats with the best aggregate, and the reason in words; the fewest of those near the best.

    Parameters
    ----------
    rates
        Work per second with 1, 2, ... seats, relative to one seat.
    margin_frac
        Share of the best rate that fewer seats may lack.

    Examples
    --------
    >>> choose([1.0, 1.8, 1.82], 0.03)
    (2, '2 seats do 1.80 x the work of one (3: 1.82 x)')
    """
    best = max(rates)
    n_seats = next(n for n, rate in enumerate(rates, 1) if rate >= (1 - margin_frac) * best)
    others = ", ".join(f"{n}: {rate:.2f} x" for n, rate in enumerate(rates, 1) if n not in (1, n_seats))
    shown = f" ({others})" if others else ""
    if n_seats == 1:
        return 1, f"one seat does as much as more{shown}"
    return n_seats, f"{n_seats} seats do {rates[n_seats - 1]:.2f} x the work of one{shown}"


def slowed(p50: float, p95: float, rates: Sequence[float], n_seats: int, settings: SeatsSettings) -> str:
    """Return why a seat is to be taken away, in words; empty if none is.

    Rounds are too slow if their 95th percentile is above ``slow_factor`` times the probe's.  Even so the seats are kept
    while they do more than fewer did in the probe: 2 that do 1.9 x the work of one and then slow down to 0.6 of it
    still do 1.1 x, and the fewer would have been slowed down, too, by whatever else uses the machine.

    Parameters
    ----------
    p50, p95
        Median and 95th percentile of rounds' compute, relative to the median and the 95th percentile in the probe.
    rates
        Work per second with 1, 2, ... seats, relative to one seat.
    n_seats
        Seats now.
    settings
        Limits.

    Examples
    --------
    >>> slowed(1.6, 1.7, [1.0, 1.2], 2, SeatsSettings())
    'p95 of compute is 1.70 x its probe, above 1.50 x: 2 seats do 0.75 x the work of one, 1 did 1.00 x'
    >>> slowed(1.6, 1.7, [1.0, 1.9], 2, SeatsSettings())
    ''
    """
    if p95 <= settings.slow_factor:
        return ""
    left, fewer = rates[n_seats - 1] / p50, rates[n_seats - 2]
    if left >= fewer:
        return ""
    return (
        f"p95 of compute is {p95:.2f} x its probe, above {settings.slow_factor:.2f} x: "
        f"{n_seats} seats do {left:.2f} x the work of one, {n_seats - 1} did {fewer:.2f} x"
    )


def wait_s(n_idle: int, settings: SeatsSettings) -> float:
    """Return the least seconds from a probe to the next, after so many in a row that nothing came of.

    Examples
    --------
    >>> wait_s(0, SeatsSettings()), wait_s(2, SeatsSettings()), wait_s(9, SeatsSettings())
    (60.0, 240.0, 960.0)
    """
    return min(settings.again_max_s, settings.again_s * 2.0 ** min(n_idle, 30))
