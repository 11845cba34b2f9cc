"""Keep the training steps of any module within a budget of bytes: :class:`Swapper`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from drlnb.planning.registry import Planner
from drlnb.planning.swapping.planner import SwapView
from drlnb.planning.swapping.profile import SwapPlan, SwapProfile
from drlnb.records.attributes import fixed
from drlnb.runtime.swapping.client.choose import OwnChooser
from drlnb.runtime.swapping.client.solve import read_budget
from drlnb.runtime.swapping.engine import RECORDED, Engine
from drlnb.runtime.swapping.measure import Recorded
from drlnb.runtime.swapping.memory import budget_problem, fix_malloc, shape_key
from drlnb.runtime.swapping.tiers.base import Meter, Tier

__all__ = ["Swapper"]


@fixed("reason")
class Swapper(Engine):
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
        Name of a planner, with parameters (``hybrid:actions=swap``), or a planner; ``all`` and ``none`` need no
        profile.
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

    module: torch.nn.Module
    reason: str  # why nothing is swapped; empty if something is

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        budget: str | int | None = None,
        planner: str | Planner[SwapView, SwapPlan] = "auto",
        tier: str | Callable[[Meter], Tier] = "auto",
        seed: int = 0,
        min_bytes: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"swapping needs a torch.nn.Module, got {type(module).__name__}")
        if min_bytes is not None and (not isinstance(min_bytes, int) or min_bytes < 0):
            raise ValueError(f"min_bytes must be a whole number from 0 up, or None, got {min_bytes!r}")
        self._own = OwnChooser(planner, seed)
        super().__init__(module, self._own, tier=tier, min_bytes=min_bytes, folder=folder)
        self.set_budget(budget)

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
        TypeError
            If it is no function.
        ValueError
            If the steps save different tensors, or the numbers are wrong.
        """
        if not callable(step_fn):
            raise TypeError(f"step_fn must be a function of a number of samples, got {step_fn!r}")
        sized = isinstance(batches, Sequence) and all(isinstance(n, int) and n > 0 for n in batches)
        if not sized or not 1 <= len(batches) <= 2:
            raise ValueError(f"batches must be one or two numbers of samples, got {batches!r}")
        chooser, recordings = self._own, dict[int, list[Recorded]]()
        before = chooser.plan, chooser.is_given
        chooser.plan, chooser.is_given = SwapPlan(), True  # these steps are recorded here, and keep everything
        try:
            for n_samples in [*batches] * RECORDED:
                self._recording = recording = self._new_recording()
                with self.step(n_samples):
                    step_fn(n_samples)
                    recordings.setdefault(n_samples, []).append((recording, recording.ticks()))
        finally:
            chooser.plan, chooser.is_given = before
            self._recording = None
        chooser.profile = self._profile_of(recordings)
        return chooser.profile

    def apply(self, plan: SwapPlan) -> None:
        """Follow a plan from the next step on, whatever the planner says.

        Parameters
        ----------
        plan
            Of a profile of this module.

        Raises
        ------
        TypeError
            If it is no plan.
        ValueError
            If it is of other rows than this module's profile.
        """
        self._own.give(plan)

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
        if n_bytes is not None and self._device.type == "cpu":
            fix_malloc()
        self._own.set_budget(n_bytes)

    def save(self, path: str | Path) -> None:
        """Write profile and plan to a path, a line of JSON each.

        Raises
        ------
        ValueError
            If there is no profile yet.
        """
        self._own.save(path)

    def load(self, path: str | Path) -> None:
        """Read what :meth:`save` has written to a path, and follow its plan.

        Raises
        ------
        ValueError
            If the file cannot be read, or is of another module.
        """
        self._own.load(path, shape_key(self.module))

    def __enter__(self) -> "Swapper":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
