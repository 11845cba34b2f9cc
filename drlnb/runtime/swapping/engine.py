"""Run training steps of any module under a byte budget: :class:`Swapper`."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch.autograd.graph import saved_tensors_hooks

from drlnb.planning.registry import Planner
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.planner import SwapView
from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, Action, RowKey, SwapPlan, SwapProfile
from drlnb.runtime.swapping.attribution import Attribution, Call
from drlnb.runtime.swapping.blocks.runs import Blocks
from drlnb.runtime.swapping.choose import Chooser
from drlnb.runtime.swapping.derive import Recipes
from drlnb.runtime.swapping.measure import Recorded, Recording, Recordings, link_of, profile_of
from drlnb.runtime.swapping.memory import DevicePeak, StepState, budget_problem, device_of, shape_key, storages_of
from drlnb.runtime.swapping.report import BudgetExceeded, SwapReport, SwapStep
from drlnb.runtime.swapping.saved import given_back
from drlnb.runtime.swapping.solve import read_budget
from drlnb.runtime.swapping.squeeze import recognise, squeeze
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.tiers.base import Meter, Tier
from drlnb.runtime.swapping.tiers.file import IN_FLIGHT_BYTES
from drlnb.runtime.swapping.tiers.made import made_tier
from drlnb.runtime.swapping.torch_private import compiled, transforms_allowed

__all__ = ["FIRST_STEPS", "Swapper"]

_T = TypeVar("_T")
#: Smallest storages that are moved: below, a copy's start costs more (TransformerEngine: 256 Ki elements).
_MIN_BYTES = {"cpu": 64 << 10, "cuda": 1 << 20}
#: Steps that swap everything before the one that is recorded: the optimiser's state appears in the first.
_COLD_STEPS = 1
#: Steps of each batch that a profile is made of: the first one of a size has more to do, and others use the machine.
_RECORDED = 3
FIRST_STEPS = _COLD_STEPS + _RECORDED  #: Steps until a plan is followed.


class Swapper:
    """Keeps the training steps of a module within a budget, with the gradients of plain PyTorch, bit by bit.

    The first steps swap everything that is large enough; three of them are recorded, and then the planner chooses.

    Parameters
    ----------
    module
        The model, on one device.
    budget
        Bytes that a step may use, as a number or a text such as ``8GiB``: on CUDA of the device's memory; on the CPU
        for parameters, gradients, buffers and what autograd saves.  None: any number.
    planner
        Name of a planner, with parameters (``hybrid:actions=swap``), or a planner, or what chooses in its place;
        ``all`` and ``none`` need no profile.
    tier
        Where storages go: ``auto``, ``file`` (the CPU's), ``cuda``, or a tier that the caller makes and closes.
    seed
        Of a planner's random moves.
    min_bytes
        Smaller storages stay; None: 64 KiB on the CPU, 1 MiB on CUDA.
    folder
        Where the file tier's file is; None: where temporary files go.

    Raises
    ------
    TypeError
        If it is not a module.
    ValueError
        If the budget cannot be read or is below the module's own size, the planner is unknown, or the module is on
        several devices.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        budget: str | int | None = None,
        planner: str | Planner[SwapView, SwapPlan] | Chooser = "auto",
        tier: str | Callable[[Meter], Tier] = "auto",
        seed: int = 0,
        min_bytes: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"swapping needs a torch.nn.Module, got {type(module).__name__}")
        self.module, self._device = module, device_of(module)
        self._chooser = planner if isinstance(planner, Chooser) else Chooser(planner, seed)
        self.set_budget(budget)
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
        self._reason, self._n_steps, self._open, self._step, self._hooked = "", 0, False, SwapStep(), False

    @contextmanager
    def step(self, n_samples: int | None = None) -> Iterator[SwapStep]:
        """Run the training step inside the ``with`` block under the plan.

        Parameters
        ----------
        n_samples
            Samples of the step; None: the leading size of the first tensor that the module is called with.

        Raises
        ------
        RuntimeError
            If a step is open already.
        BudgetExceeded
            If the device had too little memory; the next step runs under the plan of the smallest peak.
        """
        if self._open:
            raise RuntimeError("a step is open already: steps do not nest")
        self._step = step = SwapStep(n_samples)
        if self._does_nothing():
            yield step
            return
        recording = self._new_recording() if self._chooser.needs_profile and self._n_steps >= _COLD_STEPS else None
        began_s = self._meter.settle()
        self._tape.gap_copies = 0.0 if self._chooser.plan else self._chooser.gap_copies
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
        elif n := step.n_samples:
            self._recorded.append((n, (recording, recording.ticks())))
            if len(self._recorded) == _RECORDED:
                alike, self._recorded = [recorded for size, recorded in self._recorded if size == n], []
                self._chooser.take(self._profile_of({n: alike}), n)

    @contextmanager
    def _hooks(self, recording: Recording | None) -> Iterator[None]:
        counts = recording is None and self._chooser.keeps_all
        asked = self._chooser.budget_bytes or self._chooser.plan or self._chooser.name == "none"
        self._hooked = bool(asked or not counts)
        pinned, self._own_bytes = storages_of(self.module)
        self._tape.begin(pinned, counts=counts)
        self._recipes.begin(wanted=recording is not None or DERIVE in self._chooser.current.actions)
        self._recording = self._tape.watch = recording
        if self._device.type == "cuda":
            self._peak.restart()
            self._outside_bytes = torch.cuda.memory_allocated(self._device) - self._meter.n_bytes
        self._meter.restart()
        self._meter.limit_bytes = math.inf
        if self._chooser.budget_bytes is not None:
            self._meter.limit_bytes = self._chooser.budget_bytes - self._fixed_bytes()
        try:
            with ExitStack() as stack:
                stack.enter_context(self._blocks.open(self._chooser.current.blocks, tries=recording is not None))
                stack.enter_context(self._attribution.size_alone() if counts else self._attribution)
                hooks = (self._tape.count, given_back) if counts else (self._tape.pack, self._tape.unpack)
                if self._hooked:
                    stack.enter_context(transforms_allowed())
                    stack.enter_context(saved_tensors_hooks(*hooks))
                yield
            if counts and self._chooser.plan:
                known = len(self._chooser.plan.keys) + len(self._tape.others)
                self._step.n_unknown = max(0, self._tape.n_saved - known)
            self._step.n_unknown += self._blocks.n_left_alone(self._chooser.current.blocks)
        finally:
            self._recording = self._tape.watch = None
            self._recipes.begin(wanted=False)

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
        BudgetExceeded
            If the memory does not suffice either way.
        """
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
        if compiled(self.module):
            reason = "the module is compiled: hooks of saved tensors would break its code"
        elif self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            reason = "the step is recorded into a CUDA graph"
        else:
            reason = self._tier.broken and f"tier {self._tier.name}: {self._tier.broken}"
        if reason and reason != self._reason:
            warnings.warn(f"swapping does nothing from now on: {reason}", RuntimeWarning, stacklevel=4)
        self._reason = reason
        return bool(reason)

    def _new_recording(self) -> Recording:
        def transient_bytes() -> float:
            return self._peak.beyond(self._fixed_bytes() + self._meter.n_bytes)

        return Recording(self._tape, self._attribution, self._recipes, transient_bytes)

    def _action(self, key: RowKey) -> Action:
        if self._chooser.plan is None:
            return KEEP if self._chooser.keeps_all else SWAP
        action = self._chooser.plan.action_of.get(key)
        if action is None:
            self._step.n_unknown += 1
        return KEEP if action is None or action == BLOCK else action  # a block's rows are not seen but for its input

    def _entered(self, call: Call) -> None:
        self._tape.part()
        self._recipes.entered(call)
        if self._recording is not None:
            self._recording.entered(call)

    def _left(self, call: Call, output: object) -> None:
        self._recipes.left(call, output)
        if self._recording is not None:
            self._recording.left(call, output)
        recognise(self._tape, call, output)

    def _note(self, step: SwapStep, step_s: float) -> None:
        tape = self._tape
        step.n_samples = step.n_samples or self._attribution.n_samples
        step.step_s, step.plan_key = step_s, self._chooser.current.key
        step.n_saved, step.n_packs, step.swapped_bytes = tape.n_saved, tape.n_packs, tape.swapped_bytes
        step.n_fetched, step.stall_s = tape.n_fetched, tape.stall_s
        if self._device.type == "cuda":
            step.peak_bytes = self._peak.read()
        elif self._hooked:
            step.peak_bytes = self._fixed_bytes() + self._meter.peak_bytes

    def profile(self, step_fn: Callable[[int], object], batches: Sequence[int]) -> SwapProfile:
        """Record three steps of one or two batch sizes each, and return the profile; no plan changes.

        Parameters
        ----------
        step_fn
            Makes one training step of the given number of samples.
        batches
            One or two numbers of samples; small ones do.

        Raises
        ------
        ValueError
            If the steps save different tensors, or the numbers are wrong.
        """
        if not 1 <= len(batches) <= 2 or min(batches) < 1:
            raise ValueError(f"batches must be one or two numbers of samples, got {tuple(batches)}")
        chooser, recordings = self._chooser, dict[int, list[Recorded]]()
        before = chooser.plan, chooser.is_given
        chooser.plan, chooser.is_given = SwapPlan(), True  # these steps are recorded here, and keep everything
        try:
            for n_samples in [*batches] * _RECORDED:
                self._recording = recording = self._new_recording()
                with self.step(n_samples):
                    step_fn(n_samples)
                    recordings.setdefault(n_samples, []).append((recording, recording.ticks()))
        finally:
            chooser.plan, chooser.is_given = before
            self._recording = None
        chooser.profile = self._profile_of(recordings)
        return chooser.profile

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

    def apply(self, plan: SwapPlan) -> None:
        """Follow a plan from the next step on, whatever the planner says.

        Parameters
        ----------
        plan
            Of a profile of this module.

        Raises
        ------
        ValueError
            If it is of other rows than this module's profile, or cuts the minibatch, which the step must do itself.
        """
        self._chooser.give(plan)

    def set_budget(self, budget: str | int | None) -> None:
        """Change the budget from the next step on.

        Parameters
        ----------
        budget
            As at construction.

        Raises
        ------
        ValueError
            If it cannot be read, or is below the module's own size.
        """
        n_bytes = None if budget is None else read_budget(budget)
        if problem := budget_problem(self.module, n_bytes):
            raise ValueError(problem)
        self._chooser.set_budget(n_bytes)

    def report(self) -> SwapReport:
        """Return what it does now; printed: a table of the plan with the reason of each row."""
        chooser, plan, n_samples = self._chooser, self._chooser.current, self._step.n_samples
        known = chooser.profile if n_samples and plan.keys else None
        predicted = predict(known, plan, n_samples or 0, chooser.budget_bytes) if known else None
        return SwapReport(
            active=not self._reason,
            reason=self._reason,
            tier=self._tier.name,
            budget_bytes=chooser.budget_bytes,
            planner=chooser.name,
            plan=plan,
            profile=chooser.profile,
            predicted=predicted,
            step=replace(self._step),
            kept_because=self._tape.others | ({} if chooser.plan else self._tape.near),
        )

    def save(self, path: str | Path) -> None:
        """Write profile and plan to a path, a line of JSON each.

        Raises
        ------
        ValueError
            If there is no profile yet.
        """
        self._chooser.save(Path(path))

    def load(self, path: str | Path) -> None:
        """Read what :meth:`save` has written to a path, and follow its plan.

        Raises
        ------
        ValueError
            If the file cannot be read, or is of another module.
        """
        self._chooser.load(Path(path), shape_key(self.module))

    @property
    def device_kind(self) -> str:
        """What the device is called; on the CPU ``cpu``."""
        return torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"

    def close(self) -> None:
        """End the tier's threads; graphs that are still alive can be run."""
        self._tier.close()

    def __enter__(self) -> "Swapper":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
