"""Keep one executor child per slot alive on a node, and watch it while it computes."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distributed.system import MEMORY_LIMIT

from drlnb.planning.leasing.fence import FenceGate
from drlnb.records.ids import Fence
from drlnb.runtime.background import Background
from drlnb.runtime.ipc.frames import Answer
from drlnb.runtime.ipc.start_modes import ChildProcess, child_environment, how_ended, last_line, signal_pid
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Executor", "WorkGate"]

#: Pause before a dead executor is started again; doubles with each death in a row.
_RESTART_S = 0.2
_RESTART_MAX_S = 30.0
#: Time that a user's function gets to end once it was interrupted, in seconds.
_GRACE_S = 3.0


class WorkGate:
    """Admits the work of a slot: nothing below the highest fence, and nothing of a lease whose child has ended.

    It outlives the children, whose own gates are empty when they start.

    Parameters
    ----------
    slot
        Name of the slot.
    """

    def __init__(self, slot: str) -> None:
        self._slot, self._fences = slot, FenceGate()
        #: Nothing may be done under this fence any more, nor under one before it.
        self._void: Fence | None = None

    def close(self, fence: Fence | None) -> None:
        """Admit no more work under a fence, nor under one before it."""
        self._void = max(filter(None, (self._void, fence)), default=None)

    def admit(self, fence: Fence) -> str | None:
        """Admit work under a fence, or return why not: a new child would accept what the former one refused.

        Raises
        ------
        ConnectionError
            If the lease is void here.
        """
        refusal = self._fences.admit(fence)
        if refusal is None and self._void is not None and fence <= self._void:
            raise ConnectionError(f"executor {self._slot} ended in the midst of this lease, or the lease is over")
        return refusal


#: Called with an executor that is up.
_OnUp = Callable[["Executor"], None]
#: Called with an executor whose process has ended, and why.
_OnDown = Callable[["Executor", str], None]


class Executor:
    """The agent's end of one slot.

    Parameters
    ----------
    slot, device
        Name of the slot; ``cpu``, or ``cuda:<uuid or index>``.
    log
        Where the child's output goes.
    gate
        The slot's.
    on_up
        Called with this executor each time a process is up; :attr:`epoch` counts them.
    on_down
        Called with this executor and the reason each time a process has ended that nobody asked to end.
    n_sharing
        Executors of the node on the same device, this one included: its models may take that part of a budget.
    """

    def __init__(
        self, slot: str, device: str, log: Path, gate: WorkGate, on_up: _OnUp, on_down: _OnDown, n_sharing: int = 1
    ) -> None:
        self.slot, self.device, self.log, self._gate = slot, device, log, gate
        self._on_up, self._on_down, self.n_sharing = on_up, on_down, n_sharing
        self.epoch = 0
        self.device_name = ""
        self.child: ChildProcess | None = None
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeping = Background()
        self._down = asyncio.Event()
        self._stopping = False
        self._n_deaths = 0
        self._hurry = asyncio.Event()
        #: Called with what it says of its part of a minibatch that others compute, too.
        self.on_part: Callable[[Plain], None] | None = None
        #: Fence of the latest work.
        self.latest: Fence | None = None
        #: Whether a child that has ended is followed by another one.
        self.again = True
        #: Fence of the work that runs now, if any.
        self.busy: Fence | None = None
        #: What runs now is a user's own function, which can be interrupted.
        self._in_job = False
        #: How often the child was signalled to interrupt the function that runs.
        self._n_signals = 0
        #: A signal came when the function that it was meant for had ended.
        self._stale = False
        self._progress_t = 0.0

    @property
    def pids(self) -> list[int]:
        """Process ids of its children."""
        return [] if self.child is None else [self.child.pid]

    def start(self) -> None:
        """Start the child and keep one alive until :meth:`end`."""
        self._keeping.keep(self._keep())

    async def wait_up(self, timeout_s: float) -> None:
        """Wait until a child is up.

        Raises
        ------
        ConnectionError
            If none is in time, or it ended before it was.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._up), timeout_s)
        except TimeoutError:
            raise ConnectionError(f"executor {self.slot} is not up after {timeout_s:g} s") from None

    async def memory(self) -> Plain:
        """Return the bytes of the device's memory that anybody uses, and all of them; zeros where it has none.

        Raises
        ------
        ConnectionError
            If the child is gone.
        """
        if self.child is None or self.child.channel is None:
            raise ConnectionError(f"executor {self.slot} is not up")
        answer, _ = await self.child.channel.ask({"op": "memory"})
        return answer

    async def _keep(self) -> None:
        while not self._stopping:
            try:
                child = await self._start_child()
            except (OSError, ValueError) as error:  # too many processes or files, a log that cannot be written
                reason = f"could not be started: {error}"
            else:
                await self._down.wait()
                was_up, self._up = self._up, asyncio.get_running_loop().create_future()
                if not self.again:
                    _fail(self._up, f"executor {self.slot} has ended")
                self._gate.close(self.latest)
                reason = how_ended(await child.ended())
                _fail(was_up, f"the executor ended ({reason}): {last_line(self.log)}")
            if self._stopping:
                return
            self._on_down(self, reason)
            if not self.again:
                _fail(self._up, f"executor {self.slot} {reason}")
                return
            await self._rest()

    async def _start_child(self) -> ChildProcess:
        self._down.clear()
        visible = self.device.removeprefix("cuda:") if self.device.startswith("cuda") else ""
        child = self.child = ChildProcess.start(
            "drlnb.runtime.children.executor",
            self.slot,
            "cuda" if visible else "cpu",
            str(int(MEMORY_LIMIT)),
            str(self.n_sharing),
            log=self.log,
            environment=child_environment(CUDA_VISIBLE_DEVICES=visible),
        )
        await child.open(self._frame, self._down.set)
        return child

    async def _rest(self) -> None:
        """Wait before the next start, longer with each death in a row."""
        pause_s = min(_RESTART_MAX_S, _RESTART_S * 2.0 ** min(self._n_deaths, 10))
        self._n_deaths += 1
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), pause_s)

    def hurry(self) -> None:
        """Start the next child now, and forget how often former ones died."""
        self._n_deaths = 0
        self._hurry.set()

    def _frame(self, header: Plain, _payload: bytes) -> None:
        if header["op"] == "up" and not self._up.done():
            self.epoch += 1
            self.device_name = header["device_name"]
            self._up.set_result(None)
            self._on_up(self)
        elif header["op"] == "progress":
            self._progress_t = time.monotonic()
        elif header["op"] == "part" and self.on_part is not None:
            self.on_part(header)

    async def ask(self, header: Plain, *payloads: Payload, timeout_s: float) -> Answer:
        """Have the child compute; SIGKILL it if it shows no progress for `timeout_s`.

        Raises
        ------
        ConnectionError
            If the child died (or was killed by the watchdog) before it answered, or one died in which this fence
            worked before.
        """
        fence, works = header["fence"], header["op"] not in {"job-end", "job-leave"}
        # Looked at twice: a stale frame need not wait for a new child, and one may die while we wait for it.
        for up in (None, self._up):
            if up is not None:
                await asyncio.shield(up)
            if works and (refusal := self._gate.admit(fence)):
                return {"op": "refused", "reason": refusal}, b""
        child = self.child
        assert child is not None
        assert child.channel is not None
        self.busy, self._in_job = fence, header["op"] == "job"
        self.latest = fence if works else self.latest
        self._progress_t = time.monotonic()
        # A user's function is told whether an interrupt that came too late was meant for the one before.
        in_job = self._in_job
        fresh = {"fresh": self._stale} if in_job else {}
        self._n_signals, self._stale = 0, self._stale and not in_job
        asked = asyncio.ensure_future(child.channel.ask({**header, **fresh}, *payloads))
        try:
            while not asked.done():
                left_s = self._progress_t + timeout_s - time.monotonic()
                if left_s > 0:
                    await asyncio.wait({asked}, timeout=left_s)
                    continue
                if self.interrupt(fence):
                    await asyncio.wait({asked}, timeout=_GRACE_S)
                if not asked.done():
                    child.kill()
                    await asyncio.gather(asked, return_exceptions=True)
                    raise ConnectionError(f"no progress for {timeout_s:g} s: killed")
            answer = asked.result()
        except ConnectionError as error:
            how = how_ended(await child.ended())
            raise ConnectionError(f"executor {self.slot} ended ({how}): {error}") from None
        finally:
            asked.cancel()
            self.busy, self._in_job = None, False
        self._n_deaths = 0
        # One signal interrupts; a second one (its holder, then the pool) may come when the function has ended.
        self._stale |= in_job and self._n_signals > bool(answer[0].get("interrupted"))
        return answer

    def interrupt(self, fence: Fence) -> bool:
        """Interrupt a user's function that runs under `fence`; false if none does."""
        if self.busy != fence or not self._in_job or self.child is None:
            return False
        self._n_signals += 1
        signal_pid(self.child.pid, "SIGINT")
        return True

    async def quiet(self, fence: Fence, grace_s: float) -> bool:
        """Wait until work of `fence` has ended; after `grace_s` kill the child.  True if a child is up and idle."""
        self._gate.close(fence)  # the pool took it away
        deadline = time.monotonic() + grace_s
        self.interrupt(fence)
        self.send({"op": "revoked", "fence": fence})  # an update ends at its next minibatch, and is undone
        while self.busy == fence:
            if time.monotonic() > deadline:
                if self.child is not None:
                    self.child.kill()
                return False
            await asyncio.sleep(0.01)
        self.send({"op": "job-end", "fence": fence})  # what its holder kept there
        return self._up.done()

    def forget(self, task: str) -> None:
        """Have the child forget a task's model."""
        self.send({"op": "evict", "task": task})

    def send(self, header: Mapping[str, object]) -> None:
        """Send the child a frame that needs no answer; nothing if it is gone."""
        if self.child is not None and self.child.channel is not None and not self.child.channel.closed:
            self.child.channel.send(header)

    async def end(self) -> None:
        """End the child for good."""
        self._stopping = True
        grace_s = 1.0 if self._up.done() else 0.0  # before that it imports torch and reads nothing
        _fail(self._up, f"executor {self.slot} was ended")
        if self.child is not None:
            await self.child.end(grace_s)
        await self._keeping.cancel()
        if self.child is not None:
            await self.child.end(grace_s=1.0)


def _fail(up: asyncio.Future[None], why: str) -> None:
    """Leave nobody waiting for a child that will not come."""
    if not up.done():
        up.set_exception(ConnectionError(why))
        up.exception()  # noted here: nobody may be waiting for it
