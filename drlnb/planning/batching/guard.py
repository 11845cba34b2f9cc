"""Follow whichever of several planners would have been fastest in the last splits: follow the leader.

Once a split is over the speeds of its members are known, so what each planner's shares would have taken can be
computed, whoever was followed.  A planner that does harm is left after some splits, whatever it promised.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypedDict, cast

from drlnb.planning.batching.planner import BatchPlan, BatchReport, BatchView
from drlnb.planning.batching.split import Member
from drlnb.planning.batching.steps import play_split

__all__ = ["ShadowGuard"]

#: Splits after which a record counts half.
_HALF_LIFE = 50
_KEPT = 0.5 ** (1 / _HALF_LIFE)
#: Another one leads once its splits would have been shorter by this fraction.
_MARGIN = 0.01


class _Learning(Protocol):
    """A planner that learns."""

    def plan(self, view: BatchView, /) -> BatchPlan: ...

    def observe(self, memory: object, report: BatchReport, /) -> object: ...


class _Shadows(TypedDict):
    """What is remembered."""

    leader: int
    #: Of each planner the logarithms of its splits' seconds, summed; older ones count less and less.
    records: list[float]
    #: How many splits they count for.
    weight: float
    memories: list[object]


class ShadowGuard:
    """Asks the planner that leads, and lets the others learn in its shadow.

    Parameters
    ----------
    planners
        The first one leads at first, and wherever no other is better.
    """

    name = "guard"

    def __init__(self, planners: Sequence[_Learning]) -> None:
        self._planners = tuple(planners)

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the plan of the planner that leads."""
        known = self._remembered(view.memory)
        return self._planners[known["leader"]].plan(replace(view, memory=known["memories"][known["leader"]]))

    def observe(self, memory: object, report: BatchReport) -> _Shadows:
        """Return what is remembered after a report: who leads, each planner's record, and what each one remembers."""
        known = self._remembered(memory)
        records, weight = known["records"], known["weight"]
        if known["memories"][0] is not None and any(report.sizes):  # else nobody had anything to plan by, or to plan
            plans = [self._shadow(i, known, report) for i in range(len(self._planners))]
            members = _measured(report, plans[known["leader"]])
            taken = [math.log(play_split(plan.sizes, members).duration_s) for plan in plans]
            records = [_KEPT * record + log_s for record, log_s in zip(records, taken, strict=True)]
            weight = _KEPT * weight + 1.0
        best = records.index(min(records))
        is_better = records[known["leader"]] - records[best] > _MARGIN * weight
        return {
            "leader": best if is_better else known["leader"],
            "records": records,
            "weight": weight,
            "memories": [
                planner.observe(its, report) for planner, its in zip(self._planners, known["memories"], strict=True)
            ],
        }

    def _remembered(self, memory: object) -> _Shadows:
        n = len(self._planners)
        fresh: _Shadows = {"leader": 0, "records": [0.0] * n, "weight": 0.0, "memories": [None] * n}
        return cast("_Shadows", memory or fresh)

    def _shadow(self, i: int, known: _Shadows, report: BatchReport) -> BatchPlan:
        """Return what a planner would have planned for the split that a report tells of."""
        members = tuple([Member(id=name, speed_hz=1.0) for name in report.members])
        view = BatchView(
            round=report.round,
            role="update",
            n_units=sum(report.sizes),
            members=members,
            memory=known["memories"][i],
        )
        return self._planners[i].plan(view)


def _measured(report: BatchReport, expected: BatchPlan) -> list[Member]:
    """Return the members as they were; who has not answered counts as it was expected to be."""
    members = []
    for i, name in enumerate(report.members):
        hz, overhead_s = expected.speeds_hz[i], 0.0
        compute_s, elapsed_s = report.compute_s[i], report.elapsed_s[i]
        if compute_s and report.n_done[i]:
            hz = report.n_done[i] / compute_s
            overhead_s = 0.0 if elapsed_s is None else max(0.0, elapsed_s - compute_s)
        members.append(Member(id=name, speed_hz=hz, overhead_s=overhead_s))
    return members
