"""Ask which saved tensors leave the device during a training step; `none` keeps them all."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.planning.codec import from_plain
from drlnb.planning.registry import Answer, PlannerKind
from drlnb.planning.swapping.profile import SwapPlan, SwapProfile
from drlnb.records.columns.swapping import SwapPlanned

__all__ = ["SWAPPING", "NoSwap", "SwapView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapView:
    """The training step that is about to be made; without a profile or a budget nothing is swapped."""

    round: int = 0
    profile: SwapProfile | None = None
    n_samples: int = 0
    #: Bytes that the step may use, what stays anyway included; None: any number.
    memory_budget_bytes: float | None = None
    #: Of random moves.
    seed: int = 0
    #: Name of a row -> the action that the user wants for it.
    pins: Mapping[str, str] = field(default_factory=dict)


class NoSwap:
    """Keeps every tensor on the device."""

    name = "none"

    def plan(self, view: SwapView) -> SwapPlan:
        """Return the plan that keeps all."""
        return SwapPlan.keeping(view.profile)


def _problem(view: SwapView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, SwapPlan):
        return f"a plan must be a SwapPlan, got {plan!r}"
    return "" if view.profile is None else plan.problem(view.profile, view.pins)


def _recorded(view: SwapView, answer: Answer) -> SwapPlan | None:
    """Return the plan that a journal holds."""
    planned = answer.next(SwapPlanned)
    if planned is None:
        return None
    return SwapPlan.keeping(view.profile) if planned.plan is None else from_plain(SwapPlan, planned.plan)


#: The decision what leaves the device's memory.
SWAPPING: PlannerKind[SwapView, SwapPlan] = PlannerKind("swapping", "auto", problem=_problem, recorded=_recorded)
SWAPPING.register("none", NoSwap)
