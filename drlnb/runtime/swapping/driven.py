"""Make the gradient steps of a task under the plans of its master, and report what they did."""

from collections.abc import Callable
from statistics import median
from typing import TypeVar

import torch

from drlnb.planning.codec import from_plain
from drlnb.planning.swapping.machine import TRIAL_STEPS
from drlnb.planning.swapping.profile import SwapLink, SwapPlan, SwapProfile, facts
from drlnb.planning.swapping.state import ALL
from drlnb.records.base import Facts, Row
from drlnb.records.columns.swapping import SwapOrder
from drlnb.runtime.swapping.engine import Engine
from drlnb.runtime.swapping.memory import StepState, device_of, fix_malloc
from drlnb.runtime.swapping.report import BudgetExceeded, SwapStep

__all__ = ["Driven"]

_T = TypeVar("_T")


class Driven:
    """Chooses nothing: it follows plans, from one command to the next.

    Parameters
    ----------
    module
        The task's network; its parameters may be views of a flat tensor.
    """

    name = ALL

    def __init__(self, module: torch.nn.Module) -> None:
        self.memory_budget_bytes: int | None = None
        self.profile: SwapProfile | None = None  # the master has it,
        self.said: dict[str, str] = {}  # and says what there is to say
        self.plan: SwapPlan | None = None
        self._device = device = device_of(module)
        if device.type == "cpu":  # there memory is what this process maps
            fix_malloc()
        self._kept = ("", SwapPlan())
        self._running = ""
        #: Samples of a step that the plan was made for; 0: of any.
        self._n_planned = 0
        self._report = ""
        self._steps: list[SwapStep] = []
        self._others: list[Row] = []
        self._link: SwapLink | None = None
        #: Samples of the largest step, and whether the present one is as large.
        self._n_largest, self._is_full = 0, False
        self._engine = Engine(module, self)

    def follow(self, order: SwapOrder, plan: Facts | None) -> bool:
        """Follow a plan from the next step on; false if it is not here and must be sent.

        Parameters
        ----------
        order
            What a command says of its steps.
        plan
            The plan itself; None: it may be known.
        """
        key = order.plan_key
        if plan is not None:
            self._kept = (key, from_plain(SwapPlan, plan))
        if key != ALL and key != self._kept[0]:
            return False
        self._running, self._report, self._n_planned = key, order.report, order.n_samples
        self.plan = None if key == ALL else self._kept[1]
        self.memory_budget_bytes = order.memory_budget_bytes
        return True

    def around(self, n_samples: int, compute: Callable[[], _T]) -> _T:
        """Compute a gradient under the plan; where memory runs out, once more with everything swapped.

        A step that is larger than the plan was made for swaps everything, and so do all until the next command.
        The gradient begins at zero; buffers and random numbers are put back, or statistics would count the batch twice.
        """
        if self.plan is not None and 0 < self._n_planned < n_samples:
            self._others.append({"r": "SwapTraceChanged", "shape_key": ""})
            self._swap_all()
        self._is_full = n_samples >= self._n_largest
        self._n_largest = max(n_samples, self._n_largest)
        before = StepState(self._engine.module, self._device, grads=False)
        try:
            with self._engine.step(n_samples):
                return compute()
        except BudgetExceeded:
            before.restore()  # the second time is outside of the handler: its traceback holds tensors
        with self._engine.step(n_samples):
            return compute()

    def events(self) -> list[Row]:
        """Return what the steps since the last call say: events as rows, each with its name under ``r``."""
        steps, self._steps, others, self._others = self._steps, [], self._others, []
        if reason := self._engine.reason:
            others.append({"r": "SwapBroken", "reason": reason})
        if not steps:
            return others
        if self.plan is not None and any(step.n_unknown for step in steps):
            others.append({"r": "SwapTraceChanged", "shape_key": ""})
        if self._report == "link" and self._link is not None:
            others.append({"r": "SwapLinkMeasured", "link": facts(self._link)})
        each = [[step] for step in steps[: 1 + TRIAL_STEPS]] if self._report == "steps" else [steps]
        return [*map(self._measured, each), *others]

    def _measured(self, steps: list[SwapStep]) -> Row:
        """Return what steps of one kind did: medians of seconds, most bytes."""
        medians = {name: median(getattr(step, name) for step in steps) for name in ("step_s", "stall_s")}
        most = {name: max(getattr(s, name) for s in steps) for name in ("peak_bytes", "swapped_bytes", "n_saved")}
        which = {"plan_key": self._running, "n_samples": self._n_largest, "device_kind": self._engine.device_kind}
        return {"r": "SwapStepMeasured", **which, **medians, **most}

    def close(self) -> None:
        """End the tier's threads."""
        self._engine.close()

    # ------------------------------------------------------------------ what a swapper asks and tells its chooser
    @property
    def keeps_all(self) -> bool:
        """Whether a step moves nothing; without a plan all is swapped, since others may share the device."""
        return self.plan is not None and self.plan.key is None

    @property
    def needs_profile(self) -> bool:
        """Whether the present step shall be recorded."""
        return self._report == "profile" and self._is_full

    def take(self, profile: SwapProfile, n_samples: int | None) -> None:
        """Keep a profile for the master."""
        self._report = "median"
        self._others.append({"r": "SwapProfileTaken", "profile": facts(profile), "n_samples": n_samples})

    def measured(self, step: SwapStep, link: SwapLink) -> None:
        """Count a step, if it is as large as any."""
        self._link = link
        if self._is_full:
            self._steps.append(step)

    def overflowed(self) -> None:
        """Swap everything until the next command."""
        if self.plan is not None:
            self._others.append({"r": "SwapStepOverflowed", "plan_key": self._running})
        self._swap_all()

    def _swap_all(self) -> None:
        self.plan, self._steps, self._running = None, [], ALL
