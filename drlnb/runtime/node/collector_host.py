"""Start, wake, ask and end the collector processes of a node."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from drlnb.runtime.background import Background
from drlnb.runtime.ipc.frames import Answer, ChildChannel, socket_pair
from drlnb.runtime.ipc.lifeline import CLOSE_S
from drlnb.runtime.ipc.start_modes import ChildProcess, Zygote, child_environment, how_ended, signal_pid, tail
from drlnb.runtime.ipc.step_count import StepCount
from drlnb.runtime.node.cpu_slots import CpuSlots, n_cpus
from drlnb.runtime.protocol import Key, Payload, Plain

__all__ = ["PROBE", "CollectorHost", "DiedError", "LiveCollector"]

#: Stands for a run in the key of a process that only tries an environment.
PROBE = "probe"

#: Time that a collector gets to answer with an error once its environment was interrupted, in seconds, and how often.
_GRACE_S, _INTERRUPTS = 0.5, 4
#: Collectors that make their environments at the same time, for each CPU; many of them wait for a disk or a simulator.
_STARTS_PER_CPU = 4
#: Frames that make a collector act: it needs a CPU slot until it has answered.
_ACTING = frozenset({"wake", "evaluate"})


class DiedError(ConnectionError):
    """A process ended while it made its environments.

    Parameters
    ----------
    message
        Why, and below that line its last words.
    where
        What it was at.
    """

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where


@dataclass(slots=True, kw_only=True)
class LiveCollector:
    """One process: (run, task, collector) under one attempt of the task."""

    key: Key
    attempt: int
    log: Path
    pid: int = 0
    mode: str = "spawn"
    channel: ChildChannel = field(init=False)
    process: ChildProcess | None = None
    ended: bool = False
    #: Whether it makes its environments now: its end is reported to who started it.
    starting: bool = False
    #: When it last gave a sign of life, on this process's clock.
    alive_t: float = 0.0
    #: Traceback and message of the exception that made it useless, if there was one.
    error: str = ""
    message: str = ""
    #: Where its environments are, as it counts their steps; None of a process that only probes.
    steps: StepCount | None = None
    #: Its environment, as a user knows it.
    env: str = ""
    #: Its number among the processes of its collector, and the address of the agent to report its loss to.
    number: int = 0
    master: str = ""

    @property
    def where(self) -> str:
        """In words where its environments are, or were when it ended; empty if they rest, or nobody knows."""
        return self.steps.where if self.steps is not None else ""

    def forget_steps(self) -> None:
        """Count no further."""
        if self.steps is not None:
            self.steps.close()

    def alive(self, _header: Plain, _payload: bytes) -> None:
        """Record a sign of life; a collector sends nothing else on its own."""
        self.alive_t = time.monotonic()


class CollectorHost:
    """All collectors of one node.

    Parameters
    ----------
    zygote
        The node's fork server; while it is not up, every start is a spawn.
    """

    def __init__(self, zygote: Zygote) -> None:
        self.zygote = zygote
        #: Whose turn it is; as many as there are CPUs until the broker has said otherwise.
        self.cpu = CpuSlots(n_cpus())
        #: Called with (collector, reason, detail) when a process ends that nobody asked to end.
        self.on_lost: Callable[[LiveCollector, str, str], object] = lambda *loss: None
        self.live: dict[Key, LiveCollector] = {}
        #: What collectors left when they were ended between two rounds: (attempt, states of their environments).
        self.kept: dict[Key, tuple[int, bytes]] = {}
        #: (run, task) -> attempts below this one are over here: a process of theirs that is being started must end.
        self._floors: dict[tuple[str, str], int] = {}
        self.n_starting = 0
        #: For so many starts: what makes environments needs a share of a CPU to be in time.
        self._room = asyncio.Semaphore(_STARTS_PER_CPU * n_cpus())
        self._background = Background()

    async def start(
        self,
        key: Key,
        *,
        attempt: int,
        configuration: Mapping[str, object],
        log: Path | str,
        payload: Payload = b"",
        mode: str = "zygote",
        quiet_s: float | None = None,
        round: int = 0,
        number: int = 0,
        master: str = "",
    ) -> Plain:
        """Start a process and have it make its environments; return its answer, with more fields of the event.

        Idempotent: a collector of the same attempt that lives is ended first, and so are all of earlier attempts.
        Without a `payload` it goes on from what the one before it in this attempt left.  `quiet_s` is that of
        :meth:`ask`; it counts from when there is room for the start.  One that is started for a `round` waits for a
        CPU slot first; a new or a lost one (0) does not.  `number` is its own, `master` the address of the agent to
        report its loss to.

        Raises
        ------
        ConnectionError
            If the process ended before it was ready, or its environment could not be made; why, and below that line
            its last words or the traceback.
        """
        await self.stop_task(*key[:2], below_attempt=attempt)
        await self.stop(key)
        if not len(payload) and self.kept.get(key, (0, b""))[0] == attempt:
            payload = self.kept[key][1]
        started = time.perf_counter()
        self.n_starting += 1
        event = {"n_starting": self.n_starting}
        live = LiveCollector(key=key, attempt=attempt, log=Path(log), number=number, master=master)
        try:
            async with self.cpu.held() if round else nullcontext(), self._room:
                # A fork that has begun is seen to its end, even if its master has ended: else it leaves a process.
                await asyncio.shield(self._background.go_on(self._install(live, mode)))
                with StepCount.shared() as (live.steps, path):
                    header = {"op": "configure", "attempt": attempt, "number": number, "steps": path, **configuration}
                    answer = await self._configure(live, header, payload, quiet_s)
        finally:
            self.n_starting -= 1
        answer["event"] |= {"start_s": time.perf_counter() - started, "start_mode": live.mode, **event}
        return answer

    async def _install(self, live: LiveCollector, mode: str) -> None:
        """Launch a process as the one of its key, unless its task has ended here meanwhile."""
        self._check_floor(live)
        await self._launch(live, mode)
        try:
            self._check_floor(live)
        except ConnectionError:
            await self._end(live)
            raise
        # Two starts of one key may overlap: the later one to be up is the one that lives.
        before, self.live[live.key] = self.live.get(live.key), live
        if before is not None:
            await self._end(before)

    def _check_floor(self, live: LiveCollector) -> None:
        if live.attempt < self._floors.get(live.key[:2], 0):
            raise ConnectionError(f"attempt {live.attempt} of task {live.key[1]} is over on this node")

    async def _configure(self, live: LiveCollector, header: Plain, state: Payload, quiet_s: float | None) -> Plain:
        live.starting, live.env = True, str(header.get("spec", {}).get("env", "the environment"))
        try:
            answer, _ = await self._patient(live, header, (state,), quiet_s)
        except ConnectionError:
            if live.ended:
                raise  # somebody has stopped it
            reason, detail = await self._last_words(live)
            await self.stop(live.key)
            raise DiedError(f"{reason}\n{detail}".strip(), live.where) from None
        finally:
            live.starting = False
        if answer["op"] == "error":
            live.error = answer["detail"]
            await self.stop(live.key)
            raise ConnectionError(f"{answer['message']}\n{answer['detail']}")
        return answer

    async def _launch(self, live: LiveCollector, mode: str) -> None:
        if mode == "zygote" and self.zygote.alive:
            ours, theirs = socket_pair()
            try:
                with theirs:
                    live.pid = await self.zygote.fork(theirs, live.log)
                live.channel = await ChildChannel.open(ours, live.alive, lambda: self._closed(live))
            except ConnectionError:
                ours.close()  # a cold start is slow but always right
            else:
                live.mode = "zygote"
                return
        environment = child_environment(CUDA_VISIBLE_DEVICES="")
        process = ChildProcess.start("drlnb.runtime.children.collector", log=live.log, environment=environment)
        live.pid, live.process = process.pid, process
        live.channel = await process.open(live.alive, lambda: self._closed(live))

    def _closed(self, live: LiveCollector) -> None:
        if live.ended or live.starting:
            return
        live.ended = True
        if self.live.get(live.key) is live:
            del self.live[live.key]
        self._background.go_on(self._report(live))

    async def _report(self, live: LiveCollector) -> None:
        self.on_lost(live, *await self._last_words(live))

    async def _last_words(self, live: LiveCollector) -> tuple[str, str]:
        """Reap a process that has ended; return why in a line, and a traceback or the end of its log if that helps."""
        code = await self._reap(live)
        live.forget_steps()
        if live.error:
            return live.message, live.error
        return f"{how_ended(code)} {live.where}".strip(), "" if code is not None and code < 0 else tail(live.log)

    async def _reap(self, live: LiveCollector) -> int | None:
        if live.process is not None:
            return await live.process.ended()
        return await self.zygote.exit_code(live.pid)

    async def launch_probe(self, key: Key, env: str, log: Path) -> LiveCollector:
        """Start a process that only tries an environment; nothing reports its end."""
        live = LiveCollector(key=key, attempt=0, log=log, env=env)
        await self._launch(live, "zygote")
        live.ended = True
        self.live[key] = live
        return live

    async def ask(self, key: Key, header: Plain, *payloads: Payload, quiet_s: float | None = None) -> Answer:
        """Send a frame to a collector and wait for the answer.

        Parameters
        ----------
        key, header, payloads
            Whom, and what.
        quiet_s
            Longest time without a sign of life, in seconds; then it is interrupted, or killed.  None: it has all time.

        Raises
        ------
        ConnectionError
            If the collector does not live, or ends before it answers.
        """
        if header["op"] == "state" and key in self.kept:
            return {"op": "state"}, self.kept[key][1]  # nothing has acted since
        live = self.live.get(key)
        if live is None:
            raise ConnectionError(f"collector {key[1]}#{key[2]} is not up")
        if header["op"] == "wake":
            self.kept.pop(key, None)
        act = self._act if header["op"] in _ACTING else self._patient
        answer, payload = await act(live, header, payloads, quiet_s)
        if answer["op"] == "error":
            # An environment that raised is in no known state: the process goes, the master decides.
            live.error, live.message = answer["detail"], answer["message"]
            live.channel.close()
        return answer, payload

    async def _act(
        self, live: LiveCollector, header: Plain, payloads: tuple[Payload, ...], quiet_s: float | None
    ) -> Answer:
        """Have a collector act once its node has a CPU slot for it; the answer says how long it waited."""
        async with self.cpu.held() as queued_s:
            if live.ended:
                raise ConnectionError(f"collector {live.key[1]}#{live.key[2]} has ended")
            answer, payload = await self._patient(live, header, payloads, quiet_s)
        return {**answer, "queued_s": queued_s}, payload

    async def _patient(
        self, live: LiveCollector, header: Plain, payloads: tuple[Payload, ...], quiet_s: float | None
    ) -> Answer:
        live.alive_t = time.monotonic()
        asked = asyncio.ensure_future(live.channel.ask({**header, "quiet_s": quiet_s}, *payloads))
        try:
            while quiet_s is not None and not asked.done():
                left_s = live.alive_t + quiet_s - time.monotonic()
                if left_s <= 0:
                    await self._wake_up(live, asked, quiet_s)
                    break
                await asyncio.wait({asked}, timeout=left_s)
            return await asked
        finally:
            asked.cancel()

    async def _wake_up(self, live: LiveCollector, asked: "asyncio.Future[Answer]", quiet_s: float) -> None:
        """Interrupt an environment that hangs, so that its error names the place; kill it if that does not help."""
        for _ in range(_INTERRUPTS):  # again: whoever tries an environment out may have caught the first
            signal_pid(live.pid, "SIGUSR1")
            await asyncio.wait({asked}, timeout=_GRACE_S)
            if asked.done():
                return
        signal_pid(live.pid, "SIGUSR2")  # where it hangs, for its log
        await asyncio.wait({asked}, timeout=_GRACE_S)
        live.message = (
            f"{live.env}: it did not come back within env_timeout_s = {quiet_s:g} s, nor when interrupted: killed"
        )
        live.error = f"{live.message}\n{tail(live.log)}"
        if live.process is not None:
            live.process.kill()
        else:
            signal_pid(live.pid, "SIGKILL")
        live.channel.close()  # a process that the environment forked may keep the other end open

    async def rest(self, key: Key, attempt: int, *, quiet_s: float | None = None) -> None:
        """End a collector between two rounds and keep its environments' states; its loss is reported if that fails."""
        live = self.live.get(key)
        if live is None or live.attempt != attempt:
            return
        try:
            answer, state = await self.ask(key, {"op": "state"}, quiet_s=quiet_s)
        except ConnectionError:
            return  # its loss is reported on its own
        if answer["op"] == "state":
            self.kept[key] = (attempt, state)
            await self.stop(key)

    async def stop(self, key: Key) -> None:
        """End a collector, wait for its end; harmless if it is not up."""
        live = self.live.pop(key, None)
        if live is not None:
            await self._end(live)

    async def _end(self, live: LiveCollector) -> None:
        live.ended = True
        live.forget_steps()
        await live.channel.aclose()
        if live.process is not None:
            await live.process.end(CLOSE_S + 1.0)
        elif await self.zygote.exit_code(live.pid, CLOSE_S + 1.0) is None:
            signal_pid(live.pid, "SIGKILL")
            await self.zygote.exit_code(live.pid, 3.0)

    async def stop_task(self, run: str, task: str, below_attempt: int | None = None) -> None:
        """End all collectors of a task (of attempts below the given one, or all)."""

        def meant(key: Key, attempt: int) -> bool:
            return key[:2] == (run, task) and (below_attempt is None or attempt < below_attempt)

        if below_attempt is not None:
            self._floors[run, task] = max(below_attempt, self._floors.get((run, task), 0))
        self.kept = {key: left for key, left in self.kept.items() if not meant(key, left[0])}
        keys = [key for key, live in self.live.items() if meant(key, live.attempt)]
        await asyncio.gather(*(self.stop(key) for key in keys))

    async def stop_all(self) -> None:
        """End every collector of this node."""
        await asyncio.gather(*(self.stop(key) for key in list(self.live)))
