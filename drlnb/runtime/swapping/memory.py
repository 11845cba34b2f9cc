"""Measure and mend what a process holds in memory."""

import ctypes
import random
from collections.abc import Collection
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import torch

from drlnb.records.units import said_bytes
from drlnb.runtime.swapping.torch_private import storage_number, storages_in, submodules

__all__ = [
    "DevicePeak",
    "StepState",
    "allocated",
    "budget_problem",
    "device_of",
    "fix_malloc",
    "fixed_bytes",
    "kept_tensors",
    "shape_key",
    "storages_of",
]

#: ``mallopt``'s name for the size from which memory is mapped and, once freed, given back; and that size.
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 128 << 10


def fix_malloc() -> bool:
    """Have freed tensors leave the process: glibc's threshold would grow to 32 MiB and keep hundreds of MiB of heap.

    Returns
    -------
    bool
        Whether this C library has such a threshold.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES) == 1


def shape_key(module: torch.nn.Module) -> str:
    """Return a name that modules of the same class and parameters have in common."""
    shapes = repr([(name, tuple(each.shape)) for name, each in module.named_parameters()])
    return f"{type(module).__name__}-{sha256(shapes.encode()).hexdigest()[:8]}"


def kept_tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """Return parameters and buffers, each once."""
    kept = dict[int, torch.Tensor]()
    for each in submodules(module):
        for tensor in (*each._parameters.values(), *each._buffers.values()):
            if tensor is not None:
                kept[id(tensor)] = tensor
    return [*kept.values()]


def storages_of(module: torch.nn.Module) -> tuple[Collection[int], int]:
    """Return the numbers of what parameters and buffers are stored in, and :func:`fixed_bytes`."""
    storages, n_bytes = dict[int, int](), 0
    for tensor in kept_tensors(module):
        try:
            parts = [tensor.untyped_storage()]
        except (NotImplementedError, ValueError):  # it is sparse, another library's, or has no shape yet
            parts = storages_in(tensor)
        for storage in parts:
            storages[storage_number(storage)] = storage.nbytes()
        if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad and parts:
            n_bytes += tensor.nbytes
    return storages.keys(), n_bytes + sum(storages.values())


def fixed_bytes(module: torch.nn.Module) -> int:
    """Return the bytes of parameters, their gradients and buffers, each storage once."""
    return storages_of(module)[1]


def budget_problem(module: torch.nn.Module, memory_budget_bytes: float | None) -> str:
    """Return why a module's steps cannot have a budget: it is not above the module's own size; empty if they can."""
    own_bytes = fixed_bytes(module)
    if memory_budget_bytes is None or memory_budget_bytes > own_bytes:
        return ""
    return (
        f"the budget must be above the {said_bytes(own_bytes)} of the module's parameters, gradients and buffers, "
        f"got {said_bytes(memory_budget_bytes)}"
    )


def device_of(module: torch.nn.Module) -> torch.device:
    """Return the device of a module.

    Raises
    ------
    ValueError
        If it is on several.
    """
    devices = {each.device for each in kept_tensors(module)} or {torch.device("cpu")}
    if len(devices) > 1:
        raise ValueError(f"the module must be on one device, it is on {', '.join(sorted(map(str, devices)))}")
    return devices.pop()


class Allocated(NamedTuple):
    """Bytes that torch's allocator of a device has handed out: now, and at most since the last reset; 0 on the CPU."""

    now_bytes: int
    peak_bytes: int


def allocated(device: torch.device) -> Allocated:
    """Ask the allocator; ``torch.cuda.memory_allocated`` sorts all of its statistics at each call, for .1 ms."""
    if device.type != "cuda":
        return Allocated(0, 0)
    found = torch.cuda.memory_stats_as_nested_dict(device).get("allocated_bytes", {}).get("all", {})
    return Allocated(int(found.get("current", 0)), int(found.get("peak", 0)))


class DevicePeak:
    """The most bytes that are allocated on a device; 0 on the CPU, whose allocator does not count.

    Parameters
    ----------
    device
        The device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._most, self._fixed_bytes, self._beyond = device, 0, 0, 0

    def _latest(self) -> int:
        """Return the most since this was last called."""
        if self._device.type != "cuda":
            return 0
        latest = allocated(self._device).peak_bytes
        torch.cuda.reset_peak_memory_stats(self._device)
        self._most = max(self._most, latest)
        return latest

    def restart(self, fixed_bytes: int) -> None:
        """Begin anew, with so many bytes there that stay."""
        self._latest()
        self._most, self._fixed_bytes, self._beyond = 0, fixed_bytes, 0

    def read(self) -> int:
        """Return the most since it began."""
        self._latest()
        return self._most

    def counted(self, n_bytes: int) -> None:
        """Learn how many bytes were counted beside the fixed ones since this was last called; told of each change."""
        self._beyond = max(self._beyond, self._latest() - self._fixed_bytes - n_bytes)

    def skip(self) -> None:
        """Leave out what was on the device since :meth:`counted`."""
        self._latest()

    def beyond(self) -> float:
        """Return by how much the most since this was last asked has exceeded what was counted at that time."""
        beyond, self._beyond = self._beyond, 0
        return float(beyond)


class StepState:
    """What a step changes before its optimiser runs.

    Parameters
    ----------
    module
        Its buffers and frozen parameters are copied.
    device
        Its random numbers are remembered, with torch's on the CPU, Python's and numpy's.
    grads
        Whether its gradients are copied, too; not needed where the step makes them zero.
    """

    def __init__(self, module: torch.nn.Module, device: torch.device, *, grads: bool = True) -> None:
        self._device = device if device.type == "cuda" else None
        self._random = torch.get_rng_state(), torch.cuda.get_rng_state(device) if self._device else None
        self._drawn = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global numbers
        parameters = [*module.parameters()]
        fixed = (*module.buffers(), *[each for each in parameters if not each.requires_grad])
        self._fixed = [(each, each.detach().clone()) for each in fixed]
        self._grads = [(each, None if each.grad is None else each.grad.clone()) for each in parameters if grads]

    def restore(self) -> None:
        """Put it back."""
        random.setstate(self._drawn[0])
        np.random.set_state(self._drawn[1])  # noqa: NPY002
        torch.set_rng_state(self._random[0])
        if self._device:
            torch.cuda.set_rng_state(self._random[1], self._device)
        with torch.no_grad():
            for tensor, kept in self._fixed:
                tensor.copy_(kept)
            for parameter, gradient in self._grads:
                parameter.grad = gradient
