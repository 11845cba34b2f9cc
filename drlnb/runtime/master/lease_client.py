"""Hold the leases of one task, for its master."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.errors import ConfigError, PeerError
from drlnb.records.ids import Fence
from drlnb.runtime import lease
from drlnb.runtime.lease import HeldLease
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import Plain

__all__ = ["LeaseClient"]

_T = TypeVar("_T")
_OnLost = Callable[[Fence, str], object]


class LeaseClient:
    """The master's side of one task's leases.

    Parameters
    ----------
    link
        Speaks for the node.
    task, attempt
        Whose leases; the task as the pool names it.
    settings
        Times of leasing.
    on_lost
        Called with (fence, reason) when a lease ends before it is returned.
    """

    def __init__(self, link: Link, task: str, attempt: int, settings: LeasingSettings, on_lost: _OnLost) -> None:
        self._link, self._task, self._attempt = link, task, attempt
        #: Times of leasing as they were at the last grant.
        self.settings = settings
        self._on_lost = on_lost
        self._held: dict[Fence, HeldLease] = {}

    async def acquire(self, request_id: str, **asked: object) -> Plain:
        """Wait for slots, for as long as it takes; then keep the lease alive.

        Parameters
        ----------
        request_id
            Names the request; unique inside the attempt.
        asked
            The other fields of :class:`~drlnb.records.round.RequestSlot`.

        Raises
        ------
        ConfigError
            If the pool can never lend them; one line.
        PeerError
            If the pool goes on refusing for three times to live: a former lease of ours would have expired by then.
        """
        n_refused = 0
        refused_t: float | None = None
        broker = self._link.ask_broker

        def request() -> Awaitable[Plain]:
            return broker(
                "drlnb_acquire",
                timeout_s=self.settings.poll_s + 10.0,
                # The pool never opens a request again that is over, so that late repeats of it do no harm.
                request_id=f"{self._task}/{request_id}" + (f"+{n_refused}" if n_refused else ""),
                task=self._task,
                attempt=self._attempt,
                node=self._link.node,
                **asked,
            )

        def on_pending(reply: Plain) -> None:
            nonlocal refused_t
            refused_t = None

        while True:
            reply, held = await HeldLease.acquire(broker, request, on_lost=self._lost, on_pending=on_pending)
            if held is not None:
                self.settings = held.settings
                self._held[held.fence] = held
                return reply
            if reply.get("final"):
                raise ConfigError(reply["refused"])
            # A lease that we gave up may still be ours in the pool's eyes, until it expires there.
            refused_t = refused_t or time.monotonic()
            if time.monotonic() - refused_t > 3 * self.settings.ttl_s:
                raise PeerError("pool", f"refuses request {request_id}: {reply['refused']}")
            n_refused += 1
            await asyncio.sleep(lease.RETRY_S)

    def _lost(self, fence: Fence, reason: str) -> None:
        if self._held.pop(fence, None) is not None:
            self._on_lost(fence, reason)

    def overdue(self, fence: Fence) -> str:
        """Return why nothing may be accepted under a lease of ours any more, and drop it; empty if it may."""
        held = self._held.pop(fence, None)
        if held is None:
            return ""
        held.check()
        if held.over:
            held.close()
        else:
            self._held[fence] = held
        return held.over

    async def unless_lost(self, fence: Fence, work: Coroutine[object, object, _T]) -> _T:
        """Wait for work under a lease of ours; stop waiting once the lease is lost.

        Raises
        ------
        ConnectionError
            If it is lost first: whoever works may be on a node that never answers.
        """
        if fence not in self._held:
            work.close()
            raise ConnectionError("the lease was lost")
        return await self._held[fence].unless_lost(work)

    def lost(self, fence: Fence, reason: str) -> None:
        """End a lease that the pool took away."""
        if fence in self._held:
            held = self._held[fence]
            held.lose(reason)
            held.close()

    def holds(self, fence: Fence) -> bool:
        """Return whether a lease is ours and alive."""
        return fence in self._held

    async def release(self, fence: Fence, **stats: object) -> None:
        """Give a slot back; if the broker cannot be reached, the lease's time to live does it."""
        held = self._held.pop(fence, None)
        if held is not None:
            await held.release(**stats)

    def close(self) -> None:
        """Renew nothing any more."""
        for held in self._held.values():
            held.close()
        self._held.clear()
