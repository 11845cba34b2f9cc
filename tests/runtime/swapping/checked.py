"""Streams of the CPU that prove an order: they run late and in any order that events allow, and find each race.

Every stream has a vector clock.  Each access to memory is remembered with the clock of its stream; two accesses of the
same bytes, one of them a write, must be ordered by events whatever the delays are, or :class:`RaceFound` is raised.
Copies really happen, as late as a seeded generator says, and memory that was dropped is overwritten, so that a wrong
order also gives wrong numbers.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from drlnb.runtime.swapping.tiers.streams import Side
from drlnb.runtime.swapping.torch_private import StorageRef

__all__ = ["CheckedStreams", "RaceFound"]

#: Seconds of virtual time that a copy takes per byte, and what memory holds that was dropped.
_S_PER_BYTE, _POISON = 1e-9, 0xA5
_SIDES: tuple[Side, ...] = (None, "out", "back")
_Clock = tuple[int, ...]


class RaceFound(RuntimeError):
    """Two accesses of the same memory are not ordered: on a device they could overlap."""


@dataclass(eq=False, slots=True)
class _Event:
    """What a stream had been given when it was recorded."""

    clock: _Clock
    side: Side
    position: int
    at_s: float


@dataclass(frozen=True, slots=True)
class _Access:
    start: int
    end: int
    writes: bool
    side: int
    tick: int


class CheckedStreams:
    """Three streams on the CPU; the computing one is the caller, who never waits.

    Parameters
    ----------
    seed
        Of the delays.
    host_bytes
        So much of the host's memory can be had.
    """

    def __init__(self, seed: int = 0, host_bytes: float = math.inf) -> None:
        self._host_bytes, self.n_given_back = host_bytes, 0
        self._pieces: list[tuple[StorageRef, int]] = []
        self._random = np.random.default_rng(seed)
        self._clocks = [[0] * len(_SIDES) for _ in _SIDES]
        self._queues: dict[Side, deque[tuple[int, Callable[[], object], _Event | None]]] = {
            "out": deque(),
            "back": deque(),
        }
        self._given, self._ran = {"out": 0, "back": 0}, {"out": 0, "back": 0}
        self._accesses: list[_Access] = []
        self._forgiven = False
        #: Seconds of virtual time on each stream.
        self.now_s: dict[Side, float] = dict.fromkeys(_SIDES, 0.0)

    def piece(self, n_bytes: int) -> torch.Tensor | None:
        """Return memory of the CPU, poisoned, as long as there is some."""
        if self.pinned_bytes + n_bytes > self._host_bytes:
            return None
        memory = _poisoned(n_bytes)
        self._pieces.append((StorageRef(memory.untyped_storage()), n_bytes))
        return memory

    @property
    def pinned_bytes(self) -> int:
        """Bytes of pieces that something refers to."""
        return sum(n_bytes for ref, n_bytes in self._pieces if not ref.expired())

    def give_back(self) -> None:
        """Count how often that is asked for."""
        self.n_given_back += 1

    def empty(self, n_bytes: int) -> torch.Tensor:
        """Return poisoned memory: its last user on the computing stream has just written it, as it were."""
        memory = _poisoned(n_bytes)
        self._accesses = [each for each in self._accesses if not _overlap(each, memory) or each.side]
        self.touch(memory, writes=True)
        return memory

    def touch(self, memory: torch.Tensor, *, writes: bool, side: Side = None) -> None:
        """Check an access by a stream against all before it.

        Raises
        ------
        RaceFound
            If one of them is not ordered before it.
        """
        number = _SIDES.index(side)
        clock = self._clocks[number]
        clock[number] += 1
        start = memory.data_ptr()
        for each in self._accesses:
            if self._forgiven:
                continue
            if (writes or each.writes) and _overlap(each, memory) and clock[each.side] < each.tick:
                kinds = ["reads", "writes"]
                raise RaceFound(
                    f"stream {side or 'compute'} {kinds[writes]} {memory.numel()} bytes that stream "
                    f"{_SIDES[each.side] or 'compute'} {kinds[each.writes]} in no order"
                )
        self._accesses.append(_Access(start, start + memory.numel(), writes, number, clock[number]))

    def record(self, side: Side) -> _Event:
        """Remember how far a stream is."""
        self._stumble()
        known = [min(clock[number] for clock in self._clocks) for number in range(len(_SIDES))]
        self._accesses = [each for each in self._accesses if each.tick > known[each.side]]  # others can race no more
        clock = tuple(self._clocks[_SIDES.index(side)])
        return _Event(clock, side, self._given[side] if side else 0, self.now_s[side])

    def wait(self, side: Side, event: object) -> None:
        """Order what comes after an event; the computing stream, which runs at once, has it happen now."""
        if not isinstance(event, _Event):
            raise TypeError(f"not an event of these streams: {event!r}")
        number = _SIDES.index(side)
        self._clocks[number] = [max(pair) for pair in zip(self._clocks[number], event.clock, strict=True)]
        self.now_s[side] = max(self.now_s[side], event.at_s)
        if side is None:
            self._run_to(event)
        else:
            self._give(side, lambda: None, event)

    def done(self, event: object) -> bool:
        """Return whether an event has happened, by chance a little later than before."""
        self._stumble()
        return isinstance(event, _Event) and (event.side is None or self._ran[event.side] >= event.position)

    def copy(self, side: Side, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy later."""
        self.touch(source, writes=False, side=side)
        self.touch(target, writes=True, side=side)
        self.now_s[side] += source.numel() * _S_PER_BYTE
        self._give(side, lambda: target.copy_(source), None)

    def seconds(self, began: object, ended: object) -> float:
        """Return virtual seconds."""
        return ended.at_s - began.at_s if isinstance(began, _Event) and isinstance(ended, _Event) else 0.0

    def drop(self, memory: torch.Tensor) -> None:
        """Check that the computing stream may write the memory from now on."""
        self.touch(memory, writes=True)
        self._accesses = [each for each in self._accesses if not _overlap(each, memory)]

    def forgive(self) -> None:
        """Find no race any more: a test that found its own goes on to clean up."""
        self._forgiven = True

    def _give(self, side: Side, work: Callable[[], object], after: _Event | None) -> None:
        if side is None:
            work()
            return
        self._queues[side].append((len(self._queues[side]), work, after))
        self._given[side] += 1

    def _run_one(self, side: Side) -> None:
        if side is None:
            return
        _, work, after = self._queues[side].popleft()
        if after is not None:
            self._run_to(after)
        work()
        self._ran[side] += 1

    def _run_to(self, event: _Event) -> None:
        while event.side is not None and self._ran[event.side] < event.position:
            self._run_one(event.side)

    def _stumble(self) -> None:
        """Run some of what waits, or nothing."""
        for side, queue in self._queues.items():
            for _ in range(self._random.integers(0, 3)):
                if queue:
                    self._run_one(side)


def _poisoned(n_bytes: int) -> torch.Tensor:
    return torch.full((n_bytes,), _POISON, dtype=torch.uint8)


def _overlap(access: _Access, memory: torch.Tensor) -> bool:
    start = memory.data_ptr()
    return access.start < start + memory.numel() and start < access.end
