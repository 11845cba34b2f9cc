"""Answer requests for leases, whoever asks: tasks, users' own loops, probes."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from drlnb.records.base import Record
from drlnb.records.columns import leasing
from drlnb.records.ids import Fence
from drlnb.runtime.protocol import Handler, Plain, table

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["Grants"]

#: Ends of leases that are remembered, for holders that ask late.
_ENDS = 256


class Grants:
    """Requests for leases of the broker's pool that wait, and the answers about leases that live."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self._broker = broker
        #: Request -> its answer, once there is one.
        self._answers: dict[str, asyncio.Future[Plain]] = {}
        #: Fence of a lease -> its request, and the settings that it was granted with: the answer is kept as long as
        #: the lease, for whoever asks once more.
        self._granted: dict[Fence, tuple[str, Plain]] = {}
        #: Fence -> why its lease ended.
        self._ends: dict[Fence, str] = {}

    def handlers(self) -> dict[str, Handler]:
        """Return the messages that are answered here."""
        return table(self, "acquire", "renew", "release")

    async def acquire(self, request_id: str, *, wait_s: float | None = None, **asked: object) -> Plain:
        """Wait for slots, at most `wait_s` (None: ``poll_s``); a repeat goes on waiting.

        Parameters
        ----------
        request_id
            Name of the request.
        wait_s
            In seconds.
        asked
            The other fields of :class:`~drlnb.records.columns.leasing.SlotRequested`.
        """
        host, future = self._broker.host, self._answers.get(request_id)
        if future is None or future.done():
            # New; or its answer was lost on the way: the pool repeats the grant, or lines it up again if that expired.
            future = self._answers[request_id] = asyncio.get_running_loop().create_future()
            host.feed(leasing.SlotRequested, request_id=request_id, **asked)
        else:
            host.feed(leasing.RequestPolled, request_id=request_id)
        try:
            patience_s = self._broker.pool.settings.poll_s if wait_s is None else wait_s
            return await asyncio.wait_for(asyncio.shield(future), patience_s)
        except TimeoutError:
            return {"pending": True}

    async def renew(self, fence: Fence) -> Plain:
        """Keep a lease alive; ``lost`` if it is not the holder's any more."""
        refusals = self._broker.host.feed_for(leasing.RequestRefused, leasing.LeaseRenewed, fence=fence)
        return {"lost": self._ends.get(fence) or refusals[0].reason} if refusals else {"ok": True}

    async def release(self, fence: Fence, clean: bool, computed_s: Sequence[float], yielded: bool = False) -> Plain:
        """End a lease that its holder returns."""
        refusals = self._broker.host.feed_for(
            leasing.RequestRefused,
            leasing.LeaseReturned,
            fence=fence,
            clean=clean,
            computed_s=tuple(computed_s),
            yielded=yielded,
        )
        return {"refused": refusals[0].reason} if refusals else {"ok": True}

    def cancel(self, request_id: str, reason: str) -> None:
        """Give up a place in the queue, or a grant that crossed this message."""
        self._broker.host.feed(leasing.RequestCancelled, request_id=request_id, reason=reason)
        self._answers.pop(request_id, None)

    def forget_task(self, name: str) -> None:
        """Give up what a task of the pool waits for."""
        for request in [request for request in self._answers if request.startswith(f"{name}/")]:
            self._answers.pop(request).cancel()

    # ------------------------------------------------------------------ what the pool decides
    def send(self, command: leasing.SendGrant) -> None:
        """Answer a request with its grant."""
        pool, nodes = self._broker.pool, self._broker.nodes
        future = self._answers.get(command.request_id)
        if future is None or future.done():
            future = self._answers[command.request_id] = asyncio.get_running_loop().create_future()
        _, settings = self._granted.setdefault(command.fence, (command.request_id, asdict(pool.settings)))
        future.set_result({
            "fence": command.fence,
            "slots": [nodes.slot_row(slot) for slot in command.slots],
            "waited_s": command.waited_s,
            "demand": command.demand,
            "n_slots": pool.n_slots,
            "resident": pool.is_resident(command.fence),
            # As they were at the grant, however often it is asked for: with a longer time to live than its lease's own,
            # a holder would go on after that has ended.  What changes counts from the next grant on.
            "settings": settings,
        })

    def on_record(self, record: Record) -> None:
        """Answer who waits for a request that the pool has ended; forget the answer about a lease that is over."""
        if isinstance(record, leasing.RequestRefused):
            future = self._answers.pop(record.subject, None)
            if future is not None and not future.done():
                future.set_result({"refused": record.reason, "final": record.final})
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired | leasing.RevokeLease):
            self._answers.pop(self._granted.pop(record.fence, ("", {}))[0], None)
            # The revocation that follows an expiry has its reason.
            self._ends[record.fence] = self._ends.get(record.fence) or str(getattr(record, "reason", ""))
            while len(self._ends) > _ENDS:
                del self._ends[next(iter(self._ends))]
