"""Ask the pool for a lease, keep it alive, and give it back: the holder's side, for tasks, users' loops and probes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.errors import PeerError
from drlnb.records.ids import Fence
from drlnb.runtime.protocol import Plain

__all__ = ["RETRY_S", "Ask", "HeldLease", "poll"]

#: Pause before a message is sent again that was not answered, in seconds.
RETRY_S = 0.2

_T = TypeVar("_T")

#: Sends a message to the pool; raises OSError or TimeoutError if there is no answer, PeerError if none can come.
Ask = Callable[..., Awaitable[Plain]]


async def poll(ask: Callable[[], Awaitable[Plain]], on_pending: Callable[[Plain], None] = lambda reply: None) -> Plain:
    """Ask for something until it is there: the answer is ``pending`` until then.

    Parameters
    ----------
    ask
        Asks once, and waits for a while; called again if it raises OSError or TimeoutError, but for PeerError.
    on_pending
        Called with each answer that is ``pending``.
    """
    while True:
        try:
            reply = await ask()
        except PeerError:
            raise
        except (OSError, TimeoutError):
            await asyncio.sleep(RETRY_S)
            continue
        if "pending" not in reply:
            return reply
        on_pending(reply)


class HeldLease:
    """A lease that was granted: renewed every ``renew_s`` until it is given back, or lost.

    Parameters
    ----------
    ask
        Sends a message to the pool.
    grant
        What the pool has answered.
    good_t
        When the pool was last asked of whom it heard that the lease lives, on this process's clock.
    on_lost
        Called once with (fence, reason) if the lease ends before it is given back.
    """

    def __init__(
        self,
        ask: Ask,
        grant: Plain,
        *,
        good_t: float,
        on_lost: Callable[[Fence, str], object],
    ) -> None:
        self._ask, self._on_lost = ask, on_lost
        self.fence: Fence = grant["fence"]
        #: Times of leasing as they were at the grant.
        self.settings = LeasingSettings.from_mapping(grant["settings"])
        #: Why it is not held any more; empty while it is.
        self.over = ""
        self._good_t = good_t
        self._ended = asyncio.Event()
        self._renewals = asyncio.get_running_loop().create_task(self._renew())

    @classmethod
    async def acquire(
        cls,
        ask: Ask,
        request: Callable[[], Awaitable[Plain]],
        *,
        on_lost: Callable[[Fence, str], object],
        on_pending: Callable[[Plain], None] = lambda reply: None,
    ) -> "tuple[Plain, HeldLease | None]":
        """Wait for slots for as long as it takes; return the pool's answer and the lease, None if it refuses.

        Parameters
        ----------
        ask, on_lost
            As of the class.
        request, on_pending
            Asks for the slots, and is called while they are not there: as of :func:`poll`.
        """
        sent_t = 0.0

        async def timed() -> Plain:
            nonlocal sent_t
            sent_t = time.monotonic()
            return await request()

        while True:
            reply = await poll(timed, on_pending)
            if "fence" not in reply:
                return reply, None
            held = cls(ask, reply, good_t=sent_t, on_lost=lambda fence, reason: None)
            try:
                # It may have been granted long ago: whoever stood still meanwhile learns it here, not after use.
                fresh = time.monotonic() - sent_t <= held.settings.renew_s or await held.renew()
            except BaseException:  # nobody waits any more
                held.close()
                raise
            if fresh and not held.over:
                held._on_lost = on_lost
                return reply, held
            held.close()  # the same request again: its lease, if that lives, or a refusal

    async def _renew(self) -> None:
        while not self.over:  # wait_for may swallow a cancellation
            await asyncio.sleep(self.settings.renew_s)
            if not self.over and not await self.renew():
                self.check()

    async def renew(self) -> bool:
        """Renew it once, and lose it if the pool has ended it; false if there is no answer."""
        sent_t = time.monotonic()
        try:
            wait_s = self.settings.renew_s
            reply = await self._ask("drlnb_renew", timeout_s=wait_s, fence=self.fence)
        except (OSError, TimeoutError):
            return False
        if "lost" in reply:
            self.lose(str(reply["lost"]))
        self._good_t = sent_t
        return True

    def check(self) -> None:
        """Lose it if it was not renewed for ``holder_ttl_s``: the pool may soon lend its slots to others.

        A process that was stopped wakes with the answers of its executor before its timers, and with no message of the
        pool: only its own clock tells it that the lease may be another's by now.
        """
        patience_s = self.settings.holder_ttl_s
        if time.monotonic() - self._good_t > patience_s:
            self.lose(f"it was not renewed for {patience_s:g} s: this process stood still, or the pool does not answer")

    def lose(self, reason: str) -> None:
        """End it here, for the pool has ended it or may have."""
        if not self.over:
            self.over = reason
            self._ended.set()
            self._on_lost(self.fence, reason)

    async def unless_lost(self, work: Coroutine[object, object, _T]) -> _T:
        """Wait for work under the lease; stop waiting once the lease is over.

        Raises
        ------
        ConnectionError
            If it is over first: whoever works may be on a node that never answers.
        """
        if self.over:
            work.close()
            raise ConnectionError("the lease was lost")
        ended, working = asyncio.ensure_future(self._ended.wait()), asyncio.ensure_future(work)
        try:
            await asyncio.wait((ended, working), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ConnectionError("the lease was lost")
            return await working
        finally:
            ended.cancel()
            working.cancel()

    async def release(self, **stats: object) -> None:
        """Give it back; if the pool cannot be reached, the lease's time to live does it."""
        held = not self.over
        self.close("it was given back")
        deadline = time.monotonic() + self.settings.ttl_s
        while held and time.monotonic() < deadline:
            try:
                await self._ask("drlnb_release", fence=self.fence, **stats)
            except PeerError:
                return  # there is no way to the pool any more
            except (OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            else:
                return

    def close(self, reason: str = "its holder has ended") -> None:
        """Renew it no more, without a message to the pool."""
        self.over = self.over or reason
        self._ended.set()
        self._renewals.cancel()
