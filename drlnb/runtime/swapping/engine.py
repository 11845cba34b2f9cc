"""Run training steps of a module under swap plans: :class:`Engine`."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from numbers import Integral
from pathlib import Path
from typing import TypeVar

import torch
from torch.autograd.graph import saved_tensors_hooks

from drlnb.planning.swapping.profile import (
    BLOCK,
    DERIVE,
    KEEP,
    SQUEEZE,
    SWAP,
    Action,
    RowKey,
    SwapPlan,
    SwapProfile,
)
from drlnb.runtime.swapping.attribution import Attribution, Call
from drlnb.runtime.swapping.blocks.runs import Blocks
from drlnb.runtime.swapping.chooser import Chooser, reported
from drlnb.runtime.swapping.derive import Recipes
from drlnb.runtime.swapping.measure import Recorded, Recording, Recordings, link_of, profile_of
from drlnb.runtime.swapping.memory import DevicePeak, StepState, allocated, device_of, shape_key, storages_of
from drlnb.runtime.swapping.report import BudgetExceeded, SwapReport, SwapStep, warn
from drlnb.runtime.swapping.saved import given_back, given_data
from drlnb.runtime.swapping.squeeze import recognise, squeeze
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.tiers.base import Meter, Tier
from drlnb.runtime.swapping.tiers.file import IN_FLIGHT_BYTES
from drlnb.runtime.swapping.tiers.made import made_tier
from drlnb.runtime.swapping.torch_private import assignments_told, transforms_allowed, unhookable

__all__ = ["FIRST_STEPS", "RECORDED", "Engine"]

_T = TypeVar("_T")
#: Smallest storages that are moved: below, a copy's start costs more (TransformerEngine: 256 Ki elements).
_MIN_BYTES = {"cpu": 64 << 10, "cuda": 1 << 20}
#: Steps that swap everything before the one that is recorded: the optimiser's state appears in the first.
_COLD_STEPS = 1
#: Steps of each batch that a profile is made of: the first one of a size has more to do, and others use the machine.
RECORDED = 3
#: Without plan or budget, a storage that is needed again within that many times its copy is not swapped.
_GAP_COPIES = 2.0
FIRST_STEPS = _COLD_STEPS + RECORDED  #: Steps until a plan is followed.


class Engine:
    """Makes the training steps of a module under the plans of whoever chooses them.

    Parameters
    ----------
    module
        The model, on one device.
    chooser
        Chooses the plans.
    tier, min_bytes, folder
        As of :class:`~drlnb.runtime.swapping.client.swapper.Swapper`.

    Raises
    ------
    ValueError
        If the module is on several devices, or its device has no such tier.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        chooser: Chooser,
        *,
        tier: str | Callable[[Meter], Tier] = "auto",
        min_bytes: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.module, self._device, self._chooser = module, device_of(module), chooser
        self._own_bytes = self._outside_bytes = 0  # as a step begins: of the module; on CUDA of all that is there
        self._meter, self._peak = Meter(self._device), DevicePeak(self._device)
        self._tier = made_tier(tier, self._device, self._meter, Path(folder) if folder is not None else None)
        self._attribution = Attribution(module, entered=self._entered, left=self._left)
        self._tape = Tape(
            self._meter,
            self._tier,
            self._attribution,
            action=self._action,
            min_bytes=_MIN_BYTES[self._device.type] if min_bytes is None else min_bytes,
            window_bytes=IN_FLIGHT_BYTES,
        )
        self._recipes, self._blocks = Recipes(self._tape), Blocks(module, self._tape, self._attribution)
        self._tape.ways = {SQUEEZE: squeeze, DERIVE: self._recipes.derive}
        self._recording: Recording | None = None
        self._recorded: list[tuple[int, Recorded]] = []  # number of samples, and what was recorded, of the last steps
        self.reason, self._n_steps, self._open, self._step, self._hooked = "", 0, False, SwapStep(), False
        self._followed, self._following = ExitStack(), False
        self._budget_bytes: int | None = None  # of the last step; how many steps were above it, and the most of them
        self._above = 0, 0

    @contextmanager
    def step(self, n_samples: int | None = None) -> Iterator[SwapStep]:
        """Run the training step inside the ``with`` block under the plan.

        Parameters
        ----------
        n_samples
            Samples of the step; None: the leading size of the first tensor, in whatever nest or by keyword, that the
            module is called with, or of packed sequences their number.

        Raises
        ------
        RuntimeError
            If a step is open already.
        ValueError
            If the number of samples is none.
        BudgetExceeded
            If the device had too little memory; the next step runs under the plan of the smallest peak.
        """
        if self._open:
            raise RuntimeError("a step is open already: steps do not nest")
        if n_samples is not None and (not isinstance(n_samples, Integral) or n_samples < 1):
            raise ValueError(f"n_samples must be a whole number from 1 up, or None, got {n_samples!r}")
        self._step = step = SwapStep(None if n_samples is None else int(n_samples))
        if self._does_nothing():
            yield step
            return
        recording = self._new_recording() if self._chooser.needs_profile and self._n_steps >= _COLD_STEPS else None
        began_s = self._meter.settle()
        is_free = self._chooser.plan is None and self._chooser.memory_budget_bytes is None
        self._tape.gap_copies = _GAP_COPIES if is_free else 0.0
        try:
            with self._hooks(recording or self._recording):
                self._open = True
                yield step
                self._meter.settle()
        except torch.OutOfMemoryError as problem:
            report = self.report()
            self._chooser.overflowed()
            raise BudgetExceeded(f"{problem}; the step ran so: {report}") from problem
        finally:
            self._open = False
            self._tape.end()
            self._note(step, time.perf_counter() - began_s)
        self._n_steps += 1
        if recording is None:
            self._chooser.measured(step, link_of(self._tier))
        else:
            n = step.n_samples or 1
            self._recorded.append((n, (recording, recording.ticks())))
            if len(self._recorded) == RECORDED:
                alike, self._recorded = [recorded for size, recorded in self._recorded if size == n], []
                self._chooser.take(self._profile_of({n: alike}), step.n_samples)

    @contextmanager
    def _hooks(self, recording: Recording | None) -> Iterator[None]:
        counts = recording is None and self._chooser.keeps_all
        budget_bytes = self._chooser.memory_budget_bytes
        self._hooked = not counts or bool(budget_bytes or self._chooser.plan or self._chooser.name == "none")
        pinned, self._own_bytes = storages_of(self.module)
        self._tape.begin(pinned, counts=counts)
        self._recipes.begin(wanted=recording is not None or DERIVE in self._plan.actions)
        self._recording = self._tape.watch = recording
        self._outside_bytes = allocated(self._device).now_bytes - self._meter.n_bytes
        self._peak.restart(self._fixed_bytes())
        self._meter.restart(None if recording is None else self._peak)
        self._meter.limit_bytes = math.inf if budget_bytes is None else budget_bytes - self._fixed_bytes()
        try:
            with ExitStack() as stack:
                stack.enter_context(self._blocks.open(self._plan.blocks, tries=recording is not None))
                stack.enter_context(self._attribution.size_alone() if counts else self._attribution)
                hooks = (self._tape.count, given_back) if counts else (self._tape.pack, self._tape.unpack)
                if self._hooked:
                    stack.enter_context(transforms_allowed())
                    if not self._following:  # to the end: graphs outlive their steps
                        self._following = True
                        self._followed.enter_context(assignments_told(given_data))
                    stack.enter_context(saved_tensors_hooks(*hooks))
                yield
            if counts and self._chooser.plan:
                known = len(self._chooser.plan.keys) + len(self._tape.others)
                self._step.n_unknown = max(0, self._tape.n_saved - known)
            self._step.n_unknown += self._blocks.n_left_alone(self._plan.blocks)
        finally:
            self._recording = self._tape.watch = self._meter.beside = None
            self._recipes.begin(wanted=False)

    @property
    def _plan(self) -> SwapPlan:
        return self._chooser.plan or SwapPlan()

    def run(self, step_fn: Callable[[], _T], n_samples: int | None = None) -> _T:
        """Run a step, once more under the plan of the smallest peak if the memory did not suffice.

        Parameters
        ----------
        step_fn
            One training step; random numbers, buffers, frozen parameters and gradients are put back before a second.
        n_samples
            As for :meth:`step`.

        Raises
        ------
        TypeError
            If it is no function.
        BudgetExceeded
            If the memory does not suffice either way.
        """
        if not callable(step_fn):
            raise TypeError(f"run takes a function without arguments, one training step, got {step_fn!r:.80}")
        before = StepState(self.module, self._device)
        try:
            with self.step(n_samples):
                return step_fn()
        except BudgetExceeded:
            before.restore()
        with self.step(n_samples):
            return step_fn()

    def _fixed_bytes(self) -> int:
        """Return what stays on the device beside saved storages."""
        return max(self._own_bytes, self._outside_bytes)

    def _does_nothing(self) -> bool:
        broken = self._tier.broken and f"tier {self._tier.name}: {self._tier.broken}"
        reason = unhookable(self.module, self._device) or broken
        if reason and reason != self.reason:
            warn(f"swapping does nothing from now on: {reason}")
        self.reason = reason
        return bool(reason)

    def _new_recording(self) -> Recording:
        return Recording(self._tape, self._attribution, self._recipes, self._peak)

    def _action(self, key: RowKey) -> Action:
        if self._chooser.plan is None:
            return KEEP if self._chooser.keeps_all else SWAP
        action = self._chooser.plan.action_of.get(key)
        # Of a block that is made again nothing is seen but what it is called with, which its profile has apart.
        self._step.n_unknown += action is None and key[0] not in self._chooser.plan.blocks
        return KEEP if action is None or action == BLOCK else action

    def _entered(self, call: Call) -> None:
        with self._tape.own_time():
            self._tape.part()
            self._recipes.entered(call)
            if self._recording is not None:
                self._recording.entered(call)

    def _left(self, call: Call, output: object) -> None:
        with self._tape.own_time():
            self._recipes.left(call, output)
            if self._recording is not None:
                self._recording.left(call, output)
            recognise(self._tape, call, output)

    def _note(self, step: SwapStep, step_s: float) -> None:
        tape = self._tape
        step.n_samples = step.n_samples or self._attribution.n_samples
        step.step_s, step.plan_key = step_s, self._plan.key
        step.n_saved, step.n_packs, step.swapped_bytes = tape.n_saved, tape.n_packs, tape.swapped_bytes
        step.n_fetched, step.stall_s = tape.n_fetched, tape.stall_s
        if self._device.type == "cuda":
            step.peak_bytes = self._peak.read()
        elif self._hooked:
            step.peak_bytes = self._fixed_bytes() + self._meter.peak_bytes
        if self._budget_bytes != self._chooser.memory_budget_bytes:
            self._budget_bytes, self._above = self._chooser.memory_budget_bytes, (0, 0)
        if self._budget_bytes is not None and step.peak_bytes > self._budget_bytes:
            self._above = self._above[0] + 1, max(self._above[1], step.peak_bytes)

    def _profile_of(self, recordings: Recordings) -> SwapProfile:
        profile = profile_of(
            recordings,
            link=link_of(self._tier),
            device_kind=self.device_kind,
            shape_key=shape_key(self.module),
            fixed_bytes=self._fixed_bytes(),
            others=self._tape.others,
        )
        return self._blocks.exact(profile)

    def report(self) -> SwapReport:
        """Return what it does now; printed: a table of the plan with the reason of each row."""
        kept_because = self._tape.others | ({} if self._chooser.plan else self._tape.near)
        return reported(self._chooser, self._step, self._above, self.reason, self._tier.name, kept_because)

    @property
    def device_kind(self) -> str:
        """What the device is called; on the CPU ``cpu``."""
        return torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"

    def close(self) -> None:
        """End the tier's threads; graphs that are still alive can be run."""
        self._followed.close()
        self._tier.close()
