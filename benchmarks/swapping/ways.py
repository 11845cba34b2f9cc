"""Make training steps of the networks within a number of bytes, by swap plans and by their rivals."""

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from statistics import median
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint_sequential

from benchmarks.swapping.nets import NETS
from drlnb.planning.swapping import SWAPPING, SwapView
from drlnb.runtime.swapping.client.swapper import Swapper
from drlnb.runtime.swapping.report import SwapStep

__all__ = ["WAYS", "OwnOffload", "Way", "in_child", "made", "offloaded", "samples"]

_T = TypeVar("_T")
#: Ways to save memory in a step; ``plain`` saves none, and the last three are planners.
WAYS = ("plain", "save_on_cpu", "offload", "checkpoint", "vdnn_all", "capuchin", "auto")
#: Sources that wait for their copies, and the smallest tensors that are copied (torchtune's numbers).
_STASH, _LEAST_BYTES = 5, 1024
#: Planners that need no profile, or whose plan is whatever is measured best, be it by what they learn.
_ANY_PLAN = ("none", "all", "auto", "qtable")


def in_child(longest_s: float, function: Callable[..., _T], *given: object) -> _T:
    """Return what a function returns in a process of its own, which ends after so many seconds."""
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=signal.alarm, initargs=(int(longest_s),))
    with pool:
        return pool.submit(function, *given).result()


def made(name: str, device: str = "cpu") -> nn.Module:
    """Return a network with the parameters of seed 0."""
    torch.manual_seed(0)
    return NETS[name][0]().to(device)


def samples(name: str, n: int, device: str = "cpu") -> Tensor:
    """Return normal samples for a network; shape ``(n, ...)``."""
    return torch.randn(n, *NETS[name][1], generator=torch.Generator(device).manual_seed(1), device=device)


class OwnOffload(saved_tensors_hooks):  # type: ignore[misc]  # torch is skipped
    """Copies saved tensors to pinned memory on one stream, and back where they are read, as torchtune's hooks do.

    Parameters
    ----------
    device
        Of the tensors; on the CPU they are copied at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._stash: deque[tuple[Tensor, torch.cuda.Event]] = deque()
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> tuple[Tensor, torch.device]:
        if isinstance(tensor, nn.Parameter) or tensor.nbytes < _LEAST_BYTES:
            return tensor.detach(), tensor.device
        host = torch.empty_like(tensor, device="cpu", pin_memory=self._stream is not None)
        if self._stream is None:
            return host.copy_(tensor), tensor.device
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            host.copy_(tensor, non_blocking=True)
        self._stash.append((tensor.detach(), self._stream.record_event()))
        self._wait(_STASH)
        return host, tensor.device

    def _wait(self, n_left: int) -> None:
        while len(self._stash) > n_left:
            torch.cuda.current_stream().wait_event(self._stash.popleft()[1])

    def _unpack(self, packed: tuple[Tensor, torch.device]) -> Tensor:
        self._wait(0)
        return packed[0].to(packed[1], non_blocking=True)


def offloaded(device: torch.device) -> tuple[str, Callable[[], AbstractContextManager[object]]]:
    """Return TRL's class for offloading, or ours in its place, each with its name."""
    try:
        return "TRL's OffloadActivations", import_module("trl.models.activation_offloading").OffloadActivations
    except ImportError:
        return "torchtune's OffloadActivations, re-implemented", partial(OwnOffload, device)


class Way:
    """One way to make training steps.

    Parameters
    ----------
    name
        One of :data:`WAYS`, or any planner.
    net
        A sequence of modules.
    cap_bytes
        What a step may use.
    more
        More for the swapper of a planner.
    """

    def __init__(self, name: str, net: nn.Module, cap_bytes: int, **more: object) -> None:
        torch.set_num_threads(1)  # as an executor has; copies to a file have the other cores
        self.net, self._device = net, next(net.parameters()).device
        self.forward: Callable[[Tensor], Tensor] = net
        self._around: Callable[[], AbstractContextManager[object]] = nullcontext
        #: The last step under a planner.
        self.step = SwapStep()
        self._rule = ""  # planner whose plan is still to be followed
        if name == "save_on_cpu":
            self._around = partial(save_on_cpu, pin_memory=self._device.type == "cuda")
        elif name == "offload":
            self._around = offloaded(self._device)[1]
        elif name == "checkpoint":  # by block; where layers follow each other, by about the root of their number
            parts = [part for each in net.children() for part in (each if isinstance(each, nn.Sequential) else (each,))]
            whole = any([*part.children()] for part in parts if not isinstance(part, nn.Sequential))
            n_parts = len(parts) if whole else round(len(parts) ** 0.5)
            self.forward = lambda x: checkpoint_sequential(parts, n_parts, x, use_reentrant=False)
        elif name != "plain":
            self.swapper = Swapper(net, budget=cap_bytes, planner=name, **more)  # type: ignore[arg-type]
            self._around, self._rule = self.swapper.step, name if name.partition(":")[0] not in _ANY_PLAN else ""

    def steps(self, x: Tensor, n_steps: int) -> list[float]:
        """Return the seconds of some steps, each from no gradients and seed 0."""
        seconds = []
        for _ in range(n_steps):
            self.net.zero_grad()
            torch.manual_seed(0)
            began_s = self._now()
            with self._around() as step:
                self.forward(x).float().square().mean().backward()
            seconds.append(self._now() - began_s)
            self.step = step if isinstance(step, SwapStep) else self.step
            if self._rule:
                self._follow()
        return seconds

    def _follow(self) -> None:
        """Follow a rule's plan once there is a profile, even one that does not fit, which a swapper would leave."""
        now = self.swapper.report()
        if now.profile is not None:
            n = self.step.n_samples or 1
            view = SwapView(profile=now.profile, n_samples=n, memory_budget_bytes=now.memory_budget_bytes)
            self.swapper.apply(SWAPPING.ask(SWAPPING.build(self._rule), view))
            self._rule = ""

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def errors(self, steps_s: Sequence[float]) -> tuple[float, float]:
        """Return by which shares the median of some steps and the last one's peak differ from what is predicted."""
        said = self.swapper.report().predicted
        assert said is not None
        return median(steps_s) / said.step_s - 1.0, self.step.peak_bytes / said.peak_bytes - 1.0
