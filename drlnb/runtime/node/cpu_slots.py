"""Lend a node's CPU slots to its collectors, in the order of asking: so many act, or start, at the same time."""

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["CpuSlots", "n_cpus"]


def n_cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuSlots:
    """The CPU slots of one node; its event loop only.

    Parameters
    ----------
    n_slots
        How many it lends, at least 1.
    """

    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.n_held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[float]:
        """Hold a slot once it is one's turn; yield the seconds waited, 0 if none."""
        waited_s = 0.0
        if self.n_held < self.n_slots:
            self.n_held += 1
        else:
            waited_s = await self._turn()
        try:
            yield waited_s
        finally:
            self.n_held -= 1
            self._lend()

    async def _turn(self) -> float:
        """Wait for a slot, which is held then; return the seconds."""
        began, turn = time.perf_counter(), asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came at the same moment
                self.n_held -= 1
                self._lend()
            raise
        return time.perf_counter() - began

    def resize(self, n_slots: int) -> None:
        """Lend another number from now on; who has a slot keeps it until it is done."""
        self.n_slots = n_slots
        self._lend()

    def _lend(self) -> None:
        while self._waiting and self.n_held < self.n_slots:
            turn = self._waiting.popleft()
            if not turn.done():
                self.n_held += 1
                turn.set_result(None)
