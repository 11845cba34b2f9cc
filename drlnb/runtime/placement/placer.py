"""Carry out on Dask what a machine decides about jobs: start gangs, stop them, and say what became of them.

A member is one Dask task with the private resource of its slot, and a key of its own in each attempt.  The end of a
worker is heard from the scheduler; what Dask then runs again begins in another process, and does nothing.
"""

import asyncio
import contextlib
import logging
import os
import platform
import uuid
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path

from distributed import Client, Future

from drlnb.planning.machine import AnyMachine
from drlnb.records.base import Event, Record
from drlnb.records.columns import placement as words
from drlnb.records.columns.leasing import SlotAdded, SlotFailed
from drlnb.records.errors import ConfigError
from drlnb.runtime.client.plugins import install, uninstall
from drlnb.runtime.files import versions
from drlnb.runtime.ipc.pickling import unpack, unpack_error
from drlnb.runtime.machine_host import MachineHost, by_class
from drlnb.runtime.node.bootstrap import Bootstrap
from drlnb.runtime.placement.agent import resource, stop_gang
from drlnb.runtime.placement.checkpoints import resume_point
from drlnb.runtime.placement.member import LOST, RAISED, RETURNED, Part, run_member
from drlnb.runtime.protocol import SOON_S, Plain

__all__ = ["DaskPlacer", "Packed"]

_LOG = logging.getLogger("drlnb")
#: Signs of life that a member gives in the time for which it may be silent.
_SIGNS = 4
#: Longest wait for the first words of the workers, and for a nanny to end a worker, in seconds.
_UP_S, _RESTART_S = 15.0, 30.0


@dataclass(frozen=True, slots=True)
class Packed:
    """A job as it travels: pickle of its function, its folder for checkpoints, and how long members may be silent."""

    call: bytes
    checkpoint: Path | None
    silent_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worker:
    """The process behind a slot."""

    slot: str
    node: str
    address: str
    life: str
    nanny: bool


@dataclass(slots=True, kw_only=True)
class _Gang:
    """A gang, until nothing of it runs."""

    job: str
    version: int
    #: Name that is unique over all runs.
    name: str
    workers: list[_Worker]
    began_t: float
    futures: list[Future] = field(default_factory=list)
    started: set[int] = field(default_factory=set)
    #: Rank -> when its member, which has begun, gave a sign of life last.
    signed_t: dict[int, float] = field(default_factory=dict)
    #: Rank -> what became of the member, and its result or error.
    ended: dict[int, tuple[str, object]] = field(default_factory=dict)
    #: Step -> ranks that have saved it; the newest one that all have.
    saved: dict[int, set[int]] = field(default_factory=dict)
    step: int = 0
    kept_s: float = 0.0
    #: It was told to stop.
    stopping: bool = False

    @property
    def left(self) -> list[int]:
        """Ranks that have not ended."""
        return [rank for rank in range(len(self.workers)) if rank not in self.ended]

    def silent(self, since_t: float) -> list[int]:
        """Return ranks that run and have given no sign of life since a time."""
        return [rank for rank in self.left if self.signed_t.get(rank, since_t) < since_t]


class DaskPlacer:
    """Runs jobs on the workers of a cluster; in the client's event loop only.

    Parameters
    ----------
    client
        Of the cluster.
    machine
        What decides.
    listen
        Called with each record, in order.
    """

    def __init__(self, client: Client, machine: AnyMachine, listen: Callable[[Record], None]) -> None:
        self.client = client
        #: Job -> what it runs; of those that are over, the results of its members.
        self.jobs: dict[str, Packed] = {}
        self.results: dict[str, list[object]] = {}
        #: Job, and what a member raised in words -> the error.
        self.errors: dict[tuple[str, str], Exception] = {}
        #: Slot -> its worker, as long as that lives.
        self.workers: dict[str, _Worker] = {}
        #: Slots that have ever been up.
        self.known: list[str] = []
        #: Slot -> when, on the loop's clock, it may be back at the earliest.
        self.away: dict[str, float] = {}
        self.name = f"drlnb-placement-{uuid.uuid4().hex}"
        self._unused: dict[str, str] = {}
        #: Addresses of workers that live, those that stay away for a while, too.
        self._alive: set[str] = set()
        self._gangs: dict[str, _Gang] = {}
        self._steps: dict[str, int] = {}
        effects = by_class({words.StartGang: self._start, words.StopGang: self._stop})
        self.host = MachineHost(machine, effects, [listen])
        self.host.on_defect = _LOG.error
        self._says: Mapping[str, Callable[..., None]] = {
            "slot_up": self._said_up,
            "slot_taken": self._taken,
            "drlnb_down": self._down,
            "drlnb_worker_unused": self._not_used,
            "member_started": self._started,
            "member_saved": self._saved,
            "member_lives": self._lives,
        }

    # ------------------------------------------------------------------ slots
    async def open(self) -> None:
        """Make the workers slots that are there and that come, and wait until each has said something."""
        self.client.subscribe_topic(self.name, self._heard)
        owner = f"process {os.getpid()} on {platform.node()}"
        where = "drlnb.runtime.placement.agent:SlotAgent"
        plugin = Bootstrap(self.name, versions.versions(), where, self.name, topic=self.name, owner=owner)
        taken = await install(self.client, plugin, self.name)
        for event in await self.client.scheduler.events(topic=self.name):  # of before the subscription was heard
            self._heard(event)
        end = asyncio.get_running_loop().time() + _UP_S
        while taken - {worker.address for worker in self.workers.values()} - self._unused.keys():
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Leave the cluster as it was."""
        await self.host.close()
        await uninstall(self.client, self.name, self.name)

    def _heard(self, event: tuple[float, Plain]) -> None:
        """Pass on what a worker or the scheduler says."""
        op, fields, *_ = event[1].values()  # and a worker's address
        self._says[op](**fields)

    def _said_up(self, **about: object) -> None:
        worker = _Worker(**about)  # type: ignore[arg-type]  # the agent sends its fields
        self._alive.add(worker.address)
        self._up(worker)

    def _up(self, worker: _Worker) -> None:
        """Add a slot; where its worker is another process than before, the former one is gone."""
        former = self.workers.get(worker.slot)
        loop = asyncio.get_running_loop()
        if worker.address not in self._alive or (former is not None and former.life == worker.life):
            return
        if former is not None:
            self._lost(worker.slot, "its worker began anew")
        wait_s = self.away.get(worker.slot, 0.0) - loop.time()
        if wait_s > 0.0:
            loop.call_later(wait_s, self._up, worker)
            return
        self.workers[worker.slot] = worker
        if worker.slot not in self.known:
            self.known.append(worker.slot)
        self.host.feed(SlotAdded, slot=worker.slot, node=worker.node, device="cpu", executor_epoch=0)

    def _down(self, address: str) -> None:
        self._unused.pop(address, None)
        self._alive.discard(address)
        for worker in [worker for worker in self.workers.values() if worker.address == address]:
            self._lost(worker.slot, "its worker is gone")

    def _not_used(self, node: str, address: str, why: str) -> None:
        if address not in self._unused:
            _LOG.warning("worker %s is no slot: %s", node, why)
        self._unused[address] = why

    def _taken(self, slot: str, by: str) -> None:
        """Note that a worker is another placement's, until it is given back."""
        self._gone(slot, words.SlotTaken, by=by)

    def _lost(self, slot: str, why: str) -> None:
        """Note that a worker is gone."""
        self._gone(slot, SlotFailed, reason=why)

    def _gone(self, slot: str, kind: type[Event], **about: object) -> None:
        """Report that a slot has no worker any more, and the end of its members."""
        worker = self.workers.pop(slot, None)
        if worker is None:
            return
        self.host.feed(kind, slot=slot, **about)
        for gang in list(self._gangs.values()):
            for rank, each in enumerate(gang.workers):
                if each.life == worker.life:
                    self._end(gang, rank, LOST)

    # ------------------------------------------------------------------ gangs
    def _start(self, command: words.StartGang) -> None:
        """Submit a gang's members."""
        workers = [self.workers[slot] for slot in command.slots]
        name = self._gang_name(command.job, command.gang_version)
        gang = _Gang(job=command.job, version=command.gang_version, name=name, workers=workers, began_t=self.host.now)
        self._gangs[name] = gang
        job = self.jobs[command.job]
        try:
            resume = None if job.checkpoint is None else resume_point(job.checkpoint, len(workers))
            told = self._steps.get(command.job, 0)
            if resume is not None and resume.step < told:
                raise ConfigError(f"step {told} was saved in {job.checkpoint}, which this process cannot see: share it")
        except (ConfigError, OSError) as error:
            gang.ended = dict.fromkeys(range(len(workers)), (LOST, None))
            self.host.feed(words.JobStopped, job=command.job, reason=f"{type(error).__name__}: {error}")
            return
        for rank, worker in enumerate(workers):
            part = Part(
                plugin=self.name,
                life=worker.life,
                gang=name,
                attempt=command.gang_version,
                rank=rank,
                size=len(workers),
                slot=worker.slot,
                call=job.call,
                resume=resume,
                sign_s=None if job.silent_s is None else job.silent_s / _SIGNS,
            )
            future = self.client.submit(
                run_member, part, key=f"{name}/{rank}", resources={resource(worker.slot): 1}, retries=0, pure=False
            )
            gang.futures.append(future)
            self.host.spawn(self._watch(gang, rank))
        if job.silent_s is not None:
            self.host.spawn(self._mind(gang, job.silent_s))

    async def _watch(self, gang: _Gang, rank: int) -> None:
        """Wait for a member's end: a result is fetched at once, or it would be lost with its worker."""
        outcome, value = LOST, None
        try:
            for outcome, data in await self.client.gather([gang.futures[rank]], errors="skip"):
                outcome, value = _unpacked(outcome, data)
        except CancelledError:
            pass
        except AttributeError:  # the client is closed, as Dask's own code finds out; or this is a defect
            if self.client.status == "running":
                raise
            return
        worker = gang.workers[rank]
        if outcome == LOST and not gang.stopping and self.workers.get(worker.slot) is worker:
            self._lost(worker.slot, "its worker died")
        self._end(gang, rank, outcome, value)

    async def _mind(self, gang: _Gang, silent_s: float) -> None:
        """Report members that give no sign of life for so long, until the gang stops."""
        while gang.name in self._gangs and not gang.stopping:
            await asyncio.sleep(silent_s / _SIGNS)
            ranks = gang.silent(self.host.now - silent_s)
            answers = await asyncio.gather(*[self._answers(gang.workers[rank]) for rank in ranks])
            # What was on its way is heard by now: it may be this process that had stood still.
            found = {
                gang.workers[rank].slot: answer
                for rank, answer in zip(ranks, answers, strict=True)
                if rank in gang.silent(self.host.now - silent_s)
            }
            if found:
                stuck = tuple(slot for slot, answer in found.items() if not answer)
                gone = {"silent_s": silent_s, "slots": tuple(found), "stuck": stuck}
                self.host.feed(words.GangSilent, job=gang.job, gang_version=gang.version, **gone)
                return

    async def _answers(self, worker: _Worker) -> bool:
        """Return whether a worker's process answers."""
        try:
            asked = self.client.run(os.getpid, workers=[worker.address], on_error="ignore")
            return bool(await asyncio.wait_for(asked, SOON_S))
        except (OSError, TimeoutError):
            return False

    def _lives(self, gang: str, rank: int) -> None:
        if known := self._gangs.get(gang):
            known.signed_t[rank] = self.host.now

    def _started(self, gang: str, rank: int) -> None:
        self._lives(gang, rank)
        if known := self._gangs.get(gang):
            known.started.add(rank)
            slot = known.workers[rank].slot
            self.host.feed(words.JobStarted, job=known.job, gang_version=known.version, slots=(slot,))

    def _saved(self, gang: str, rank: int, step: int) -> None:
        """Count a step in that all members have saved."""
        self._lives(gang, rank)
        known = self._gangs.get(gang)
        if known is None:
            return
        known.saved.setdefault(step, set()).add(rank)
        if len(known.saved[step]) == len(known.workers) and step > known.step:
            known.step = self._steps[known.job] = step
            known.kept_s = self.host.now - known.began_t
            self.host.feed(words.CheckpointSaved, job=known.job, gang_version=known.version, kept_s=known.kept_s)

    def _end(self, gang: _Gang, rank: int, outcome: str, value: object = None) -> None:
        """Note the end of a member; the first one counts."""
        if rank in gang.ended:
            return
        gang.ended[rank] = outcome, value
        about: Plain = {"job": gang.job, "gang_version": gang.version}
        if gang.stopping:
            self._over(gang)
        elif outcome == RAISED and isinstance(value, Exception):
            reason = " ".join(f"rank {rank}: {type(value).__name__}: {value}".split())
            self.errors[gang.job, reason] = value
            self.host.feed(words.GangMemberLost, **about, slot=gang.workers[rank].slot, reason=reason)
        elif [kind for kind, _ in gang.ended.values()] == [RETURNED] * len(gang.workers):
            del self._gangs[gang.name]
            self.results[gang.job] = [value for _, (_, value) in sorted(gang.ended.items())]
            self.host.feed(words.JobFinished, **about, ran_s=self.host.now - gang.began_t)
            self.host.spawn(self._drop(gang.futures))

    def _stop(self, command: words.StopGang) -> Coroutine[object, object, None] | None:
        gang = self._gangs.get(self._gang_name(command.job, command.gang_version))
        if gang is None:
            return None
        gang.stopping = True
        return self._kill(gang) if command.kill else self._tell(gang)

    async def _tell(self, gang: _Gang) -> None:
        """Tell the members that are left to stop; those that have not begun never will."""
        await self._drop([future for rank, future in enumerate(gang.futures) if rank in gang.ended])
        if addresses := [gang.workers[rank].address for rank in gang.left]:
            with contextlib.suppress(OSError, TimeoutError):
                told = self.client.run(stop_gang, self.name, gang.name, workers=addresses, on_error="ignore")
                await asyncio.wait_for(told, SOON_S)
        await self._drop([gang.futures[rank] for rank in gang.left if rank not in gang.started])
        self._over(gang)

    async def _kill(self, gang: _Gang) -> None:
        """Have workers restarted whose members do not stop; where there is no nanny the slot is given up."""
        for worker in [gang.workers[rank] for rank in gang.left]:
            if worker.nanny:
                _LOG.warning(
                    "job %s: its member on slot %s does not stop, its worker is restarted", gang.job, worker.slot
                )
                with contextlib.suppress(KeyError, OSError, TimeoutError):  # it is gone meanwhile, or will be
                    await self.client.restart_workers([worker.address], timeout=_RESTART_S, raise_for_error=False)
            else:
                self._lost(worker.slot, "its member does not stop, and no nanny can restart its worker: restart it")

    def _over(self, gang: _Gang) -> None:
        """Report a gang of which nothing runs any more."""
        if gang.left or self._gangs.pop(gang.name, None) is None:
            return
        about: Plain = {"job": gang.job, "gang_version": gang.version}
        self.host.feed(words.GangStopped, **about, ran_s=self.host.now - gang.began_t, kept_s=gang.kept_s)
        self.host.spawn(self._drop(gang.futures))

    async def _drop(self, futures: list[Future]) -> None:
        """Have Dask forget members, and run those no more that it would run again."""
        await self.client.cancel(futures)

    def _gang_name(self, job: str, version: int) -> str:
        return f"{self.name}/{job}/{version}"


def _unpacked(outcome: str, data: bytes) -> tuple[str, object]:
    """Return what became of a member, and its result or error."""
    try:
        return outcome, unpack(data) if outcome == RETURNED else unpack_error(data) if outcome == RAISED else None
    except Exception as error:  # noqa: BLE001 - unpickling runs foreign code, which may raise anything
        return RAISED, error
