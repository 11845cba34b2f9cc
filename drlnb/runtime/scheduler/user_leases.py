"""Lease slots to users' own loops, which are no tasks of a run.

Their requests feed the same pool, whose queue, fences and times to live count for loops as for tasks.  Since a loop has
no run directory, the pool's stream is also kept in memory, from the first lease of a loop on.  (A run that trains
meanwhile has the loop's leases in its own journal, too.)
"""

import asyncio
import contextlib
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drlnb.planning.pool import PoolMachine
from drlnb.records.base import Event, Record
from drlnb.records.columns import leasing, placement
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.runtime.machine_host import stream_header
from drlnb.runtime.protocol import SOON_S, Handler, Plain, table, to_wire

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["Loops", "PoolTape"]

#: Rows of a part of the tape; two parts are kept, each one readable (and replayable) by itself.
_PART = 10_000
#: Rows in one answer.
_PAGE = 2_000
#: Seconds after which a loop is answered that fewer slots are up than it wants: executors take a moment to start.
_UNMET_S = 15.0
#: Seconds without a lease or a request after which a loop counts as ended, and how many of its own longest pauses it
#: may rest, if that is longer: nobody says of a loop that it ends, and one between two leases is still there.
_AWAY_S, _PAUSES = 30.0, 3.0


class PoolTape:
    """The newest records of the pool, in parts that each begin with the pool as it was then.

    Parameters
    ----------
    epoch
        The broker's: in the streams' names.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        #: Number, stream and record of each row, by parts.
        self._parts: deque[list[tuple[int, str, Record]]] = deque(maxlen=2)
        self._stream = ""
        self._n_rows = self._n_parts = 0

    @property
    def running(self) -> bool:
        """Whether it was opened."""
        return bool(self._parts)

    @property
    def full(self) -> bool:
        """Whether a new part is due."""
        return self.running and len(self._parts[-1]) >= _PART

    def open(self, pool: PoolMachine) -> None:
        """Begin a part with the pool as it is between two events."""
        self._n_parts += 1
        self._stream = f"broker-e{self._epoch}-own{self._n_parts}"
        self._parts.append([])
        self.add(stream_header(self._stream, "pool", pool))

    def add(self, record: Record) -> None:
        """Append a record."""
        self._parts[-1].append((self._n_rows, self._stream, record))
        self._n_rows += 1

    def rows(self, since: int) -> tuple[int, list[Plain]]:
        """Return (number after the last row, rows from `since` on, at most a page)."""
        newer = (row for row in itertools.chain.from_iterable(self._parts) if row[0] >= since)
        page = list(itertools.islice(newer, _PAGE))
        after = page[-1][0] + 1 if page else since
        return after, [{"s": stream, **record.to_row()} for _, stream, record in page]


@dataclass(slots=True, kw_only=True)
class _Held:
    """A loop's lease."""

    request_id: str
    slots: tuple[str, ...]
    #: Its holder was asked to give way.
    asked: bool = False
    #: Set once there is news for the holder: that, or the end of the lease.
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        """Ask the holder to give way."""
        self.asked = True
        self.news.set()


@dataclass(slots=True, kw_only=True)
class _Loop:
    """A loop, as far as the pool's side knows it."""

    #: Grows each time that it comes back after it counted as ended.
    attempt: int = 1
    #: Its requests and leases that have not ended.
    open: set[str] = field(default_factory=set)
    #: Since when it has none, on the event loop's clock; None: it has one, or never had.
    rests_t: float | None = None
    #: Longest pause between two leases so far, in seconds.
    pause_s: float = 0.0
    #: Passes when it counts as ended.
    timer: asyncio.TimerHandle | None = None
    ended: bool = False


class Loops:
    """Requests and leases of users' own loops, on the broker's pool."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self.broker = broker
        self.tape = PoolTape(broker.epoch)
        #: Name in the pool -> the loop; request -> its loop's name.
        self._loops: dict[str, _Loop] = {}
        self._owners: dict[str, str] = {}
        #: Loops' leases that are held.
        self._held: dict[Fence, _Held] = {}

    def handlers(self) -> dict[str, Handler]:
        """Return the messages that are answered here."""
        return table(self, "loop_acquire", "loop_pool", "loop_cancel", "loop_asked", "loop_compute", "loop_rows")

    def close(self) -> None:
        """End with the scheduler."""
        for loop in self._loops.values():
            if loop.timer is not None:
                loop.timer.cancel()

    @property
    def any_open(self) -> bool:
        """Whether a loop holds a slot or waits for one."""
        return any(loop.open for loop in self._loops.values())

    # ------------------------------------------------------------------ messages
    async def loop_acquire(self, request_id: str, task: str, round: int, n_slots: int = 1, priority: int = 0) -> Plain:
        """Wait for slots, at most ``poll_s``; a repeat goes on waiting, or gets the same grant."""
        n_known = len(self.broker.nodes.pool.slot_names)
        if n_slots > n_known and not self.broker.nodes.pool.can_grow:
            raise ConfigError(f"n_slots = {n_slots}, but the pool has {n_known}")
        self._open_tape()
        loop = self._comes(task, request_id)
        poll_s = self.broker.pool.settings.poll_s
        answer = await self.broker.grants.acquire(
            request_id,
            wait_s=poll_s if self._n_up >= n_slots else min(poll_s, _UNMET_S),
            task=task,
            attempt=loop.attempt,
            round=round,
            node="",
            yields=True,
            n_slots=n_slots,
            priority=priority,
        )
        return answer | {"n_up": self._n_up} if "pending" in answer else answer

    @property
    def _n_up(self) -> int:
        return sum(slot["up"] for given in self.broker.nodes.given.values() for slot in given.values())

    async def loop_pool(self) -> Plain:
        """Return how many slots the pool has, up or not."""
        return {"n_slots": len(self.broker.nodes.pool.slot_names)}

    async def loop_cancel(self, request_id: str, reason: str) -> None:
        """Give up a place in the queue, or a grant that crossed this message."""
        self.broker.grants.cancel(request_id, reason)
        self._goes(request_id)

    async def loop_asked(self, fence: Fence) -> Plain:
        """Wait, at most ``poll_s``, until the holder is asked to give way; ``over`` if the lease has ended."""
        held = self._held.get(fence)
        if held is None:
            return {"over": True}
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(held.news.wait(), self.broker.pool.settings.poll_s)
        return {"pending": True} if not held.news.is_set() else {"asked": True} if held.asked else {"over": True}

    async def loop_compute(self, address: str, handler: str, payload: object = b"", **message: object) -> object:
        """Pass a message on to a node that the client cannot reach itself; the payload is not looked at."""
        return await getattr(self.broker.scheduler.rpc(address), handler)(payload=payload, **to_wire(message))

    async def loop_rows(self, since: int) -> Plain:
        """Return the pool's rows from number `since` on."""
        self._open_tape()
        after, page = self.tape.rows(since)
        return {"next": after, "rows": page}

    # ------------------------------------------------------------------ loops that come and go
    def _comes(self, task: str, request_id: str) -> _Loop:
        """Record a request of a loop; one that counted as ended is there again, as another attempt."""
        loop = self._loops.setdefault(task, _Loop())
        if loop.timer is not None:
            loop.timer.cancel()
        if loop.rests_t is not None:
            loop.pause_s = max(loop.pause_s, asyncio.get_running_loop().time() - loop.rests_t)
        if loop.ended:
            loop.attempt, loop.ended = loop.attempt + 1, False
        loop.timer = loop.rests_t = None
        loop.open.add(request_id)
        self._owners[request_id] = task
        return loop

    def _goes(self, request_id: str) -> None:
        """Record the end of a request or lease: a loop without another one rests, and counts as ended after a time."""
        task = self._owners.pop(request_id, None)
        if task is None:
            return
        loop = self._loops[task]
        loop.open.discard(request_id)
        if not loop.open:
            clock = asyncio.get_running_loop()
            loop.rests_t = clock.time()
            loop.timer = clock.call_later(max(_AWAY_S, _PAUSES * loop.pause_s), self._away, task, loop)

    def _away(self, task: str, loop: _Loop) -> None:
        """Report to the pool that a loop is not there any more: what is expected of the load counts it no longer."""
        loop.timer, loop.ended = None, True
        self.broker.host.feed(placement.TaskStopped, task=task, attempt=loop.attempt, reason="rests for long")

    # ------------------------------------------------------------------ the pool's records
    def _open_tape(self) -> None:
        if not self.tape.running:
            self.tape.open(self.broker.pool)

    def on_record(self, record: Record) -> None:
        """Keep what the pool decides, and follow what becomes of the loops' leases."""
        if self.tape.full and isinstance(record, Event):  # between two events: the machine has not taken it in yet
            self.tape.open(self.broker.pool)
        if self.tape.running:
            self.tape.add(record)
        if isinstance(record, leasing.SendGrant) and record.request_id in self._owners:
            held = self._held.setdefault(record.fence, _Held(request_id=record.request_id, slots=record.slots))
            if record.demand:
                held.ask()
        elif isinstance(record, leasing.AskYield) and record.fence in self._held:
            self._ask_yield(record.fence)
        elif isinstance(record, leasing.RequestRefused):
            self._goes(record.subject)
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired | leasing.RevokeLease):
            self._ended(record.fence)

    def _ask_yield(self, fence: Fence) -> None:
        """Ask a holder to give way: its client polls for that, a function that runs can look there."""
        self._held[fence].ask()
        for slot in self._held[fence].slots:
            node = self.broker.nodes.slot_row(slot)["node"]
            self.broker.host.spawn(self.broker.ask_node(node, "drlnb_asked", SOON_S, slot=slot, fence=fence))

    def _ended(self, fence: Fence) -> None:
        """Record that a loop's lease is over."""
        held = self._held.pop(fence, None)
        if held is not None:
            held.news.set()
            self._goes(held.request_id)
