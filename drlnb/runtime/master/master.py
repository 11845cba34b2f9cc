"""Host the round machine of one task in a node agent, and keep what its records speak of.

Experience, parameters and training state lie here as bytes under keys; the machine sees the keys alone.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from drlnb.planning.leasing.fence import StoreGate
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.round.machine import RoundMachine
from drlnb.planning.round.state import RING
from drlnb.planning.settings import takes_effect
from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.base import Facts
from drlnb.records.columns import batching, leasing, placement, warmup
from drlnb.records.common import ClockRelated, SettingChanged
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.ids import Fence
from drlnb.records.spec import read_work
from drlnb.rl.checkpoints.trained import Trained
from drlnb.rl.fragments import Fragment
from drlnb.runtime.clock import relate
from drlnb.runtime.distribution.sender import Sender
from drlnb.runtime.files.checkpoint import SupersededError, claim
from drlnb.runtime.files.lock import RENEW_S
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.ipc.lifeline import is_flooded
from drlnb.runtime.ipc.pickling import unpack_planners
from drlnb.runtime.lease import poll
from drlnb.runtime.link import Link
from drlnb.runtime.machine_host import JournalWriter, MachineHost, by_class, stream_header
from drlnb.runtime.master.checkpoint_effects import AGAIN, Committed, read_newest, taken_over
from drlnb.runtime.master.collector_liveness import Losses
from drlnb.runtime.master.effects import effects
from drlnb.runtime.master.lease_client import LeaseClient
from drlnb.runtime.master.row_feed import RowFeed
from drlnb.runtime.master.work import located, rounds_of
from drlnb.runtime.protocol import Payload, Plain, pool_task, task_stream

__all__ = ["Master"]


def flooded_logs(folder: Path, task: str) -> list[Path]:
    """Return the logs of a task's processes that have grown so much that their beginning was dropped."""
    logs = [log for log in folder.glob("*/*.log") if log.stem.rpartition("-")[0] == task]
    return [log for log in logs if is_flooded(log)]


class Master:
    """One attempt of one task.

    Parameters
    ----------
    link
        Speaks for the node that hosts it.
    run, task
        Its names.
    attached
        The broker's answer to ``drlnb_task_attach``.
    n_replay_losses
        How many attempts before this one, on this node, ended because the replay ring was lost.
    """

    def __init__(self, link: Link, run: str, task: str, attached: Plain, n_replay_losses: int = 0) -> None:
        self.link, self.run, self.task = link, run, task
        self.n_replay_losses = n_replay_losses
        self.attempt = int(attached["attempt"])
        self.ids: Plain = {"run": run, "task": task, "attempt": self.attempt}
        self.spec = read_work(attached["spec"])
        self.out = Path(attached["out"])
        #: As its processes get it.
        self.spec_plain = located(self.spec, self.out).to_plain()
        self._attached = attached
        #: Settings of the algorithm that the user changed while former attempts ran.
        self.live = dict(attached.get("live", {}))
        self.stream = task_stream(task, self.attempt)
        self.addresses: dict[str, str] = {}
        #: Slot -> address of the agent whose executor serves it.
        self.slots: dict[str, str] = {}
        #: Key -> (fragment's header, bytes) of this round.
        self.experience: dict[str, tuple[Facts, Payload]] = {}
        #: Key -> gradient of a batch of this round, as the executor packed it.
        self.gradients: dict[str, bytes] = {}
        #: Key -> what the executor made and nobody has committed yet.
        self.made: dict[str, Committed] = {}
        self.committed = Committed()
        #: States of the environments from the checkpoint: a collector's starts bring them along until it has acted.
        self.envs: Facts | None = None
        self.acted: set[int] = set()
        #: Replay ring from the checkpoint, used at its start.
        self.ring_state: Fragment | None = None
        self.gate = StoreGate()
        settings = LeasingSettings.from_mapping(attached["leasing"])
        self.leases = LeaseClient(link, self.pool_name, self.attempt, settings, self._lease_gone)
        self.sender = Sender(
            link,
            (run, task),
            self.attempt,
            lambda: self.committed.published,
            lambda: self.addresses,
            lambda kind, **values: self.host.feed(kind, **values),
        )
        #: Longest time that the task's environments may take for a step or a reset, in seconds.
        self.quiet_s: float | None = None
        #: Whether the machine is up: before, there is nothing that hears.
        self.is_up = False
        #: The user's wishes that came before, in their order.
        self._early: list[Plain] = []
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        superseded = partial(self.abort, "another attempt has begun")
        self.rows = RowFeed(link, self.ids, self.stream, superseded)
        self._ended = False

    @property
    def pool_name(self) -> str:
        """The task's name in the pool."""
        return pool_task(self.run, self.task)

    @property
    def is_over(self) -> bool:
        """Whether it ends or has ended: nothing may be started any more, for nobody would end it."""
        return self._ended or self.done.done()

    # ------------------------------------------------------------------ life
    async def run_to_end(self, wishes: Sequence[Plain] = ()) -> str:
        """Host the machine until the task is over; return how it ended.

        Parameters
        ----------
        wishes
            The user's, from before this attempt: arguments of :meth:`control`, in their order.
        """
        for wish in wishes:
            await self.control(**wish)
        if self.is_over:
            return self.done.result()
        if not await asyncio.to_thread((self.out / "run.json").is_file):
            reason = f"node {self.link.node} does not see the run directory {self.out}: use one that all nodes share"
            return await self._give_up(reason)
        try:
            restored = await asyncio.to_thread(self._restore)
        except (CheckpointError, SupersededError) as error:
            superseded = isinstance(error, SupersededError)
            # The broker takes no note of it if it knows of the later attempt.
            return await self._give_up(str(error), superseded=superseded)
        if self.is_over:  # somebody has stopped it meanwhile
            return self.done.result()
        try:
            self._open(restored)
        except ConfigError as error:
            return await self._give_up(f"its settings cannot be used together: {error}")
        except ValueError as error:
            return await self._give_up(f"its planners cannot be used: {error}")
        for wish in self._early:
            await self.control(**wish)
        self.host.spawn(self.place(self._attached["planners"].get("placement", "")))
        try:
            return await self.done
        finally:
            await self._close()

    def _open(self, restored: tuple[Trained, Facts] | None) -> None:
        """Make the machine, and let it go on from a checkpoint."""
        attached = self._attached
        config = {
            "task": self.task,
            "number": attached["number"],
            "total_timesteps": self.spec.total_timesteps,
            "n_replay_losses": self.n_replay_losses,
            "planners": attached["planners"],
            "switch_limit_frac": self.leases.settings.switch_limit_frac,
            "seed": self.spec.seed,
            **rounds_of(self.spec),
            **attached["settings"],
        }
        machine = RoundMachine(config, unpack_planners(attached.get("own_planners", {}), attached["planners"]))
        self.quiet_s = machine.config["env_timeout_s"]
        header = partial(stream_header, self.stream, "round", machine)
        journal = self.out / "journal" / f"{self.stream}.jsonl"
        self.writer = self.rows.writer = JournalWriter(journal, self.rows.add_note, header)
        self.host = MachineHost(
            machine, by_class(effects(self)), [self.writer.write, self.rows.add], t0=time.monotonic()
        )
        self.host.on_defect = self._defect
        self.losses = Losses(self.host.feed_for)
        self.host.spawn(self.rows.flush_forever())
        self.host.open(replace(header(), snapshot=None))  # it begins with its configuration
        self.host.feed(words.TaskOpened, attempt=self.attempt, **taken_over(self, restored))
        self.host.spawn(self._relate_clock())
        self.host.spawn(self._keep_lock())
        self.is_up = True

    async def _give_up(self, reason: str, *, superseded: bool = False) -> str:
        await self.finish("failed", reason, superseded=superseded)
        return reason

    def _restore(self) -> tuple[Trained, Facts] | None:
        folder = self.out / "checkpoints" / self.task
        with contextlib.suppress(OSError):  # a disk that is full is told when a checkpoint cannot be written
            claim(folder, self.attempt)
        return read_newest(folder, self.spec) if self._attached["resume"] else None

    async def _keep_lock(self) -> None:
        told: set[Path] = set()
        while not await self.renew_lock():
            for log in await asyncio.to_thread(flooded_logs, self.out / "logs", self.task):
                if log not in told:
                    what = f"the environments of task {self.task} print without end"
                    self.rows.add_note("Defect", f"{what}: {log} keeps the newest part")
                    told.add(log)
            await asyncio.sleep(RENEW_S)

    async def renew_lock(self) -> bool:
        """Show that this run lives; true if its directory is another one's, or gone: then this task ends at once."""
        other = await asyncio.to_thread(RunDir(self.out).renew_lock, self.run, int(self._attached["epoch"]))
        reason = ""
        if other is not None:
            whose = f"run {other.run} at {other.address} has taken over {self.out}"
            reason = f"superseded: {whose}; this one ends here, and writes nothing more"
        elif await self._is_removed():
            reason = self._removed
        if reason:
            self.link.keep(self.finish("failed", reason, superseded=True))
        return bool(reason)

    async def _is_removed(self) -> bool:
        with contextlib.suppress(OSError):  # a disk that does not answer says nothing
            return not await asyncio.to_thread((self.out / "run.json").is_file)
        return False

    @property
    def _removed(self) -> str:
        return (
            f"the run directory {self.out} was removed or moved while the run went on: nothing can be saved there; "
            "begin anew, or put it back and go on with drlnb resume"
        )

    async def _relate_clock(self) -> None:
        while (related := await relate(lambda: self.link.ask_broker("drlnb_hello"), lambda: self.host.now)) is None:
            await asyncio.sleep(1.0)  # pictures know this stream's clock by nothing else
        self.host.feed(ClockRelated, clock=related[0], offset_s=related[1], error_s=related[2])

    async def place(self, planner: str) -> None:
        """Ask the pool where the collectors live; it tells nothing of a task that is over."""
        asked: Plain = {"task": self.pool_name, "attempt": self.attempt, "node": self.link.node, "planner": planner}
        asked |= {"n_collectors": getattr(self.spec, "n_collectors", 0), "n_learners": self.spec.n_learners}
        patience_s = self.leases.settings.poll_s + 10.0
        reply = await poll(lambda: self.link.ask_broker("drlnb_place", timeout_s=patience_s, **asked))
        if self.is_over:
            return
        if "refused" in reply:
            self.host.feed(words.TaskFailed, reason=reply["refused"], detail="")
        else:
            self.addresses = dict(reply["addresses"])
            self.host.feed(words.PlacementReceived, collector_nodes=tuple(reply["collector_nodes"]))

    async def finish(self, state: str, reason: str = "", *, superseded: bool = False) -> None:
        """End the attempt everywhere; report the end of the task unless another attempt follows here.

        `superseded`: its directory is another run's now, or gone.
        """
        if self._ended:
            return
        self._ended = True
        if self.is_up and state in {"done", "stopped"} and await self._is_removed():
            state, reason, superseded = "failed", self._removed, True
        ends = [self.link.call(node, "drlnb_end_task", **self.ids, timeout_s=10.0) for node in self.addresses.values()]
        await asyncio.gather(*ends, return_exceptions=True)
        if self.is_up:  # who hears of the end may read the journal at once, and finds all of it
            self.host.shut()
            await asyncio.to_thread(self.writer.close)
        await self.rows.flush()
        for _ in range(0 if state == AGAIN else 3):
            with contextlib.suppress(OSError, TimeoutError):
                await self.link.ask_broker(
                    "drlnb_task_end", **self.ids, state=state, reason=reason, superseded=superseded
                )
                break
        if not self.done.done():
            self.done.set_result(state)

    async def abort(self, reason: str) -> None:
        """Drop everything without a word to the broker: another attempt takes over, or the node ends."""
        if not self.done.done():
            self.done.set_result(f"aborted: {reason}")
        await asyncio.sleep(0)

    async def _close(self) -> None:
        self.leases.close()
        await self.host.close()
        await self.rows.flush()
        await self.link.call(self.link.address, "drlnb_end_task", **self.ids)  # the replay ring is here
        await asyncio.to_thread(self.writer.close)
        self.experience.clear()

    # ------------------------------------------------------------------ what is heard
    async def control(self, action: str, key: str = "", value: object = None, reason: str = "") -> str:
        """Carry out a wish of the user; return why a setting cannot be changed so, empty if all is well.

        Before the machine is up a wish waits, but for a stop that would save nothing new.
        """
        if action == "kill":
            await self.finish("stopped", reason or "stopped at once")
        elif not self.is_up:
            changed = bool(self.live) or any(wish["action"] == "set" for wish in self._early)
            if action == "stop" and not changed:
                await self.finish("stopped", reason or "asked for")
            else:
                self._early.append({"action": action, "key": key, "value": value, "reason": reason})
        elif action == "stop":
            self.host.feed(words.StopAsked, reason=reason or "asked for")
        elif action == "set":
            refusals = self.host.feed_for(
                leasing.RequestRefused, SettingChanged, key=key, value=value, task=self.task, counts=takes_effect(key)
            )
            return "; ".join(refusal.reason for refusal in refusals)
        elif action == "slow" and isinstance(value, dict):
            self.host.feed(batching.MemberSlowed, member=key, **value)
        else:
            kinds = {"pause": words.PauseAsked, "resume": words.ResumeAsked, "checkpoint": words.CheckpointAsked}
            self.host.feed(kinds[action])
        return ""

    def collector_lost(
        self, *, collector: int, node: str, reason: str, detail: str, number: int, where: str = ""
    ) -> None:
        """Pass on that a collector's process, by its number, is gone, or that of the replay ring."""
        if collector == RING:
            self.host.feed(replay.ReplayLost, reason=reason, detail=detail)
        elif self.losses.is_news(collector, number):
            what = {"reason": reason, "detail": detail, "where": where}
            self.host.feed(warmup.CollectorLost, collector=collector, node=node, **what)

    def process_lost(self, collector: int, node: str, reply: Plain, *, number: int = 0) -> None:
        """Pass on that a process could not be started; the first line of the refusal is why."""
        reason, _, detail = reply["refused"].partition("\n")
        what = {"reason": reason, "detail": detail, "where": reply.get("where", "")}
        self.collector_lost(collector=collector, node=node, number=number, **what)

    def node_lost(self, node: str, reason: str, address: str = "") -> None:
        """Pass on that a node is gone that was at an address."""
        if not self.is_up or (address and self.addresses.get(node, address) != address):
            return  # it has no part in this task yet, or it is back since
        self.addresses.pop(node, None)
        self.host.feed(placement.NodeLost, node=node, reason=reason)

    def yield_asked(self, fence: Fence) -> None:
        """Feed the event that somebody waits for a slot; it may be one that another task holds."""
        if self.leases.holds(fence):
            self.host.feed(leasing.YieldAsked, fence=fence)

    def _lease_gone(self, fence: Fence, reason: str) -> None:
        self.host.feed(words.LeaseLost, fence=fence, reason=reason)

    def _defect(self, text: str) -> None:
        """End the task in the open, instead of hanging it, when an effect of ours raises."""
        self.rows.add_note("Defect", text)
        self.link.keep(self.finish("failed", f"internal error: {text.strip().splitlines()[-1]}\n{text}"))
