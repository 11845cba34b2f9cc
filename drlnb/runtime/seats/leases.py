"""How does a probe hold a device's slots?  By leases of the same pool: asked for, renewed, returned like anyone's."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drlnb.records.base import Record
from drlnb.records.columns import leasing, placement
from drlnb.records.ids import Fence

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["SeatLeases"]

#: First half of the probe's name in the pool, before the device's: ``seats/<device>``.
_OWN = "seats/"
#: Ahead of the queue by so many steps of priority: a probe is short, and rare.
_PRIORITY = 10


class SeatLeases:
    """The leases of the probes of one cluster.

    Parameters
    ----------
    broker
        Whose pool.
    """

    def __init__(self, broker: "BrokerPlugin") -> None:
        self._broker = broker
        self._n = 0
        #: Request -> its slot and its grant.
        self._asked: dict[str, tuple[str, asyncio.Future[Fence | None]]] = {}
        #: Slot -> fence of the lease that holds it for us; request of a fence.
        self._held: dict[str, Fence] = {}
        self._renewals: dict[str, asyncio.Task[None]] = {}

    def owns(self, task: str) -> bool:
        """Whether a pool's task is a probe."""
        return task.startswith(_OWN)

    def holds(self, slots: Sequence[str]) -> bool:
        """Whether we hold every one of some slots."""
        return all(slot in self._held for slot in slots)

    def fences(self, slots: Sequence[str]) -> Mapping[str, tuple[int, int]]:
        """Return the fences of those slots that we hold."""
        return {slot: (fence.epoch, fence.token) for slot in slots if (fence := self._held.get(slot)) is not None}

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
        fence = None
        while fence is None:
            self._n += 1
            request = f"{_OWN}{device}/{self._n}"
            future: asyncio.Future[Fence | None] = asyncio.get_running_loop().create_future()
            self._asked[request] = slot, future
            self._broker.host.feed(
                leasing.SlotRequested,
                request_id=request,
                task=_OWN + device,
                attempt=1,
                round=self._n,
                node="",
                priority=_PRIORITY,
                allowed=(slot,),
            )
            fence = await self._granted(request, future)
        if device not in self._renewals:
            self._renewals[device] = asyncio.get_running_loop().create_task(self._renew(device))

    async def _granted(self, request: str, future: "asyncio.Future[Fence | None]") -> Fence | None:
        """Wait for a grant, telling the pool now and then that we still do; None if it was refused."""
        try:
            while True:
                try:
                    return await asyncio.wait_for(asyncio.shield(future), self._broker.pool.settings.poll_s)
                except TimeoutError:
                    self._broker.host.feed(leasing.RequestPolled, request_id=request)
        except ConnectionError:
            self._broker.host.feed(leasing.RequestCancelled, request_id=request, reason="its node is gone")
            raise
        finally:
            self._asked.pop(request, None)
            self._broker.forget_grant(request)

    def hear(self, record: Record) -> None:
        """Take note of what the pool says of our requests and leases."""
        if isinstance(record, leasing.LeaseGranted) and self.owns(record.task):
            self._held.update(dict.fromkeys(record.slots, record.fence))
            self._answer(record.request_id, record.fence)
        elif isinstance(record, leasing.RequestRefused):
            self._answer(record.subject, None)
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired) and self.owns(record.task):
            for slot in record.slots:
                if self._held.get(slot) == record.fence:
                    del self._held[slot]
        elif isinstance(record, placement.NodeLost):
            for slot, future in self._asked.values():
                if slot.partition("/")[0] == record.node and not future.done():
                    future.set_exception(ConnectionError(f"node {record.node} is gone"))

    def _answer(self, request: str, fence: Fence | None) -> None:
        _, future = self._asked.get(request, ("", None))
        if future is not None and not future.done():
            future.set_result(fence)

    async def _renew(self, device: str) -> None:
        while True:
            await asyncio.sleep(self._broker.pool.settings.renew_s)
            for fence in [fence for slot, fence in self._held.items() if slot.rpartition("/")[0] == device]:
                self._broker.host.feed(leasing.LeaseRenewed, fence=fence, n_progress=0)

    def give_back_slot(self, slot: str) -> None:
        """Return the lease of a slot; nothing of us runs there."""
        fence = self._held.get(slot)
        if fence is not None:
            self._broker.host.feed(leasing.LeaseReturned, fence=fence, clean=True, computed_s=0.0)

    def give_back(self, device: str) -> None:
        """Return every lease of a device."""
        renewal = self._renewals.pop(device, None)
        if renewal is not None:
            renewal.cancel()
        for slot in [slot for slot in self._held if slot.rpartition("/")[0] == device]:
            self.give_back_slot(slot)

    def close(self) -> None:
        """Renew nothing any more."""
        renewals: list[Any] = list(self._renewals.values())
        for renewal in renewals:
            renewal.cancel()
        self._renewals.clear()
