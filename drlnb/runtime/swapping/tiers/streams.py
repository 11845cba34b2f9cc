"""Copy on streams: the order that a slab tier asks for, in one form for CUDA and one that checks it.

A *stream* runs what it is given one after another; streams know nothing of each other but for events.  ``None`` is the
stream that the caller computes on, asked for anew each time: a backward pass on CUDA runs in a thread of its own.
"""

from typing import Literal, Protocol

import torch

from drlnb.runtime.swapping.tiers.host import host_memory
from drlnb.runtime.swapping.torch_private import free_pinned

__all__ = ["CudaStreams", "Side", "Streams"]

#: The stream of copies out, that of copies back; None: the one on which the caller computes.
Side = Literal["out", "back"] | None
#: Share of the host's memory, or of the container's, that stays available when more is pinned, whoever has the rest.
_LEFT_FRAC = 0.25


class Streams(Protocol):
    """Three streams, memory on the device, and memory on the host."""

    def piece(self, n_bytes: int) -> torch.Tensor | None:
        """Return host memory that copies can reach; shape ``(n_bytes,)``, uint8; None if there is none to be had."""

    def give_back(self) -> None:
        """Have the host get its memory back, as far as nothing refers to it."""

    def empty(self, n_bytes: int) -> torch.Tensor:
        """Return memory of the device, allocated on the computing stream; shape ``(n_bytes,)``, uint8."""

    def record(self, side: Side) -> object:
        """Return an event of all that a stream was given so far."""

    def wait(self, side: Side, event: object) -> None:
        """Have what a stream is given from now on begin after an event."""

    def done(self, event: object) -> bool:
        """Return whether an event has happened."""

    def copy(self, side: Side, target: torch.Tensor, source: torch.Tensor) -> None:
        """Give a stream a copy."""

    def seconds(self, began: object, ended: object) -> float:
        """Return the time between two events that have happened."""

    def drop(self, memory: torch.Tensor) -> None:
        """Declare that memory of the device may be used by whatever the computing stream is given next."""


class CudaStreams:
    """The streams of a CUDA device.

    Parameters
    ----------
    device
        The device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sides = {"out": torch.cuda.Stream(device), "back": torch.cuda.Stream(device)}

    def piece(self, n_bytes: int) -> torch.Tensor | None:
        """Pin memory of the host, unless too little would be left for everybody else."""
        memory = host_memory()
        if memory.available_bytes - n_bytes < _LEFT_FRAC * memory.total_bytes:
            return None
        try:
            return torch.empty(n_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError:  # the driver refuses; where the device is broken, whatever comes next says so
            return None

    def give_back(self) -> None:
        """Empty torch's cache of pinned memory, once the copies are done."""
        for side in self._sides.values():
            side.synchronize()
        free_pinned()

    def empty(self, n_bytes: int) -> torch.Tensor:
        """Allocate from the computing stream's pool: the side streams have none."""
        return torch.empty(n_bytes, dtype=torch.uint8, device=self._device)

    def _stream(self, side: Side) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._device) if side is None else self._sides[side]

    def record(self, side: Side) -> torch.cuda.Event:
        """Record an event with its time."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream(side))
        return event

    def wait(self, side: Side, event: torch.cuda.Event) -> None:
        """Wait on the device; the host goes on."""
        self._stream(side).wait_event(event)

    def done(self, event: torch.cuda.Event) -> bool:
        """Ask the device."""
        return bool(event.query())

    def copy(self, side: Side, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy without waiting."""
        with torch.cuda.stream(self._stream(side)):
            target.copy_(source, non_blocking=True)

    def seconds(self, began: torch.cuda.Event, ended: torch.cuda.Event) -> float:
        """Return what the device measured."""
        return float(began.elapsed_time(ended)) / 1e3

    def drop(self, memory: torch.Tensor) -> None:
        """Nothing is to be said: the allocator gives it to the computing stream only."""
