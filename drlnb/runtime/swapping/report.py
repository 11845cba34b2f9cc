"""Say what a swapper did: one step's measures, and its plan with the reason of each row."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from drlnb.planning.swapping.cost import Prediction
from drlnb.planning.swapping.profile import KEEP, RowKey, SwapPlan, SwapProfile
from drlnb.records.units import said_bytes, said_s

__all__ = ["BudgetExceeded", "SwapReport", "SwapStep", "plan_table"]


class BudgetExceeded(torch.OutOfMemoryError):
    """The device's memory did not suffice for a step; the message holds the plan that it ran under."""


@dataclass(slots=True)
class SwapStep:
    """What one step did; complete once the step has ended."""

    #: None: it could not be seen from what the module was called with.
    n_samples: int | None = None
    step_s: float = 0.0
    #: On CUDA: of the device's memory; on the CPU: parameters, gradients, buffers and saved storages.
    peak_bytes: int = 0
    #: Storages that autograd kept, and saved tensors that it had in them.
    n_saved: int = 0
    n_packs: int = 0
    swapped_bytes: int = 0
    #: How often a storage was brought back or computed again, and how long the step waited for that.
    n_fetched: int = 0
    stall_s: float = 0.0
    #: Storages that the plan says nothing of: they were kept.
    n_unknown: int = 0
    #: None: nothing but keeping.
    plan_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapReport:
    """What a swapper does now."""

    active: bool
    #: Why it does nothing; empty if it works.
    reason: str
    tier: str
    budget_bytes: int | None
    planner: str
    plan: SwapPlan
    profile: SwapProfile | None
    #: Of the plan, at the last step's number of samples.
    predicted: Prediction | None
    #: The last one.
    step: SwapStep
    #: Why rows stay that the plan would move.
    kept_because: Mapping[RowKey, str]

    def __str__(self) -> str:
        if not self.active:
            return f"swapping does nothing: {self.reason}"
        budget = "no budget" if self.budget_bytes is None else f"budget {said_bytes(self.budget_bytes)}"
        said = f"peak {said_bytes(self.step.peak_bytes)}, step {said_s(self.step.step_s)}, {self.step.n_saved} storages"
        moved = f"{said_bytes(self.step.swapped_bytes)} swapped to {self.tier}, waited {said_s(self.step.stall_s)}"
        table = plan_table(self.plan, self.profile, self.step.n_samples or 1, self.kept_because)
        return f"planner {self.planner}, {budget}: {said}, {moved}\n{table}"


def plan_table(
    plan: SwapPlan, profile: SwapProfile | None, n_samples: int, kept_because: Mapping[RowKey, str] | None = None
) -> str:
    """Return a plan as text, a line per row: layer, type, MiB, action and why.

    Parameters
    ----------
    plan, profile
        What is done, and with what; without a profile the table is empty.
    n_samples
        Samples of a step.
    kept_because
        Why rows stay that the plan would move.
    """
    reasons, lines = kept_because or {}, [f"{'row':<28} {'layer type':<18} {'MiB':>9}  action"]
    for row in profile.rows if profile is not None else ():
        action = plan.action_of.get(row.key, KEEP)
        why = (
            f": {row.squeeze_kind}"
            if action == "squeeze"
            else f": from {row.derive_from}"
            if action == "derive"
            else ""
        )
        why = f", but kept: {reasons[row.key]}" if row.key in reasons and action != KEEP else why
        lines.append(f"{row.name:<28} {row.layer_type:<18} {row.bytes(n_samples) / 2**20:>9.2f}  {action}{why}")
    return "\n".join(lines)
