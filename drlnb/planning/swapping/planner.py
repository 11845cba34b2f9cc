"""Plan which tensors leave the device during a training step; `none` keeps them all."""

from dataclasses import dataclass

from drlnb.planning.registry import Answer, PlannerKind
from drlnb.records.columns.swapping import SwapPlanned

__all__ = ["SWAPPING", "NoSwap", "SwapPlan", "SwapView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapView:
    """The training step that is about to be made."""

    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapPlan:
    """The key of a plan in the store of plans; None: nothing is swapped."""

    key: str | None


class NoSwap:
    """Keeps every tensor on the device."""

    name = "none"

    def plan(self, view: SwapView) -> SwapPlan:
        """Return a plan without a key."""
        return SwapPlan(key=None)


def _problem(view: SwapView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    fits = isinstance(plan, SwapPlan) and (plan.key is None or isinstance(plan.key, str))
    return "" if fits else f"a plan must be a SwapPlan with a text or None as its key, got {plan!r}"


def _recorded(view: SwapView, answer: Answer) -> SwapPlan | None:
    """Return the plan that a journal holds."""
    planned = answer.next(SwapPlanned)
    return SwapPlan(key=planned.plan_key) if planned else None


#: The decision what leaves the device's memory.
SWAPPING: PlannerKind[SwapView, SwapPlan] = PlannerKind("swapping", "none", problem=_problem, recorded=_recorded)
