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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drlnb.records.errors import InfeasibleSplit

__all__ = ["Member", "Split", "plan_split", "real_shares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Whoever takes a share: a learner or a collector."""

    id: str
    #: Units per second.
    speed_hz: float
    #: Seconds of a share beside those of its units.
    overhead_s: float = 0.0
    #: Least units of a share that is not empty.
    n_min: int = 1
    #: Most units; None: no bound.
    n_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Shares of the members, and how long the slowest of them takes."""

    #: Id and units of each member, in their order; 0: it has no share.
    sizes: tuple[tuple[str, int], ...]
    #: Seconds until the last member is done, with communication.
    predicted_s: float


def plan_split(
    n_units: int,
    members: Sequence[Member],
    *,
    quantum: int = 1,
    comm_base_s: float = 0.0,
    comm_each_s: float = 0.0,
    allow_idle: bool = True,
) -> Split:
    """Split units among members so that the last one is done as early as possible.

    The sizes are the best ones for the members that are used.  Which ones are used is found by a search among few sets
    where communication or an `n_min` above one quantum makes an empty share worth it, and is exact elsewhere.

    Parameters
    ----------
    n_units
        Units of work, at least 1; a multiple of `quantum`.
    members
        At least one; their ids differ.
    quantum
        Units that stay together.
    comm_base_s, comm_each_s
        Seconds of communication: once where more than one member has a share, and for each one that has.
    allow_idle
        Whether a member may have no share; else each gets its `n_min` at least.

    Returns
    -------
    Split
        Sizes in the order of `members`, whose sum is `n_units`.

    Raises
    ------
    InfeasibleSplit
        If the bounds of no set of members that was tried allow `n_units`; the message lists them all.
    ValueError
        If a number is out of its range; the message names the member.

    Examples
    --------
    >>> fast, slow = (Member(id=name, speed_hz=hz, overhead_s=0.01) for name, hz in (("a", 200), ("b", 50)))
    >>> plan = plan_split(512, [fast, slow])
    >>> plan.sizes, round(plan.predicted_s, 2)
    ((('a', 410), ('b', 102)), 2.06)
    """
    _check(n_units, members, quantum, comm_base_s, comm_each_s)
    n = n_units // quantum
    whole = [_in_quanta(each, n, quantum, allow_idle=allow_idle) for each in members]
    comm = (comm_base_s, comm_each_s)
    used = _used(n, whole, comm) if allow_idle else _fitting(n, range(len(whole)), whole)
    if used is None:
        raise InfeasibleSplit(_infeasible(n_units, members, whole, quantum, allow_idle=allow_idle))
    shares = dict.fromkeys(range(len(members)), 0) | dict(zip(used, _rounded(n, [whole[i] for i in used]), strict=True))
    finish_s = [whole[i].finish_s(k) for i, k in shares.items() if k]
    return Split(
        sizes=tuple((each.id, shares[i] * quantum) for i, each in enumerate(members)),
        predicted_s=max(finish_s) + _comm_s(len(finish_s), comm),
    )


def real_shares(n_units: int, members: Sequence[Member], *, allow_idle: bool = True) -> list[float]:
    """Return the shares, as real numbers, that all finish at one instant but where a bound holds.

    Raises
    ------
    InfeasibleSplit, ValueError
        As of :func:`plan_split`.
    """
    _check(n_units, members, 1, 0.0, 0.0)
    parts = [_in_quanta(each, n_units, 1, allow_idle=allow_idle) for each in members]
    if _fitting(n_units, range(len(parts)), parts) is None:
        raise InfeasibleSplit(_infeasible(n_units, members, parts, 1, allow_idle=False))
    level_s = _level_s(n_units, parts)
    return [part.share(level_s) for part in parts]


# ---------------------------------------------------------------------- whole units
class _Part(NamedTuple):
    """A member in quanta: bounds and speed of its share, if it has one."""

    id: str
    speed_hz: float
    overhead_s: float
    n_min: int
    n_max: int

    def finish_s(self, n: int) -> float:
        return self.overhead_s + n / self.speed_hz

    def share(self, level_s: float) -> float:
        """Return the real number of quanta that are done at an instant, within the bounds."""
        return min(max((level_s - self.overhead_s) * self.speed_hz, self.n_min), self.n_max)


def _in_quanta(member: Member, n: int, quantum: int, *, allow_idle: bool) -> _Part:
    low = -(-member.n_min // quantum)
    if allow_idle and low <= 1:
        low = 0  # a share of nothing or of one quantum at least: no bound at all
    high = max(n, low)
    if member.n_max is not None:
        high = min(high, member.n_max // quantum)
    return _Part(member.id, member.speed_hz / quantum, member.overhead_s, low, high)


def _level_s(n: int, parts: Sequence[_Part]) -> float:
    """Return the instant at which real shares of all parts that finish then make n quanta."""
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
    """Return whole shares: each quantum goes to whoever would finish it earliest, ties by id.

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


# ---------------------------------------------------------------------- who has a share
def _used(n: int, parts: Sequence[_Part], comm: tuple[float, float]) -> Sequence[int] | None:
    """Return which parts have a share: of the sets that are tried the one that is done earliest; None if none fits."""
    able = [i for i, part in enumerate(parts) if part.n_max >= max(part.n_min, 1)]
    if not any(comm) and not any(parts[i].n_min for i in able):
        return _fitting(n, able, parts)
    best: Sequence[int] | None = None
    best_s = math.inf
    for tried in _tried(n, able, parts):
        if (fits := _fitting(n, tried, parts)) is not None:
            those = [parts[i] for i in fits]
            level_s = _level_s(n, those)
            n_used = sum(part.share(level_s) > 0 for part in those)
            if level_s + _comm_s(n_used, comm) < best_s:
                best, best_s = fits, level_s + _comm_s(n_used, comm)
    return best


def _tried(n: int, able: Sequence[int], parts: Sequence[_Part]) -> Iterator[Sequence[int]]:
    """Yield sets of parts: without the smallest shares, those of the smallest overheads, each one alone."""
    left = list(able)
    while left:
        yield left
        level_s = _level_s(n, [parts[i] for i in left])
        smallest = min(left, key=lambda i: (parts[i].share(level_s), parts[i].id))
        left = [i for i in left if i != smallest]
    by_overhead = sorted(able, key=lambda i: (parts[i].overhead_s, -parts[i].speed_hz, parts[i].id))
    for k in range(1, len(by_overhead)):
        yield sorted(by_overhead[:k])
    for i in able:
        yield [i]


def _fitting(n: int, used: Sequence[int], parts: Sequence[_Part]) -> Sequence[int] | None:
    """Return a set of parts if their bounds allow n quanta."""
    low, high = _sums(used, parts)
    is_ordered = all(parts[i].n_min <= parts[i].n_max for i in used)
    return used if is_ordered and low <= n <= high else None


def _sums(used: Sequence[int], parts: Sequence[_Part]) -> tuple[int, int]:
    """Return the least and the most quanta that the bounds of a set allow."""
    return sum(parts[i].n_min for i in used), sum(parts[i].n_max for i in used)


def _comm_s(n_used: int, comm: tuple[float, float]) -> float:
    return comm[0] * (n_used > 1) + comm[1] * n_used


# ---------------------------------------------------------------------- bad input
def _check(n_units: int, members: Sequence[Member], quantum: int, comm_base_s: float, comm_each_s: float) -> None:
    """Raise ValueError if a number is out of its range."""
    if not _is_whole(quantum, 1):
        raise ValueError(f"quantum must be a whole number >= 1, got {quantum!r}")
    if not _is_whole(n_units, 1):
        raise ValueError(f"n_units must be a whole number >= 1, got {n_units!r}")
    if n_units % quantum:
        near = [n for n in (n_units - n_units % quantum, n_units - n_units % quantum + quantum) if n]
        raise ValueError(
            f"n_units must be a multiple of {quantum}, such as {' or '.join(map(str, near))}, got {n_units}"
        )
    for name, value in (("comm_base_s", comm_base_s), ("comm_each_s", comm_each_s)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and >= 0 s, got {value!r}")
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


def _infeasible(
    n_units: int, members: Sequence[Member], parts: Sequence[_Part], quantum: int, *, allow_idle: bool
) -> str:
    """Return that no split fits, with all bounds, and the number of units next to it that has one."""
    n = n_units // quantum
    able = [i for i, part in enumerate(parts) if part.n_min <= part.n_max > 0]
    tried = _tried(n, able, parts) if allow_idle else [range(len(parts))] * (len(able) == len(parts))
    fits = [(low if low > n else high) * quantum for low, high in [_sums(each, parts) for each in tried]]
    bounds = ", ".join([f"{each.id} {each.n_min} to {each.n_max or 'any'}" for each in members])
    whole = f" in whole {quantum}s" if quantum > 1 else ""
    nearest = f"; the nearest number that fits is {min(fits, key=lambda k: (abs(k - n_units), k))}" if fits else ""
    return f"{n_units} units cannot be split{whole} within the members' bounds ({bounds}){nearest}"
