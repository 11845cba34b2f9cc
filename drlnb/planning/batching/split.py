"""Split units of work among members of different speed so that the last one is done as early as possible.

A member that is given b units is done after ``overhead_s + b / speed_hz``.  Where shares may be real numbers, the best
ones are those that all finish at one instant, the level, but where a bound holds (water-filling).  Whole units go, one
after the other, to the member that would finish the next one earliest: no other whole shares of these members are done
earlier, and none gets fewer units when there are more of them, or when it becomes faster.

Plain floats, summed in the order of the members: a replay on another machine computes the same sizes.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drlnb.records.errors import ConfigError

__all__ = ["Member", "plan_split", "real_shares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Whoever takes a share: a learner or a collector."""

    id: str
    #: Units per second.
    speed_hz: float
    #: Seconds of a share beside those of its units.
    overhead_s: float = 0.0
    #: Least units, where no share may be empty.
    n_min: int = 1
    #: Most units; None: no bound.
    n_max: int | None = None


def plan_split(n_units: int, members: Sequence[Member], *, allow_idle: bool = True) -> tuple[int, ...]:
    """Split units among members so that the last one is done as early as possible.

    Parameters
    ----------
    n_units
        Units of work, at least 1.
    members
        At least one; their ids differ.
    allow_idle
        Whether a member may have no share; else each gets its `n_min` at least.

    Returns
    -------
    tuple of int
        Units of each member, in their order, whose sum is `n_units`; shape ``(len(members),)``.

    Raises
    ------
    ConfigError, ValueError
        If the bounds of the members do not allow `n_units`; if a number is out of its range.  The message names them.

    Examples
    --------
    >>> plan_split(512, [Member(id=name, speed_hz=hz, overhead_s=0.01) for name, hz in (("a", 200), ("b", 50))])
    (410, 102)
    """
    return tuple(_rounded(n_units, _parts(n_units, members, allow_idle=allow_idle)))


def real_shares(n_units: int, members: Sequence[Member], *, allow_idle: bool = True) -> list[float]:
    """Return the shares, as real numbers, that all finish at one instant but where a bound holds.

    Raises
    ------
    ConfigError, ValueError
        As of :func:`plan_split`.
    """
    parts = _parts(n_units, members, allow_idle=allow_idle)
    level_s = _level_s(n_units, parts)
    return [part.share(level_s) for part in parts]


# ---------------------------------------------------------------------- whole units
class _Part(NamedTuple):
    """A member, with the bounds of its share as they hold in a split."""

    id: str
    speed_hz: float
    overhead_s: float
    n_min: int
    n_max: int

    def finish_s(self, n: int) -> float:
        return self.overhead_s + n / self.speed_hz

    def share(self, level_s: float) -> float:
        """Return the real number of units that are done at an instant, within the bounds."""
        return min(max((level_s - self.overhead_s) * self.speed_hz, self.n_min), self.n_max)


def _parts(n: int, members: Sequence[Member], *, allow_idle: bool) -> list[_Part]:
    """Return members as parts of a split, once their numbers and bounds have been checked."""
    _check(n, members)
    parts = []
    for each in members:
        low = 0 if allow_idle else each.n_min
        high = max(n, low) if each.n_max is None else min(n, each.n_max)
        parts.append(_Part(each.id, each.speed_hz, each.overhead_s, low, high))
    least, most = sum(part.n_min for part in parts), sum(part.n_max for part in parts)
    if not least <= n <= most:
        raise ConfigError(f"{n} units cannot be split: the members' bounds allow {least} to {most}")
    return parts


def _level_s(n: int, parts: Sequence[_Part]) -> float:
    """Return the instant at which real shares of all parts that finish then make n units."""
    points = sorted({part.finish_s(bound) for part in parts for bound in (part.n_min, part.n_max)})

    def done(level_s: float) -> float:
        total = 0.0
        for part in parts:  # not sum(): later Pythons round it otherwise
            total += part.share(level_s)
        return total

    k = bisect_left(points, float(n), hi=len(points) - 1, key=done)
    if k == 0:
        return points[0]
    before, after = done(points[k - 1]), done(points[k])
    # At the last point the sum may lack its last digits: then it is the level.
    return points[k - 1] + (points[k] - points[k - 1]) * (n - before) / max(after - before, n - before)


def _rounded(n: int, parts: Sequence[_Part]) -> list[int]:
    """Return whole shares: each unit goes to whoever would finish it earliest, ties by id.

    The level is a short cut alone: what is done well before it would be given away so in any case.  The result does not
    depend on how its last digits were rounded.
    """
    level_s = _level_s(n, parts)
    # a unit, and what the last digits of the level may hide
    margins = [1 + 8 * math.ulp(level_s) * part.speed_hz for part in parts]
    shares = [
        max(part.n_min, math.floor(part.share(level_s) - margin)) for part, margin in zip(parts, margins, strict=True)
    ]
    heap = [(part.finish_s(k + 1), part.id, i) for i, (part, k) in enumerate(zip(parts, shares, strict=True))]
    heap = [each for each in heap if shares[each[2]] < parts[each[2]].n_max]
    heapq.heapify(heap)
    for _ in range(n - sum(shares)):
        _, name, i = heap[0]
        shares[i] += 1
        if shares[i] < parts[i].n_max:
            heapq.heapreplace(heap, (parts[i].finish_s(shares[i] + 1), name, i))
        else:
            heapq.heappop(heap)
    return shares


# ---------------------------------------------------------------------- bad input
def _check(n_units: int, members: Sequence[Member]) -> None:
    """Raise ValueError if a number is out of its range."""
    if not _is_whole(n_units, 1):
        raise ValueError(f"n_units must be a whole number >= 1, got {n_units!r}")
    if not members:
        raise ValueError("a split needs one member at least")
    seen = set[str]()
    for member in members:
        if member.id in seen:
            raise ValueError(f"two members have the id {member.id!r}")
        seen.add(member.id)
        if problem := _problem(member, n_units):
            raise ValueError(f"member {member.id!r}: {problem}")


def _problem(member: Member, n_units: int) -> str:
    """Return what is wrong with a member; empty if nothing is."""
    if not 0 < member.speed_hz < math.inf:
        return f"speed_hz must be finite and > 0, got {member.speed_hz!r}"
    if not 0 <= member.overhead_s < math.inf:
        return f"overhead_s must be finite and >= 0 s, got {member.overhead_s!r}"
    if not math.isfinite(member.overhead_s + n_units / member.speed_hz):
        return f"speed_hz is too small for {n_units} units, got {member.speed_hz!r}"
    if not _is_whole(member.n_min, 0):
        return f"n_min must be a whole number >= 0, got {member.n_min!r}"
    least = max(member.n_min, 1)
    if member.n_max is not None and not _is_whole(member.n_max, least):
        return f"n_max must be None or a whole number >= {least}, got {member.n_max!r}"
    return ""


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
