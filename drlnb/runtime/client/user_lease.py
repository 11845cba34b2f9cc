"""Lease slots for a user's own loop, keep them and use them: the client's side, on the client's event loop.

Renewals run on that loop, in a thread of its own: whatever the user's code does meanwhile, it cannot keep them from
being sent, short of stopping the whole process.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any

from distributed import Client
from distributed.protocol import to_serialize

from drlnb.records.errors import ConfigError, LeaseLost, PeerError
from drlnb.records.ids import Fence
from drlnb.runtime.background import Background
from drlnb.runtime.ipc.pickling import unpack, unpack_error
from drlnb.runtime.lease import HeldLease, poll
from drlnb.runtime.protocol import RPC_TIMEOUT_S, Plain, ask, to_wire

__all__ = ["LoopLease"]

#: Longest wait for the first answer of a node that the client may not be able to reach, in seconds.
_REACH_S = 5.0
#: Longest wait for the answer to one long poll, in seconds.
_POLL_S = 60.0
#: Longest wait for the answer to a question that the end of the lease has settled, in seconds.
_LAST_WORD_S = 1.0

#: Why a lease ended -> what a user should know of it.
_WHY = {
    "silent": "the pool heard nothing of its holder for leasing.ttl_s = {ttl_s:g} s",
    "max-hold": "it was held for longer than leasing.max_hold_s = {max_hold_s:g} s: lease for less work at a time",
    "slot-failed": "its executor died",
    "executor-died": "its executor died",
    "node-lost": "its node left the cluster",
    "is over": "the pool has ended it",
}


@dataclass(eq=False)
class LoopLease:
    """One lease: asked for, held, used, given back.  Every coroutine belongs on the client's loop.

    Parameters
    ----------
    client
        A Dask client with a loop of its own.
    task
        The loop's name in the pool.
    round
        Number of this lease among those of the same name.
    n_slots
        Slots wanted, all or none.
    priority
        As of tasks.
    timeout_s
        Seconds without a sign of life after which a function is interrupted; None: the pool's.
    on_unmet
        Called once with the number of slots that are up, if the request cannot be satisfied by them.
    """

    client: Client
    _: KW_ONLY
    task: str
    round: int
    n_slots: int = 1
    priority: int = 0
    timeout_s: float | None = None
    on_unmet: Callable[[int], object] | None = None
    fence: Fence = field(default=Fence(0, 0), init=False)
    slots: tuple[Plain, ...] = field(default=(), init=False)
    #: Why it is not held (any more) by the pool's words; empty while it is.
    lost: str = field(default="", init=False)
    #: Somebody waits for a slot like ours: the pool has asked us to give way.
    asked: bool = field(default=False, init=False)
    _held: HeldLease | None = field(default=None, init=False)
    _listener: "asyncio.Task[None] | None" = field(default=None, init=False)
    _calls: Background = field(default_factory=Background, init=False)
    _serial: tuple[asyncio.Lock, ...] = field(default=(), init=False)
    #: Address of a node -> whether this client can speak with it itself.
    _reached: dict[str, bool] = field(default_factory=dict, init=False)
    #: Seconds computed on each slot.
    _computed_s: list[float] = field(default_factory=list, init=False)
    _n_jobs: int = field(default=0, init=False)

    # ------------------------------------------------------------------ asking and giving back
    async def acquire(self, wait_s: float | None = None) -> None:
        """Wait for the slots, at most `wait_s`; then keep the lease alive.

        Raises
        ------
        ConfigError
            If the pool will never grant it.
        TimeoutError
            If it was not granted in time; the place in the queue is given up.
        PeerError
            If the scheduler is gone.
        """
        try:
            grant, self._held = await asyncio.wait_for(self._granted(), wait_s)
        except BaseException:  # also a cancelled wait: Ctrl-C
            with contextlib.suppress(OSError, TimeoutError):
                await self._ask("drlnb_loop_cancel", request_id=self._request, reason="its loop no longer waits")
            raise
        self.fence, self.slots = grant["fence"], tuple(grant["slots"])
        self._computed_s = [0.0] * len(self.slots)
        self._serial = tuple(asyncio.Lock() for _ in self.slots)
        self.asked = bool(grant.get("demand"))
        if not self.asked:
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    @property
    def _request(self) -> str:
        return f"{self.task}/{self.round}"

    @property
    def _lease(self) -> HeldLease:
        assert self._held is not None
        return self._held

    async def _granted(self) -> tuple[Plain, HeldLease]:
        def request() -> Awaitable[Plain]:
            return self._ask(
                "drlnb_loop_acquire", timeout_s=_POLL_S, request_id=self._request, task=self.task, round=self.round,
                n_slots=self.n_slots, priority=self.priority,
            )  # fmt: skip

        reply, held = await HeldLease.acquire(self._ask, request, on_lost=self._on_lost, on_pending=self._on_pending)
        if held is None:
            raise ConfigError(reply["message"] if "error" in reply else f"the pool refuses: {reply['refused']}")
        return reply, held

    def _on_pending(self, reply: Plain) -> None:
        """Report once that fewer slots are up than wanted."""
        if self.on_unmet is not None and reply["n_up"] < self.n_slots:
            report, self.on_unmet = self.on_unmet, None
            report(int(reply["n_up"]))

    async def pool_size(self) -> int:
        """Return how many slots the pool has, up or not.

        Raises
        ------
        OSError, TimeoutError
            If the scheduler does not answer.
        """
        return int((await self._ask("drlnb_loop_pool"))["n_slots"])

    async def release(self) -> None:
        """Give the slots back, if it has any, what was kept on them freed; what still runs is interrupted first."""
        clean = not self.lost and await self._stopped() and await self._freed()
        for call in self._calls:
            call.cancel()
        ours = self._held is not None and not self.lost  # else it is the pool's already
        if ours:
            self.lost = "it was given back"
        if self._held is not None:
            await self._held.release(clean=clean, computed_s=self._computed_s)
        if self._listener is not None:
            # The end of the lease ends its question, too: to cut it off would cost the connection.
            await asyncio.wait({self._listener}, timeout=_LAST_WORD_S if ours else 0)
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    async def _stopped(self) -> bool:
        """Interrupt what still runs; true if nothing runs any more."""
        if self._calls:
            await self._interrupt()
        if running := set(self._calls):  # or all of it has ended while it was interrupted
            _, running = await asyncio.wait(running, timeout=self._lease.settings.kill_grace_s)
        return not running

    async def _freed(self) -> bool:
        """Free what this lease kept on the slots; true if all of them have."""
        if not self._n_jobs:
            return True
        header = {"op": "job-end", "task": self.task}
        asked = [self._compute(slot, header, b"", RPC_TIMEOUT_S) for slot in self.slots]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return all(isinstance(answer, Mapping) and answer.get("op") == "freed" for answer in answers)

    # ------------------------------------------------------------------ keeping it
    async def _listen(self) -> None:
        """Wait until somebody waits for a slot like ours, or the lease is over."""
        with contextlib.suppress(PeerError):
            reply = await poll(lambda: self._ask("drlnb_loop_asked", timeout_s=_POLL_S, fence=self.fence))
            self.asked = "asked" in reply

    def _on_lost(self, fence: Fence, reason: str) -> None:
        self.lost = _WHY.get(reason, reason).format_map(asdict(self._lease.settings))

    def check(self) -> None:
        """Raise LeaseLost if it is lost; a process that stood still finds out here, before it uses the slot again."""
        self._lease.check()
        if self.lost:
            raise LeaseLost(self.fence, self.lost)

    # ------------------------------------------------------------------ using it
    async def run(self, name: str, payload: bytes) -> list[tuple[int, Plain]]:
        """Run a call on every slot at once; return rank and what :meth:`result` reads, in the order of the slots.

        Once the call fails on a slot it is interrupted on the others, which may wait for that one; then its answer is
        the first, and that of a slot where it did not end in time is missing.

        Raises
        ------
        LeaseLost
            If the lease is lost, or is lost meanwhile.
        """
        self.check()
        calls = [self._calls.go_on(self._one(rank, name, payload)) for rank in range(len(self.slots))]
        try:
            made = await self._lease.unless_lost(self._answers(calls))
        except asyncio.CancelledError:
            self._calls.go_on(self._interrupt())
            raise
        except ConnectionError:
            self.check()
            raise
        self.check()
        return made

    async def _answers(self, calls: "list[asyncio.Task[Plain]]") -> list[tuple[int, Plain]]:
        running, first = set(calls), None
        while running and first is None:  # what runs on a slot goes on when nobody waits for it any more
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            failed = (rank for rank, call in enumerate(calls) if call in ended and not call.result().get("ok"))
            first = next(failed, None)
        if running and first is not None:
            # Only now may it leave: what others raise then, because it is gone, comes after its own error.
            header = {"op": "job-leave", "task": self.task}
            leaving = self._compute(self.slots[first], header, b"", RPC_TIMEOUT_S)
            await asyncio.gather(leaving, self._interrupt(), return_exceptions=True)
            await asyncio.wait(running, timeout=self._lease.settings.kill_grace_s)
        answers = [(rank, call.result()) for rank, call in enumerate(calls) if call.done()]
        return sorted(answers, key=lambda answer: answer[0] != first)

    async def _one(self, rank: int, name: str, payload: bytes) -> Plain:
        slot = self.slots[rank]
        header = {"op": "job", "task": self.task, "slot": slot["slot"], "name": name}
        header |= {"rank": rank, "n_slots": len(self.slots), "asked": self.asked}
        async with self._serial[rank]:
            self.check()
            self._n_jobs += 1
            answer = await self._compute(slot, header, payload, self._patience_s)
        if answer["op"] == "ran":
            self._computed_s[rank] += float(answer["elapsed_s"])
            if answer["interrupted"]:
                await self._lease.renew()  # because it gave no sign of life, or because the lease is over?
        else:
            self._lease.lose(str(answer.get("reason") or answer.get("message")))
        return answer

    @property
    def _patience_s(self) -> float:
        return float(self.timeout_s or self._lease.settings.compute_timeout_s)

    def result(self, rank: int, answer: Plain) -> Any:
        """Return what a function returned on a slot; for the caller's thread, because it may take its time.

        Raises
        ------
        TimeoutError
            If the function gave no sign of life for too long, and ended when it was interrupted.
        Exception
            What the function raised.
        """
        if answer["ok"]:
            try:
                return unpack(answer["payload"])
            except Exception as error:
                error.add_note("the function's result needs something that is not here")
                raise
        failure = unpack_error(answer["payload"])
        if answer["interrupted"]:
            cause = failure.__cause__
            failure = TimeoutError(
                f"the function gave no sign of life for {self._patience_s:g} s and was interrupted: raise timeout_s, "
                "or call lease.progress() in it"
            )
            failure.__cause__ = cause
        if self.n_slots > 1:
            failure.add_note(f"on slot {self.slots[rank]['slot']}, {rank} of {self.n_slots}")
        raise failure

    async def _interrupt(self) -> None:
        for slot in self.slots:
            with contextlib.suppress(OSError, TimeoutError):
                asked = self._to_node(slot["address"], "drlnb_interrupt", slot=slot["slot"], fence=self.fence)
                await asyncio.wait_for(asked, RPC_TIMEOUT_S)

    # ------------------------------------------------------------------ talking to others
    async def _ask(self, op: str, /, *, timeout_s: float = RPC_TIMEOUT_S, **message: object) -> Plain:
        self._check_client()
        return await ask(self.client.scheduler, op, timeout_s, message)

    async def _compute(self, slot: Plain, header: Plain, payload: bytes, watchdog_s: float) -> Plain:
        """Have a slot's executor answer a frame; ``died`` if it, or its node, is gone."""
        try:
            reply: Plain | None = await self._to_node(
                slot["address"], "drlnb_compute", slot=slot["slot"], fence=self.fence, header=header,
                watchdog_s=watchdog_s, payload=to_serialize(memoryview(payload)),
            )  # fmt: skip
        except OSError as error:
            return {"op": "died", "reason": f"its node {slot['node']} cannot be reached: {error}"}
        reply = reply or {"refused": f"its node {slot['node']} does not know drlnb any more"}
        return {"op": "died", "reason": reply["refused"]} if "refused" in reply else reply

    def _check_client(self) -> None:
        if self.client.status != "running" or self.client.scheduler is None:
            raise PeerError("scheduler", "no connection")

    async def _to_node(self, address: str, op: str, **message: object) -> Any:
        self._check_client()
        if await self._reaches(address):
            return await getattr(self.client.rpc(address), op)(**to_wire(message))
        return await self.client.scheduler.drlnb_loop_compute(address=address, handler=op, **to_wire(message))

    async def _reaches(self, address: str) -> bool:
        """Whether this client can speak with a node itself: with a gateway it cannot, and the scheduler passes on."""
        if address not in self._reached:
            self._reached[address] = False
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(self.client.rpc(address).identity(), _REACH_S)
                self._reached[address] = True
        return self._reached[address]
