"""How does a person's own loop lease slots, keep them and use them?  The client's side, on the client's event loop.

Renewals run on that loop, in a thread of its own: whatever the person's code does meanwhile, it cannot keep them from
being sent, short of stopping the whole process.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client
from distributed.protocol import to_serialize

from drlnb.records.errors import ConfigError, LeaseLost, PeerError
from drlnb.records.ids import Fence
from drlnb.runtime.ipc.pickling import unpack, unpack_error
from drlnb.runtime.protocol import RPC_TIMEOUT_S

__all__ = ["LoopLease"]

#: Pause before a failed RPC is tried again, in seconds.
_RETRY_S = 0.2
#: Longest wait for the first word of a node that the client may not be able to reach, in seconds.
_REACH_S = 5.0
#: Longest wait for the answer to a question that the end of the lease has settled, in seconds.
_LAST_WORD_S = 1.0

#: Why a lease ended -> what a person should know of it.
_WHY = {
    "silent": "the pool heard nothing of its holder for leasing.ttl_s = {ttl_s:g} s",
    "max-hold": "it was held for longer than leasing.max_hold_s = {max_hold_s:g} s: lease for less work at a time",
    "slot-failed": "its executor died",
    "executor-died": "its executor died",
    "node-lost": "its node left the cluster",
    "is over": "the pool has ended it",
}

Reply = Mapping[str, Any]


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
    relay
        Whether to speak with nodes through the scheduler; None: only with those that cannot be reached.
    """

    def __init__(
        self,
        client: Client,
        *,
        task: str,
        round: int,
        n_slots: int = 1,
        priority: int = 0,
        timeout_s: float | None = None,
        on_unmet: Callable[[int], None] = lambda n_up: None,
        relay: bool | None = None,
    ) -> None:
        self._client = client
        self._task, self._round = task, round
        self._request = f"{task}/{round}"
        self._n_slots, self._priority, self._timeout_s = n_slots, priority, timeout_s
        self._on_unmet: Callable[[int], None] | None = on_unmet
        self._relay = relay
        self._reached: dict[str, bool] = {}
        self.fence: tuple[int, int] = (0, 0)
        self.slots: tuple[Reply, ...] = ()
        self.settings: Reply = {}
        self._ending = False
        #: Why it was lost; empty if it was not.
        self.lost = ""
        self._losing: asyncio.Event | None = None
        self._renewal: asyncio.Task[None] | None = None
        #: Somebody waits for a slot like ours: the pool has asked us to give way.
        self.asked = False
        self._listener: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[Any]] = set()
        self._serial: tuple[asyncio.Lock, ...] = ()
        self._computed_s = 0.0
        self._n_jobs = 0
        #: When the last renewal that was answered was sent, on this process's clock.
        self._good_t = 0.0

    @property
    def shown(self) -> Fence:
        """The fence."""
        return Fence(epoch=self.fence[0], token=self.fence[1])

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
            grant = await asyncio.wait_for(self._granted(), wait_s)
        except BaseException:  # also a cancelled wait: Ctrl-C
            await self._cancel("its loop no longer waits")
            raise
        self.fence = (int(grant["fence"][0]), int(grant["fence"][1]))
        self.slots, self.settings = tuple(grant["slots"]), grant["settings"]
        self._losing = asyncio.Event()
        self._serial = tuple(asyncio.Lock() for _ in self.slots)
        self._good_t = time.monotonic()
        self.asked = bool(grant.get("demand"))
        self._renewal = asyncio.get_running_loop().create_task(self._renew())
        if not self.asked:
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _granted(self) -> Reply:
        while True:
            reply = None
            with contextlib.suppress(OSError, TimeoutError):
                reply = await self._ask(
                    "drlnb_loop_acquire", timeout_s=60.0, request_id=self._request, task=self._task, round=self._round,
                    n_slots=self._n_slots, priority=self._priority,
                )  # fmt: skip
            if reply is None:
                if self._client.status != "running":
                    raise PeerError("scheduler", "no connection")
                await asyncio.sleep(_RETRY_S)
            elif "error" in reply:
                raise ConfigError(reply["message"])
            elif "refused" in reply:
                raise ConfigError(f"the pool refuses: {reply['refused']}")
            elif "fence" in reply:
                return reply
            elif self._on_unmet is not None and reply["n_up"] < self._n_slots:
                said, self._on_unmet = self._on_unmet, None
                said(int(reply["n_up"]))

    async def _cancel(self, reason: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            await self._ask("drlnb_loop_cancel", request_id=self._request, reason=reason)

    async def abandon(self) -> None:
        """Give back what was granted in the moment in which its holder stopped waiting."""
        if self._renewal is not None:
            await self.release()

    async def release(self) -> None:
        """Give the slots back, what was kept on them freed; a function that still runs is interrupted first."""
        clean = not self.lost and await self._stopped() and await self._freed()
        for call in self._calls:
            call.cancel()
        self._ending = True
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        ours = not self.lost  # else it is the pool's already
        if ours:
            self.lost = "it was given back"
            await self._returned(clean=clean)
        if self._listener is not None:
            # The end of the lease ends its question, too: to cut it off would cost the connection.
            await asyncio.wait({self._listener}, timeout=_LAST_WORD_S if ours else 0)
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    async def _returned(self, *, clean: bool) -> None:
        """Tell the pool that the slots are its again, for as long as it could not find out by itself."""
        computed_s = self._computed_s / max(1, len(self.slots))
        deadline = time.monotonic() + float(self.settings["ttl_s"])
        while time.monotonic() < deadline and self._client.status == "running":
            with contextlib.suppress(OSError, TimeoutError):
                await self._ask("drlnb_release", fence=self.fence, clean=clean, computed_s=computed_s)
                return
            await asyncio.sleep(_RETRY_S)

    async def _stopped(self) -> bool:
        """Interrupt what still runs; true if nothing runs any more."""
        if not self._calls:
            return True
        await self._interrupt()
        _, running = await asyncio.wait(self._calls, timeout=float(self.settings["kill_grace_s"]))
        return not running

    async def _freed(self) -> bool:
        """Let the slots forget what this lease kept there; true if all of them have."""
        if not self._n_jobs:
            return True
        header = {"op": "job-end", "fence": self.fence, "task": self._task}
        asked = [self._compute(slot, header, b"", RPC_TIMEOUT_S) for slot in self.slots]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return all(isinstance(answer, Mapping) and answer.get("op") == "freed" for answer in answers)

    # ------------------------------------------------------------------ keeping it
    async def _listen(self) -> None:
        """Wait for the word that somebody waits, until it comes or the lease is over."""
        reply: Reply | None = {"pending": True}
        while reply is not None and "pending" in reply and not self.lost:
            try:
                reply = await self._ask("drlnb_loop_asked", timeout_s=60.0, fence=self.fence)
            except (OSError, TimeoutError):
                if self._client.status != "running":
                    return
                await asyncio.sleep(_RETRY_S)
        self.asked = reply is not None and "asked" in reply

    async def _renew(self) -> None:
        """Renew every ``renew_s``; count ``holder_ttl_s`` from the last good renewal, then give the lease up."""
        while not (self.lost or self._ending):  # wait_for may swallow a cancellation
            await asyncio.sleep(float(self.settings["renew_s"]))
            sent_t = time.monotonic()
            if await self._renewed():
                self._good_t = sent_t
            else:
                self._despair()

    async def _renewed(self) -> bool:
        """Renew once; false if nobody answered."""
        reply = None
        with contextlib.suppress(OSError, TimeoutError):
            timeout_s = float(self.settings["renew_s"])
            reply = await self._ask("drlnb_loop_renew", timeout_s=timeout_s, fence=self.fence, n_progress=self._n_jobs)
        if reply is not None and "lost" in reply:
            self._lose(_WHY.get(reply["lost"], reply["lost"]).format_map(self.settings))
        return reply is not None

    def _despair(self) -> None:
        """Give up a lease that was not renewed for so long that the pool may soon lend its slots to others."""
        patience_s = float(self.settings["holder_ttl_s"])
        if time.monotonic() - self._good_t > patience_s:
            self._lose(
                f"it was not renewed for {patience_s:g} s: this process stood still, or the pool does not answer"
            )

    def _lose(self, reason: str) -> None:
        if not self.lost and self._losing is not None:
            self.lost = reason
            self._losing.set()

    def check(self) -> None:
        """Raise LeaseLost if it is lost; a process that stood still finds out here, before it uses the slot again."""
        self._despair()
        if self.lost:
            raise LeaseLost(self.shown, self.lost)

    # ------------------------------------------------------------------ using it
    async def run(self, name: str, payload: bytes) -> list[Reply]:
        """Run a call on every slot at once; return what :meth:`result` reads, in the order of the slots.

        Raises
        ------
        LeaseLost
            If the lease is lost, or is lost meanwhile.
        """
        self.check()
        calls = [self._track(self._one(rank, name, payload)) for rank in range(len(self.slots))]
        assert self._losing is not None
        losing = asyncio.ensure_future(self._losing.wait())
        everything = asyncio.gather(*calls)
        everything.add_done_callback(_seen)
        try:
            await asyncio.wait({everything, losing}, return_when=asyncio.FIRST_COMPLETED)
            self.check()
            return await everything
        except asyncio.CancelledError:
            self._track(self._interrupt())
            raise
        finally:
            losing.cancel()

    def _track(self, coroutine: Any) -> "asyncio.Task[Any]":
        """Run something that goes on when its caller stops waiting: what runs on a slot, runs."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(_seen)
        return task

    async def _one(self, rank: int, name: str, payload: bytes) -> Reply:
        slot = self.slots[rank]
        header = {"op": "job", "fence": self.fence, "task": self._task, "slot": slot["slot"], "name": name}
        header |= {"rank": rank, "n_slots": len(self.slots), "asked": self.asked}
        async with self._serial[rank]:
            self.check()
            self._n_jobs += 1
            answer = await self._compute(slot, header, payload, self._patience_s)
        if answer["op"] == "ran":
            self._computed_s += float(answer["elapsed_s"])
            if answer["interrupted"]:
                await self._renewed()  # because it gave no sign of life, or because the lease is over?
        else:
            self._lose(str(answer.get("reason") or answer.get("message")))
        return answer

    @property
    def _patience_s(self) -> float:
        return float(self._timeout_s or self.settings["compute_timeout_s"])

    def result(self, rank: int, answer: Reply) -> Any:
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
        error = unpack_error(answer["payload"])
        if answer["interrupted"]:
            late = TimeoutError(
                f"the function gave no sign of life for {self._patience_s:g} s and was interrupted: raise timeout_s, "
                "or call lease.progress() in it"
            )
            late.__cause__ = error.__cause__
            error = late
        if self._n_slots > 1:
            error.add_note(f"on slot {self.slots[rank]['slot']}, {rank} of {self._n_slots}")
        raise error

    async def _interrupt(self) -> None:
        for slot in self.slots:
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(
                    self._to_node(slot["address"], "drlnb_interrupt", slot=slot["slot"], fence=self.fence),
                    RPC_TIMEOUT_S,
                )

    # ------------------------------------------------------------------ talking to others
    async def _ask(self, op: str, *, timeout_s: float = RPC_TIMEOUT_S, **message: Any) -> Reply | None:
        self._check_client()
        reply: Reply | None = await asyncio.wait_for(getattr(self._client.scheduler, op)(**message), timeout_s)
        return reply

    async def _compute(self, slot: Reply, header: Reply, payload: bytes, watchdog_s: float) -> Reply:
        """Let a slot's executor answer a frame; ``died`` if it, or its node, is gone."""
        try:
            reply: Reply | None = await self._to_node(
                slot["address"], "drlnb_compute", slot=slot["slot"], header=header, watchdog_s=watchdog_s,
                payload=to_serialize(memoryview(payload)),
            )  # fmt: skip
        except OSError as error:
            return {"op": "died", "reason": f"its node {slot['node']} cannot be reached: {error}"}
        return reply or {"op": "died", "reason": f"its node {slot['node']} does not know drlnb any more"}

    def _check_client(self) -> None:
        if self._client.status != "running" or self._client.scheduler is None:
            raise ConnectionError("no connection")

    async def _to_node(self, address: str, op: str, **message: Any) -> Any:
        self._check_client()
        if await self._reaches(address):
            return await getattr(self._client.rpc(address), op)(**message)
        return await self._client.scheduler.drlnb_loop_compute(address=address, handler=op, **message)

    async def _reaches(self, address: str) -> bool:
        """Whether this client can speak with a node itself: with a gateway it cannot, and the scheduler passes on."""
        if self._relay is not None:
            return not self._relay
        if address not in self._reached:
            found = False
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._client.rpc(address).identity(), _REACH_S)
                found = True
            self._reached[address] = found
        return self._reached[address]


def _seen(future: "asyncio.Future[Any]") -> None:
    """Look at an error whose caller may have stopped waiting, or asyncio complains that nobody has."""
    if not future.cancelled():
        future.exception()
