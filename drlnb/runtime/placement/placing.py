"""Place jobs on the workers of a Dask cluster, from a notebook or a script."""

import asyncio
import inspect
import logging
import math
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Self, TypeVar

from distributed import Client

from drlnb.planning.placement import GANGS, Terms
from drlnb.planning.placement.jobs.machine import PlacementMachine
from drlnb.planning.registry import AnyPlanner, Planners
from drlnb.records.base import Record
from drlnb.records.columns import placement as words
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError, PeerError, nearest
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.runtime.client.plugins import PLUGIN_S, usable
from drlnb.runtime.files.planners import resolve
from drlnb.runtime.ipc.pickling import JobFailed, pack_call
from drlnb.runtime.placement.injector import Fault, check_faults, inject
from drlnb.runtime.placement.placer import DaskPlacer, Packed
from drlnb.runtime.protocol import drlnb_version

__all__ = ["Job", "Placing", "place"]

_T = TypeVar("_T")
_LOG = logging.getLogger("drlnb")
#: Seconds between looks whether the scheduler is still there.
_LOOK_S = 0.5
#: Longest wait for gangs to stop, a worker that has to be restarted included, in seconds.
_STOP_S = 90.0
#: Decision -> what it says of a job.
_WORDS = {words.GangBroken: "has lost a gang", words.JobFailed: "has failed", words.JobPostponed: "waits"}
#: What a gang is slower for each node too many, and what a start takes where workers are up, in seconds: assumed.
_LOCALITY_FRAC, _RESTART_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """A gang of functions: one on each of its slots, all of them at once.

    Parameters
    ----------
    fn
        Called as ``fn(member)`` on each slot, with a :class:`~drlnb.runtime.placement.member.Member`; what it returns
        is a result of the job.
    n_slots
        Slots that it needs.
    work_s
        Seconds that it is expected to take without a failure; planners and orders go by it.
    checkpoint
        Folder, shared by all workers and this process, in which members save; None: a lost slot costs all work.
    name
        Name in results and journal; empty: ``job-0``, ``job-1`` ...
    silent_s
        Seconds for which a member may neither ask ``member.should_stop()`` nor save; one that is silent for longer
        hangs: its gang begins again.  None: as long as it likes, and one that hangs does so for ever.
    """

    fn: object
    n_slots: int = 1
    work_s: float = 3600.0
    checkpoint: str | Path | None = None
    name: str = ""
    silent_s: float | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError of all values that are wrong."""
        problems = []
        if not callable(self.fn) or inspect.iscoroutinefunction(self.fn):
            problems.append(f"fn must be a plain function of a member, got {self.fn!r}")
        if not isinstance(self.n_slots, Integral) or self.n_slots < 1:
            problems.append(f"n_slots must be a whole number above 0, got {self.n_slots!r}")
        if not isinstance(self.work_s, Real) or not 0.0 < self.work_s < math.inf:
            problems.append(f"work_s must be seconds above 0, got {self.work_s!r}")
        if self.silent_s is not None and not (isinstance(self.silent_s, Real) and 1.0 <= self.silent_s < math.inf):
            problems.append(f"silent_s must be seconds, at least 1, or None, got {self.silent_s!r}")
        if not isinstance(self.name, str):
            problems.append(f"name must be text, got {self.name!r}")
        if problems:
            raise ConfigError(problems)


class Placing:
    """Jobs that are placed, made by :func:`place`.

    Attributes
    ----------
    results
        Job -> what its members returned, by rank; of those that are over.
    failures
        Job -> its error: what a member raised, or why it could not go on.
    """

    def __init__(self, client: Client, machine: PlacementMachine) -> None:
        self._client = client
        self._header = StreamOpened(
            stream="placement", machine="placement", config=machine.config, origin="measured", version=drlnb_version()
        )
        self._records: list[Record] = []
        self._open: set[str] = set()
        #: Job -> what was said of it last.
        self._said: dict[str, str] = {}
        self._changed = threading.Condition()
        self._n_submitted, self._is_closed = 0, False
        self.failures: dict[str, Exception] = {}
        self._placer = DaskPlacer(client, machine, self._listen)
        self.results = self._placer.results
        self._run(self._placer.open(), 2 * PLUGIN_S)

    def _run(self, coroutine: Coroutine[object, object, _T], timeout_s: float) -> _T:
        """Run something in the client's loop."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)
        try:
            return future.result(timeout_s)
        except (OSError, TimeoutError) as error:
            future.cancel()
            raise PeerError("scheduler", str(error) or "it does not answer") from None

    def __repr__(self) -> str:
        """Return how far the jobs are."""
        n_done, n_failed = len(self.results), len(self.failures)
        return f"<Placing: {n_done} done, {n_failed} failed, {len(self._open)} not over, {len(self.slots)} slots>"

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots whose workers are up."""
        return tuple(self._placer.workers)

    # ------------------------------------------------------------------ jobs
    def submit(self, job: Job) -> str:
        """Queue another job; return its name.

        Raises
        ------
        ConfigError
            If its function cannot travel, its name or folder is taken, or it needs more slots than there ever were.
        """
        return self._submit(_jobs(job))[0]

    def _submit(self, jobs: list[Job]) -> list[str]:
        """Queue jobs, all or none."""
        packed: dict[str, tuple[Job, Packed]] = {}
        problems = []
        for i, job in enumerate(jobs, self._n_submitted):
            name, n = job.name or f"job-{i}", len(self._placer.known)
            if name in packed or name in self._placer.jobs:
                problems.append(f"job {name}: another one has this name")
            if job.n_slots > n:
                problems.append(
                    f"job {name} needs {job.n_slots} slots, the cluster has {n}: "
                    f"client.wait_for_workers({job.n_slots}) if more are to come"
                )
            folder = None if job.checkpoint is None else Path(job.checkpoint).resolve()
            taken = {each.checkpoint: other for other, each in self._placer.jobs.items()}
            taken |= {each.checkpoint: other for other, (_, each) in packed.items()}
            if folder is not None and folder in taken:
                problems.append(f"job {name}: its folder {folder} is that of job {taken[folder]}")
            try:
                silent_s = None if job.silent_s is None else float(job.silent_s)
                packed[name] = job, Packed(pack_call(job.fn, (), {}), folder, silent_s)
            except ConfigError as error:
                problems.append(f"job {name}: {error}")
        if problems:
            raise ConfigError(problems)
        if self._is_closed or self._client.status != "running":
            raise RuntimeError("the placement is over" if self._is_closed else "the placement's client is closed")
        self._n_submitted += len(packed)
        self._open |= packed.keys()
        self._run(self._queue(packed), PLUGIN_S)
        return list(packed)

    async def _queue(self, packed: Mapping[str, tuple[Job, Packed]]) -> None:
        for name, (job, travels) in packed.items():
            self._placer.jobs[name] = travels
            self._placer.host.feed(words.JobSubmitted, job=name, n_slots=int(job.n_slots), work_s=float(job.work_s))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all jobs are over; return whether they are.

        Parameters
        ----------
        timeout_s
            Longest wait, in seconds; None: as long as it takes.

        Raises
        ------
        PeerError
            If the scheduler is gone.
        """
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while self._open and (left_s := end - time.monotonic()) > 0.0:
                self._changed.wait(min(left_s, _LOOK_S))
                if self._client.status != "running":
                    raise PeerError("scheduler", f"gone, or the client is closed: {len(self._open)} jobs are not over")
            return not self._open

    def _listen(self, record: Record) -> None:
        """Keep a record; say what a user would not see otherwise, and note jobs that are over."""
        self._records.append(record)
        if isinstance(record, words.JobFailed):
            self.failures[record.job] = self._placer.errors.get((record.job, record.reason)) or JobFailed(record.reason)
        if isinstance(record, (words.GangBroken, words.JobFailed, words.JobPostponed)):
            said = f"job {record.job} {_WORDS[type(record)]}: {record.reason}"
            if said != self._said.get(record.job):  # a planner may have a job wait time and again
                _LOG.warning("%s", said)
            self._said[record.job] = said
        elif isinstance(record, words.SlotMasked):
            _LOG.warning("slot %s is out of use until undrain(%r): %s", record.slot, record.slot, record.reason)
        if isinstance(record, (words.JobFailed, words.JobFinished)):
            with self._changed:
                self._open.discard(record.job)
                self._changed.notify_all()

    def journal(self) -> Journal:
        """Return all that has happened and was decided so far; ``drlnb.planning.replay.replay`` decides it again."""
        stream = Stream(header=self._header, records=tuple(self._records), torn=False, source=self._header.stream)
        return Journal(streams={self._header.stream: stream})

    # ------------------------------------------------------------------ slots
    def drain(self, slot: str) -> None:
        """Use a slot no more once its gang is over; ConfigError if there is none of this name."""
        self._run(self._set("slot.drain", slot), PLUGIN_S)

    def undrain(self, slot: str) -> None:
        """Use a slot again that was drained, or was taken out of use for its failures, which are forgotten."""
        self._run(self._set("slot.undrain", slot), PLUGIN_S)

    async def _set(self, key: str, slot: str) -> None:
        slot, known = str(slot), self._placer.known  # Dask numbers the workers of a LocalCluster
        if slot not in known:
            raise ConfigError(f"slot must be one of {', '.join(known) or 'none'}, got {slot!r}{nearest(slot, known)}")
        self._placer.host.feed(SettingChanged, key=key, value=slot, task=None)

    def inject(self, faults: Iterable[Fault]) -> None:
        """Kill workers of slots, to see what becomes of the jobs; returns at once.

        Parameters
        ----------
        faults
            (seconds from now, slot, seconds that it stays away); each worker needs a nanny, which starts it again.

        Raises
        ------
        ConfigError
            If a slot is unknown or has no nanny, or a number is negative.
        """
        planned = sorted((t_s, str(slot), down_s) for t_s, slot, down_s in faults)
        check_faults(planned, self._placer)
        self._client.loop.asyncio_loop.call_soon_threadsafe(
            lambda: self._placer.host.spawn(inject(planned, self._placer))
        )

    # ------------------------------------------------------------------ the end
    def stop(self) -> None:
        """Stop what runs, drop what waits, and leave the cluster as it was."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._client.status == "running":
            self._run(self._withdraw(), PLUGIN_S)
            self.wait(_STOP_S)
            self._run(self._placer.close(), PLUGIN_S)

    async def _withdraw(self) -> None:
        for job in sorted(self._open):
            self._placer.host.feed(words.JobStopped, job=job, reason="stopped by the user")

    def __enter__(self) -> Self:
        """Return the placement."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()


def _jobs(jobs: Iterable[Job] | Job) -> list[Job]:
    """Return a job or several as a list; ConfigError if there is something else."""
    some = list(jobs) if isinstance(jobs, Iterable) else [jobs]
    if wrong := [job for job in some if not isinstance(job, Job)]:
        raise ConfigError(f"jobs must be Job(function, ...), got {wrong[0]!r}")
    return some


def place(
    jobs: Iterable[Job] | Job,
    client: Client | None = None,
    *,
    planner: str | AnyPlanner | type = "ect",
    order: str = "fifo",
    backfill: str = "greedy",
    hold_s: float = 30.0,
) -> Placing:
    """Run jobs on the workers of a Dask cluster, each worker a slot; returns at once.

    A job gets all its slots or waits.  When it loses one, the others of its gang stop, and it goes on from its last
    checkpoint on the slots that the planner chooses then.

    Parameters
    ----------
    jobs
        What to run: one, or several.
    client
        A client with a loop thread of its own; None: Dask's current one.
    planner
        Which slots a job gets: name of a planner, such as ``ect`` or ``healthiest``, one of your own, or its class.
    order
        Whose turn it is: ``fifo``, or ``largest`` number of slots times seconds first.
    backfill
        Whether any later job that fits may start (``greedy``), or one that does not delay the next (``reserve``).
    hold_s
        Seconds that a slot which has failed stays out of use, doubled with each failure of a day; after three of them
        it does until it is undrained.  0: until its worker is back, however often it fails.

    Raises
    ------
    ConfigError
        If an argument or a job is wrong, or a job needs more slots than there are.
    PeerError
        If the scheduler does not answer.
    """
    client, planners, listed = usable(client, "place(jobs, distributed.Client(...))"), Planners(), _jobs(jobs)
    if not isinstance(hold_s, (int, float)) or not 0.0 <= hold_s < math.inf:
        raise ConfigError(f"hold_s must be seconds, at least 0, got {hold_s!r}")
    terms = Terms(locality_frac=_LOCALITY_FRAC, restart_s=_RESTART_S)
    if not any(job.checkpoint for job in listed):
        terms = replace(terms, checkpoint_s=None)
    try:
        resolved = resolve(GANGS, planner)
        name = resolved if isinstance(resolved, str) else planners.add(GANGS.decision, resolved)
        config = {
            "planner": name,
            "order": order,
            "backfill": backfill,
            "hold_s": float(hold_s),
            "terms": asdict(terms),
        }
        machine = PlacementMachine(config, planners)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    placing = Placing(client, machine)
    try:
        placing._submit(listed)
    except BaseException:
        placing.stop()
        raise
    return placing
