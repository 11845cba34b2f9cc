"""Report what a swapper did: one step's measures, and its plan with the reason of each row."""

import contextlib
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from drlnb.planning.swapping.cost import Prediction
from drlnb.planning.swapping.profile import RowKey, SwapPlan, SwapProfile
from drlnb.planning.swapping.table import plan_table
from drlnb.records.units import said_bytes, said_s

__all__ = ["BudgetExceeded", "SwapReport", "SwapStep", "warn"]

#: Code that stands between a user's line and a warning.
_OURS = (f"{Path(__file__).parents[2]}/", f"{Path(torch.__file__).parent}/", contextlib.__file__)


def warn(text: str) -> None:
    """Warn at the line of the user's code that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)


class BudgetExceeded(torch.OutOfMemoryError):  # type: ignore[misc]  # torch is skipped
    """The device's memory did not suffice for a step; the message holds the plan that it ran under."""


@dataclass(slots=True)
class SwapStep:
    """What one step did; complete once the step has ended."""

    #: None: it could not be seen from what the module was called with.
    n_samples: int | None = None
    step_s: float = 0.0
    #: On CUDA: of the device's memory; on the CPU: parameters, gradients, buffers and saved storages, or 0 where there
    #: is no budget, so that nothing is swapped and nothing counted (planner ``none`` counts).
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
    memory_budget_bytes: int | None
    planner: str
    plan: SwapPlan
    profile: SwapProfile | None
    #: Of the plan, at the last step's number of samples.
    predicted: Prediction | None
    #: The last one.
    step: SwapStep
    #: Steps under this budget that were above it, those before there was a plan included, and the most bytes of one.
    n_above: int
    most_bytes: int
    #: Why the budget is not kept.
    said: tuple[str, ...]
    #: Why rows stay that the plan would move.
    kept_because: Mapping[RowKey, str]

    def __str__(self) -> str:
        if not self.active:
            return f"swapping does nothing: {self.reason}"
        budget = "no budget" if self.memory_budget_bytes is None else f"budget {said_bytes(self.memory_budget_bytes)}"
        above = self.memory_budget_bytes is not None and self.step.peak_bytes > self.memory_budget_bytes
        known = f"peak {said_bytes(self.step.peak_bytes)}" if self.step.peak_bytes else "peak not counted"
        peak = f"{known}{', ABOVE the budget' * above}"
        said = f"{peak}, step {said_s(self.step.step_s)}, {self.step.n_saved} storages"
        moved = f"{said_bytes(self.step.swapped_bytes)} swapped to {self.tier}, waited {said_s(self.step.stall_s)}"
        lines = [f"planner {self.planner}, {budget}: {said}, {moved}", *self.said]
        if self.n_above:
            lines.append(f"{self.n_above} steps were ABOVE this budget so far, at most {said_bytes(self.most_bytes)}")
        lines += [f"{path}#{ordinal} stays: {reason}" for (path, ordinal), reason in self.kept_because.items()]
        if self.profile is not None and self.plan.keys:
            lines.append(plan_table(self.profile, self.plan, self.step.n_samples or 1))
        return "\n".join(lines)
