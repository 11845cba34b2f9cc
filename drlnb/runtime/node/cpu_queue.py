"""Lend a node's CPU slots to its collectors: the queue of planning, with futures for those who wait."""

import asyncio
import os
import time
from collections.abc import Callable

from drlnb.planning.warmup.cpu_slots import CpuSlots, Place, Who

__all__ = ["CpuQueue", "n_cpus"]

#: Whether it waits until it may act, and what is set then.
_Waiter = tuple[bool, "asyncio.Future[None]"]


def n_cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuQueue:
    """The CPU slots of one node; its event loop only.

    Parameters
    ----------
    n_slots
        How many it lends, at least 1.
    """

    def __init__(self, n_slots: int) -> None:
        self.slots = CpuSlots(n_slots)
        #: Number of a place -> who waits for its slot.
        self._waiters: dict[int, list[_Waiter]] = {}

    async def act(self, who: Who, attempt: int, round: int) -> tuple[Place, float]:
        """Wait until a collector has a slot and may act; return its place and the seconds waited, 0 if none.

        Raises
        ------
        ConnectionError
            If its process ends first, or a later attempt of its task has asked.
        """
        place = self._claim(who, attempt, round, acts=True)
        return place, await self._lent(place, acts=True)

    async def ahead(self, who: Who, attempt: int, round: int) -> float:
        """Wait until a collector has a slot ahead of its parameters, or acts; return the seconds waited, 0 if none.

        Raises
        ------
        ConnectionError
            As of :meth:`act`, and if it has sent that round already.
        """
        return await self._lent(self._claim(who, attempt, round, acts=False), acts=False)

    def rest(self, place: Place) -> None:
        """Mark that a collector whose process is up waits for its parameters; its slot may be taken from it."""
        self.slots.rest(place)
        self._wake()

    def sent(self, place: Place, *, keeps: bool = False) -> bool:
        """Get a slot back; return whether it is kept instead."""
        kept = self.slots.sent(place, keeps=keeps)
        self._wake()
        return kept

    def leave_idle(self, who: Who) -> None:
        """Revoke a start ahead, or a slot that was kept."""
        self._forget(lambda: self.slots.leave_idle(who))

    def leave(self, who: Who) -> None:
        """Revoke everything of a collector whose process has ended."""
        self._forget(lambda: self.slots.leave(who))

    def leave_all(self, meant: Callable[[Who, int], bool]) -> None:
        """Revoke everything of those for whose (name, attempt) `meant` holds."""
        self._forget(lambda: self.slots.leave_all(meant))

    def resize(self, n_slots: int) -> None:
        """Lend another number of slots from now on."""
        self._forget(lambda: self.slots.resize(n_slots))

    # ------------------------------------------------------------------ waiting
    def _claim(self, who: Who, attempt: int, round: int, *, acts: bool) -> Place:
        place = self.slots.claim(who, attempt=attempt, round=round, acts=acts)
        self._forget(lambda: None)  # an attempt before this one may have had a place
        if place is None:
            raise ConnectionError(f"collector {who[1]}#{who[2]} asks too late for round {round}")
        return place

    async def _lent(self, place: Place, *, acts: bool) -> float:
        if place.acts or (place.holds and not acts):
            return 0.0
        began = time.perf_counter()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(place.number, []).append((acts, future))
        try:
            await future
        except asyncio.CancelledError:
            # Its master has ended: nobody would give the slot back.
            (self.leave if acts else self.leave_idle)(place.who)
            raise
        return time.perf_counter() - began

    def _wake(self) -> None:
        """Wake those who were lent a slot."""
        for place in self.slots.take_lent():
            if not place.holds:
                continue  # taken back again before anybody knew of it
            waiters = self._waiters.pop(place.number, [])
            if left := [waiter for waiter in waiters if waiter[0] and not place.acts]:
                self._waiters[place.number] = left
            for acts, future in waiters:
                if (place.acts or not acts) and not future.done():
                    future.set_result(None)

    def _forget(self, change: Callable[[], object]) -> None:
        """Carry out what may take places away, and wake who waits in vain."""
        change()
        there = {place.number for place in self.slots.places.values()}
        for number in [number for number in self._waiters if number not in there]:
            for _, future in self._waiters.pop(number):
                if not future.done():
                    future.set_exception(ConnectionError("its process ended while it waited for a CPU slot"))
        self._wake()
