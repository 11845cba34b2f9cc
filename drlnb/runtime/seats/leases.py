"""Hold a device's slots for a probe, by leases of the same pool: asked for, renewed, returned like anyone's."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from drlnb.records.base import Record
from drlnb.records.columns import leasing, placement
from drlnb.records.ids import Fence
from drlnb.runtime.lease import HeldLease, poll
from drlnb.runtime.protocol import RPC_TIMEOUT_S, Plain

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["SeatLeases"]

#: First half of the probe's name in the pool, before the device's: ``seats/<device>``.
_OWN = "seats/"
#: Ahead of the queue by so many steps of priority: a probe is short, and rare.
_PRIORITY = 10


class SeatLeases:
    """The leases of the broker's pool that probes hold."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self._broker = broker
        self._n = 0
        #: Slot that is asked for -> fails when its node is lost.
        self._losses: dict[str, asyncio.Future[None]] = {}
        #: Slot -> the lease that holds it for us.
        self._held: dict[str, HeldLease] = {}

    def holds(self, slots: Sequence[str]) -> bool:
        """Whether we hold every one of some slots."""
        return all(slot in self._held for slot in slots)

    def fences(self, slots: Sequence[str]) -> Mapping[str, Fence]:
        """Return the fences of those slots that we hold."""
        return {slot: self._held[slot].fence for slot in slots if slot in self._held}

    async def take(self, device: str, slots: Sequence[str]) -> None:
        """Wait until we hold some slots of a device, for as long as their holders take.

        Raises
        ------
        ConnectionError
            If the device's node is gone.
        """
        missing = [slot for slot in slots if slot not in self._held]
        await asyncio.gather(*(self._take(device, slot) for slot in missing))

    async def _take(self, device: str, slot: str) -> None:
        lost = self._losses[slot] = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(self._granted(device, slot))
        try:
            await asyncio.wait((asking, lost), return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                lost.result()
            grant = asking.result()
        finally:
            del self._losses[slot]
            lost.cancel()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        self._held[slot] = HeldLease(
            self._ask,
            grant,
            good_t=time.monotonic(),
            progress=lambda: 0,
            on_lost=lambda fence, reason: self._forget(slot, fence),
        )

    async def _granted(self, device: str, slot: str) -> Plain:
        """Ask until a slot is granted; a request that is refused is followed by another one."""
        asked: Plain = {"task": _OWN + device, "attempt": 1, "node": "", "priority": _PRIORITY, "allowed": (slot,)}
        while True:
            self._n += 1
            request = f"{_OWN}{device}/{self._n}"
            try:
                grant = await poll(partial(self._broker.grants.acquire, request, round=self._n, **asked))
            except asyncio.CancelledError:
                self._broker.grants.cancel(request, "its node is gone")
                raise
            if "fence" in grant:
                return grant

    async def _ask(self, op: str, /, *, timeout_s: float = RPC_TIMEOUT_S, **message: object) -> Plain:
        del timeout_s  # there is no way to the pool that takes time
        reply: Plain = await self._broker.grants.handlers()[op](**message)
        return reply

    def on_record(self, record: Record) -> None:
        """Follow what the pool decides about our leases, and which nodes it loses."""
        if isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired) and record.task.startswith(_OWN):
            for slot in record.slots:
                self._forget(slot, record.fence)
        elif isinstance(record, placement.NodeLost):
            for slot, lost in self._losses.items():
                if slot.partition("/")[0] == record.node and not lost.done():
                    lost.set_exception(ConnectionError(f"node {record.node} is gone"))

    def _forget(self, slot: str, fence: Fence) -> None:
        if slot in self._held and self._held[slot].fence == fence:
            self._held.pop(slot).close()

    async def give_back_slot(self, slot: str) -> None:
        """Return the lease of a slot; nothing of us runs there."""
        if slot in self._held:
            await self._held[slot].release(clean=True, computed_s=(0.0,))

    async def give_back(self, device: str) -> None:
        """Return every lease of a device."""
        for slot in [slot for slot in self._held if slot.rpartition("/")[0] == device]:
            await self.give_back_slot(slot)

    def close(self) -> None:
        """Renew nothing any more."""
        for held in self._held.values():
            held.close()
        self._held.clear()
