"""Estimate the speeds of members from what they did, and split by them.

What is remembered is plain data: member -> its figures.  ``long_hz`` is the long-run speed of a member, `c` of the
batching patent during a run: it follows what is about as fast or faster, and hardly what is slower, so contention does
not move it.  ``speed_hz`` is what the planner's own rule makes of the measurements; their quotient is the patent's
performance parameter `p`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypedDict, cast

from drlnb.planning.batching.planner import BatchPlan, BatchReport, BatchView
from drlnb.planning.batching.split import Member, plan_split

__all__ = ["Estimate", "Estimating", "Memory", "Rule", "Sharing", "followed", "planned_by", "remembered", "speeds"]

#: Most splits without a share after which a member gets its least share once, to be measured.
_LONGEST_WAIT = 31
#: Below this fraction of the long-run speed a member is slowed down by others, and its own speed is unknown.
_CONTENDED_FRAC = 0.6
#: By how much the long-run speed follows a measurement, and one of a member that is slowed down.  The first ones are
#: averaged: a member that was slowed down when it was first measured is known soon.
_LONG, _LONG_CONTENDED = 0.03, 0.001
#: By how much the overhead follows a measurement.
_OVERHEAD = 0.1
#: Limits of the performance parameter.
_SLOWEST, _FASTEST = 0.1, 4.0
#: A measurement of fewer samples is no reason for a jump.
_FEW = 4


class Estimate(TypedDict):
    """What is remembered of a member."""

    speed_hz: float
    long_hz: float
    overhead_s: float
    #: Splits in which it was measured.
    n_measured: int
    #: Splits since its last share, and after how many it gets its least one: twice as many each time that it had none
    #: again, so one bad measurement costs a split, and a member that stays slow hardly anything.
    n_idle: int
    n_wait: int
    #: Latest speed over the long-run one; of a member that did not answer the most that it may have been.
    latest: float


#: Member -> what is remembered of it.
Memory = dict[str, Estimate]
#: Returns a speed from the one before, a measurement, and whether that one rests on few samples.
Rule = Callable[[float, float, bool], float]


class Sharing(Protocol):
    """Splits units among members by their speeds."""

    def __call__(self, n_units: int, members: Sequence[Member], /, *, allow_idle: bool) -> Sequence[int]:
        """Return the units of each member."""


class Estimating(ABC):
    """Splits by what is remembered of the members' speeds; what that is follows from the rule of each planner."""

    #: By the long-run speeds.
    by_long = False

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the units of each member."""
        return planned_by(view, speeds(view, long=self.by_long))

    def observe(self, memory: object, report: BatchReport) -> Memory:
        """Return what is remembered after a report."""
        return followed(memory, report, self.moved)

    @staticmethod
    @abstractmethod
    def moved(speed_hz: float, measured_hz: float, is_few: bool) -> float:
        """Return a speed after a measurement, which may rest on few samples."""


def remembered(memory: object) -> Memory:
    """Return what a planner of this room remembers: nothing at first."""
    return cast("Memory", memory or {})


def followed(memory: object, report: BatchReport, rule: Rule) -> Memory:
    """Return what is remembered after a report.

    A member that has not answered was no faster than what it would have been in time: without that a member that is
    left out would keep the speed that it was once measured at, and be waited for in vain for ever.
    """
    known = dict(remembered(memory))
    for i, name in enumerate(report.members):
        before, size, compute_s = known.get(name), report.sizes[i], report.compute_s[i]
        if not size:
            if before:
                known[name] = {**before, "n_idle": before["n_idle"] + 1, "latest": 1.0}
        elif compute_s is not None and compute_s > 0 and report.n_done[i]:
            elapsed_s, n = report.elapsed_s[i], report.n_done[i]
            spent_s = None if elapsed_s is None else max(0.0, elapsed_s - compute_s)
            is_few = n * report.unit_samples < _FEW
            known[name] = _measured(before, n / compute_s, spent_s, rule, is_few=is_few)
        elif before and not report.n_done[i]:
            known[name] = _censored(before, size, report.duration_s)
    return known


def _measured(before: Estimate | None, hz: float, overhead_s: float | None, rule: Rule, *, is_few: bool) -> Estimate:
    """Return what is remembered of a member after a measurement."""
    if before is None:
        return {
            "speed_hz": hz,
            "long_hz": hz,
            "overhead_s": overhead_s or 0.0,
            "n_measured": 1,
            "n_idle": 0,
            "n_wait": 1,
            "latest": 1.0,
        }
    long_hz, old_s, n_measured = before["long_hz"], before["overhead_s"], before["n_measured"] + 1
    weight = max(_LONG, 1 / n_measured) if hz > _CONTENDED_FRAC * long_hz else _LONG_CONTENDED
    return {
        "speed_hz": rule(before["speed_hz"], hz, is_few),
        "long_hz": long_hz + weight * (hz - long_hz),
        "overhead_s": old_s if overhead_s is None else old_s + _OVERHEAD * (overhead_s - old_s),
        "n_measured": n_measured,
        "n_idle": 0,
        "n_wait": min(2 * before["n_wait"], _LONGEST_WAIT) if before["n_idle"] else 1,
        "latest": hz / long_hz,
    }


def _censored(before: Estimate, size: int, waited_s: float) -> Estimate:
    """Return what is remembered of a member that was waited for in vain."""
    left_s = waited_s - before["overhead_s"]
    most_hz = size / left_s if left_s > 0 else before["speed_hz"]
    return {
        **before,
        "speed_hz": min(before["speed_hz"], most_hz),
        "n_idle": 0,
        "latest": min(1.0, most_hz / before["long_hz"]),
    }


def speeds(view: BatchView, *, long: bool = False) -> list[float]:
    """Return the speed of each member as it is remembered, within limits of its long-run one, or that one.

    A member of which nothing is remembered has the speed that the view gives it; where that is alike for all, the
    median of those that are known.
    """
    known = remembered(view.memory)
    found = sorted(_speed_hz(known[each.id], long=long) for each in view.members if each.id in known)
    is_alike = len({each.speed_hz for each in view.members}) == 1
    unknown_hz = found[len(found) // 2] if found and is_alike else None
    return [
        _speed_hz(known[each.id], long=long) if each.id in known else unknown_hz or each.speed_hz
        for each in view.members
    ]


def _speed_hz(of: Estimate, *, long: bool) -> float:
    if long:
        return of["long_hz"]
    return min(max(of["speed_hz"], _SLOWEST * of["long_hz"]), _FASTEST * of["long_hz"])


def _earliest(n_units: int, members: Sequence[Member], /, *, allow_idle: bool) -> list[int]:
    return [n for _, n in plan_split(n_units, members, allow_idle=allow_idle).sizes]


def planned_by(view: BatchView, speeds_hz: Sequence[float], sharing: Sharing = _earliest) -> BatchPlan:
    """Return the shares of members of such speeds; who has had none for long gets its least one.

    Parameters
    ----------
    view
        What was asked.
    speeds_hz
        Units per second at which each member is expected.
    sharing
        Splits units by the speeds; the default so that the last member is done as early as possible.
    """
    known = remembered(view.memory)
    members = [
        replace(each, speed_hz=hz, overhead_s=known[each.id]["overhead_s"] if each.id in known else each.overhead_s)
        for each, hz in zip(view.members, speeds_hz, strict=True)
    ]
    probes = _probes(view, members, known)
    others = [each for each in members if each.id not in probes]
    shares = sharing(view.n_units - sum(probes.values()), others, allow_idle=view.role == "update")
    sizes = probes | {each.id: n for each, n in zip(others, shares, strict=True)}
    return BatchPlan(sizes=tuple([sizes[each.id] for each in members]), speeds_hz=tuple(speeds_hz))


def _probes(view: BatchView, members: Sequence[Member], known: Mapping[str, Estimate]) -> dict[str, int]:
    """Return the members that have had no share for long, with their least one, if that leaves work to the others."""
    due = {
        each.id: max(1, each.n_min)
        for each in members
        if each.id in known and known[each.id]["n_idle"] >= known[each.id]["n_wait"]
    }
    left = view.n_units - sum(due.values())
    most = sum(left if each.n_max is None else each.n_max for each in members if each.id not in due)
    return due if 0 < left <= most else {}
