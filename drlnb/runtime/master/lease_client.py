"""How does a master ask for a slot, keep its lease alive, and give it back?"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.errors import PeerError
from drlnb.runtime.protocol import pool_task

if TYPE_CHECKING:
    from drlnb.runtime.node.plugin import AgentPlugin

__all__ = ["LeaseClient"]

#: Pause before a failed RPC is tried again, in seconds.
_RETRY_S = 0.2


class LeaseClient:
    """The master's side of one task's leases.

    Parameters
    ----------
    agent
        The node agent, for its RPC.
    run, task, attempt
        Whose leases.
    settings
        Times of leasing.
    on_lost
        Called with (fence, reason) when a lease ends before it is returned.
    progress
        Returns units of work done so far.
    """

    def __init__(
        self,
        agent: "AgentPlugin",
        run: str,
        task: str,
        attempt: int,
        settings: LeasingSettings,
        on_lost: Callable[[tuple[int, int], str], None],
        progress: Callable[[], int],
    ) -> None:
        self._agent, self._task, self._attempt = agent, pool_task(run, task), attempt
        #: Times of leasing as they were at the last grant.
        self.settings = settings
        self._on_lost = on_lost
        self._progress = progress
        self._renewals: dict[tuple[int, int], asyncio.Task[None]] = {}
        #: Fence -> when its last good renewal was sent, and how long it may be silent after that, in seconds.
        self._good: dict[tuple[int, int], tuple[float, float]] = {}
        #: Fence -> who waits for its loss.
        self._watched: dict[tuple[int, int], asyncio.Future[None]] = {}

    async def acquire(self, request_id: str, round: int, *, yields: bool = False) -> dict[str, Any]:
        """Wait for a slot, for as long as it takes; then keep the lease alive.

        Parameters
        ----------
        request_id
            Names the request; unique inside the attempt.
        round
            Round that the slot is for.
        yields
            Whether the holder will give way when somebody waits.

        Raises
        ------
        PeerError
            If the pool goes on refusing for three times to live: a former lease of ours would have expired by then.
        """
        known, n_refused = False, 0
        refused_t: float | None = None
        while True:
            reply = None
            sent_t = time.monotonic()
            with contextlib.suppress(OSError, TimeoutError):
                reply = await self._agent.ask_broker(
                    "drlnb_acquire",
                    timeout_s=self.settings.poll_s + 10.0,
                    # The pool never opens a request again that is over, so that late repeats of it do no harm.
                    request_id=f"{self._task}/{request_id}" + (f"+{n_refused}" if n_refused else ""),
                    task=self._task,
                    attempt=self._attempt,
                    round=round,
                    node=self._agent.node,
                    known=known,
                    yields=yields,
                )
            known = True
            if reply is None:
                await asyncio.sleep(_RETRY_S)
            elif "refused" in reply:
                # A lease that we gave up may still be ours in the pool's eyes, until it expires there.
                refused_t = time.monotonic() if refused_t is None else refused_t
                if time.monotonic() - refused_t > 3 * self.settings.ttl_s:
                    raise PeerError("pool", f"refuses request {request_id}: {reply['refused']}")
                known, n_refused = False, n_refused + 1
                await asyncio.sleep(_RETRY_S)
            elif reply.get("pending"):
                refused_t = None
            else:
                fence = (int(reply["fence"][0]), int(reply["fence"][1]))
                self.settings = LeasingSettings.from_mapping(reply["settings"])
                if time.monotonic() - sent_t > self.settings.renew_s:
                    # It may have been granted long ago: whoever stood still meanwhile learns it here, not after use.
                    sent_t = time.monotonic()
                    confirmed = await self._ask_renewal(fence, self.settings)
                    if confirmed is None or "lost" in confirmed:
                        continue  # the same request again: its lease, if that lives, or a refusal
                self._good[fence] = (sent_t, self.settings.holder_ttl_s)
                self._renewals[fence] = self._agent.keep(self._renew(fence, self.settings))
                return {**reply, "fence": fence}

    async def _renew(self, fence: tuple[int, int], settings: LeasingSettings) -> None:
        """Renew every ``renew_s``; count ``holder_ttl_s`` from the last good renewal, then give the lease up."""
        while True:
            await asyncio.sleep(settings.renew_s)
            sent_t = time.monotonic()
            reply = None
            with contextlib.suppress(OSError, TimeoutError):
                reply = await self._agent.ask_broker(
                    "drlnb_renew", timeout_s=settings.renew_s, fence=fence, n_progress=self._progress()
                )
            if reply is not None and "lost" in reply:
                self._lose(fence, reply["lost"])
                return
            if fence not in self._renewals:
                return
            if reply is not None:
                self._good[fence] = (sent_t, settings.holder_ttl_s)
            elif self._is_silent(fence):
                self._lose(fence, f"no renewal for {settings.holder_ttl_s:g} s")
                return

    async def _ask_renewal(self, fence: tuple[int, int], settings: LeasingSettings) -> dict[str, Any] | None:
        """Renew once; None if nobody answers in time."""
        reply: dict[str, Any] | None = None
        with contextlib.suppress(OSError, TimeoutError):
            reply = await self._agent.ask_broker(
                "drlnb_renew", timeout_s=settings.renew_s, fence=fence, n_progress=self._progress()
            )
        return reply

    def _is_silent(self, fence: tuple[int, int]) -> bool:
        good_t, patience_s = self._good.get(fence, (-math.inf, 0.0))
        return time.monotonic() - good_t > patience_s

    def overdue(self, fence: tuple[int, int]) -> str:
        """Say why nothing may be accepted under a lease of ours any more, and drop it; empty if it may.

        A process that was stopped wakes with the answers of its executor before its timers, and with no message of the
        pool: only its own clock tells it that the lease may be another's by now.
        """
        if fence not in self._renewals or not self._is_silent(fence):
            return ""
        self._renewals.pop(fence).cancel()
        self._watched.pop(fence, None)
        return f"no renewal for {self._good.pop(fence)[1]:g} s: this process stood still, or the pool does not answer"

    def _lose(self, fence: tuple[int, int], reason: str) -> None:
        if self._renewals.pop(fence, None) is not None:
            self._good.pop(fence, None)
            self._on_lost(fence, reason)
        watched = self._watched.pop(fence, None)
        if watched is not None and not watched.done():
            watched.set_result(None)

    async def unless_lost(self, fence: tuple[int, int], work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Wait for work under a lease of ours; give it up once the lease is lost.

        Raises
        ------
        ConnectionError
            If it is lost first: whoever works may be on a node that never answers.
        """
        if not self.holds(fence):
            work.close()
            raise ConnectionError("the lease was lost")
        lost = self._watched.setdefault(fence, asyncio.get_running_loop().create_future())
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ConnectionError("the lease was lost")
            return await working
        finally:
            working.cancel()

    def lost(self, fence: tuple[int, int], reason: str) -> None:
        """Hear that the pool took a lease away."""
        renewal = self._renewals.get(fence)
        if renewal is not None:
            renewal.cancel()
            self._lose(fence, reason)

    def holds(self, fence: tuple[int, int]) -> bool:
        """Return whether a lease is ours and alive."""
        return fence in self._renewals

    async def release(self, fence: tuple[int, int], *, clean: bool, computed_s: float, yielded: bool = False) -> None:
        """Give a slot back; if the broker cannot be reached, the lease's time to live does it."""
        renewal = self._renewals.pop(fence, None)
        self._good.pop(fence, None)
        self._watched.pop(fence, None)
        if renewal is not None:
            renewal.cancel()
        deadline = time.monotonic() + self.settings.ttl_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, TimeoutError):
                await self._agent.ask_broker(
                    "drlnb_release", fence=fence, clean=clean, computed_s=computed_s, yielded=yielded
                )
                return
            await asyncio.sleep(_RETRY_S)

    def close(self) -> None:
        """Renew nothing any more."""
        for renewal in self._renewals.values():
            renewal.cancel()
        self._renewals.clear()
