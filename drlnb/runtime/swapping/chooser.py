"""Declare what chooses the plans of steps, and report what it has chosen."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.profile import RowKey, SwapLink, SwapPlan, SwapProfile
from drlnb.runtime.swapping.report import SwapReport, SwapStep

__all__ = ["Chooser", "reported"]


class Chooser(Protocol):
    """Chooses the plan of each step, and is told of the step."""

    #: Of the planner.
    name: str
    memory_budget_bytes: int | None
    profile: SwapProfile | None
    #: None: nothing is known yet.
    plan: SwapPlan | None
    #: Cause -> why the budget is not kept.
    said: dict[str, str]

    @property
    def keeps_all(self) -> bool:
        """Whether the next step moves nothing."""

    @property
    def needs_profile(self) -> bool:
        """Whether the next step shall be recorded."""

    def take(self, profile: SwapProfile, n_samples: int | None) -> None:
        """Plan for the profile of the recorded steps; where nobody knows their samples each step counts as one."""

    def measured(self, step: SwapStep, link: SwapLink) -> None:
        """Learn from a step that was not recorded."""

    def overflowed(self) -> None:
        """Learn that a step did not fit into the device's memory."""


def reported(
    chooser: Chooser, step: SwapStep, above: tuple[int, int], reason: str, tier: str, kept_because: Mapping[RowKey, str]
) -> SwapReport:
    """Return the report of a chooser's plan and the last step under it; other parameters: see :class:`.SwapReport`.

    Parameters
    ----------
    above
        How many steps were above the budget, and the most bytes of one.
    """
    plan = chooser.plan or SwapPlan()
    known = chooser.profile if plan.keys else None
    return SwapReport(
        active=not reason,
        reason=reason,
        tier=tier,
        memory_budget_bytes=chooser.memory_budget_bytes,
        planner=chooser.name,
        plan=plan,
        profile=chooser.profile,
        predicted=predict(known, plan, step.n_samples or 1, chooser.memory_budget_bytes) if known else None,
        step=replace(step),
        n_above=above[0],
        most_bytes=above[1],
        said=tuple(chooser.said.values()),
        kept_because=kept_because,
    )
