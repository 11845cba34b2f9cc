"""Read from a journal what became of slots and jobs, of jobs that were placed alone or of a fleet's tasks.

What a history says can be played again: on the outages as they were, or on others like them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from statistics import median

import numpy as np

from drlnb.planning.placement.cluster import Cluster
from drlnb.planning.placement.health import DAY_S, rates_hz
from drlnb.planning.placement.jobs.state import HOLD
from drlnb.planning.placement.tasks import PlacementSettings
from drlnb.planning.replay import fresh_machine
from drlnb.records.base import Record
from drlnb.records.columns import leasing
from drlnb.records.columns import placement as words
from drlnb.records.common import DeadlinePassed, SetDeadline, SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal, Stream
from drlnb.sim.placement.attempts import Conditions
from drlnb.sim.placement.faults import FaultPath
from drlnb.sim.placement.traces import TraceJob

__all__ = ["History", "history_of"]

#: Why a lease ended whose work is kept.
_KEPT = ("returned", "yielded")
#: Seconds in which a fleet's task goes on elsewhere, and seconds between checkpoints at the least.
_RESTART_S, _LEAST_S = 1.0, 1.0

#: Machines whose journals tell of slots and jobs.
_MACHINES = ("placement", "pool")

#: When a slot failed, and when it could be used again, in seconds since the beginning.
_Outage = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Slots that failed, and jobs that ran there."""

    #: Names of the slots, sorted, and their nodes.
    slots: tuple[str, ...]
    cluster: Cluster
    #: Jobs that have computed, by their submission, with the work that was seen; a task of a fleet is one.
    jobs: tuple[TraceJob, ...]
    #: Outages of each slot, in their order.
    outages: tuple[tuple[_Outage, ...], ...]
    #: Failures per second that are expected of each slot.
    rate_hz: tuple[float, ...]
    #: What held for the jobs, with the interval at which they saved something.
    conditions: Conditions
    #: Seconds from the first to the last event, and until the last job that has ended was over.
    lasted_s: float
    makespan_s: float

    @property
    def n_failures(self) -> int:
        """Failures of all slots."""
        return sum(map(len, self.outages))

    def path(self) -> FaultPath:
        """Return the outages as they were."""
        return FaultPath(self.outages, self.rate_hz, self._mttr_s)

    def path_like(self, seed: int) -> FaultPath:
        """Return other outages: days of the history in another order, each node's slots together, without end.

        Of a history of less than a day each "day" is all of it, from any moment on.
        """
        return FaultPath([self._drawn(slot, seed) for slot in range(len(self.slots))], self.rate_hz, self._mttr_s)

    @property
    def _mttr_s(self) -> float:
        away_s = [back - fails for some in self.outages for fails, back in some]
        return sum(away_s) / max(1, len(away_s))

    def _drawn(self, slot: int, seed: int) -> Iterator[_Outage]:
        rng, block_s = np.random.default_rng([seed, self.cluster.node_of[slot]]), min(DAY_S, self.lasted_s)
        began_s = back_s = 0.0
        while self.outages[slot]:
            start_s = rng.uniform(0.0, self.lasted_s)
            after = sorted(((fails - start_s) % self.lasted_s, back - fails) for fails, back in self.outages[slot])
            for later_s, away_s in after:
                fails = began_s + later_s
                if later_s < block_s and fails >= back_s:
                    back_s = fails + away_s
                    yield fails, back_s
            began_s += block_s


@dataclass(slots=True, kw_only=True)
class _Job:
    """A job as it is read."""

    submitted_s: float
    n_slots: int
    #: Seconds of work that are kept, and those of its latest gang that are not.
    work_s: float = 0.0
    lost_s: float = 0.0
    #: Of the gang that computes: how many times as long it takes as on the fewest nodes, and when it began.
    slowdown: float = 1.0
    began_s: float | None = None
    kept_s: float = 0.0


@dataclass(slots=True)
class _Reader:
    """What was read so far, of one stream after the other; times in seconds since the first event of the first."""

    #: Slot -> its node; since when it is there; its outages; since when it fails.
    node: dict[str, str] = field(default_factory=dict)
    added_s: dict[str, float] = field(default_factory=dict)
    outages: dict[str, list[_Outage]] = field(default_factory=dict)
    failed_s: dict[str, float] = field(default_factory=dict)
    #: Slots whose process is gone, and those that are kept out of use since they failed.
    gone: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    jobs: dict[str, _Job] = field(default_factory=dict)
    #: Seconds between two checkpoints.
    intervals_s: list[float] = field(default_factory=list)
    conditions: Conditions = field(default_factory=Conditions)
    t: float = 0.0
    over_s: float = 0.0
    #: Of the stream that is read: what its jobs' names begin with, and whether slots that fail are held.
    prefix: str = ""
    holds: bool = False

    def read(self, stream: Stream) -> None:
        """Take a stream in."""
        header, began_s, first_t = stream.header, self.t, None
        self.gone, self.held = set(self.node), set()  # whoever is there says so
        alone = header.machine == "placement"
        self.prefix = f"{header.stream}/" if alone else ""
        self.holds = alone and header.config["hold_s"] > 0.0
        terms = header.config.get("terms", {}) if alone else {"locality_frac": PlacementSettings().locality_frac}
        self.conditions = Conditions(
            order=header.config["order"] if alone else "fifo",
            backfill=header.config["backfill"] if alone else "greedy",
            restart_s=terms.get("restart_s", _RESTART_S),
            locality_frac=terms.get("locality_frac", 0.0),
            checkpoint_cost_s=0.0,
        )
        if header.snapshot is not None and not alone:
            for slot in fresh_machine(header).state.leases.slots.values():
                self._here(slot.name, slot.node, here=not slot.gone)
        for event, answer in stream.answers():
            first_t = event.t if first_t is None else first_t
            self.t = began_s + event.t - first_t
            for record in (event, *answer):
                if rule := _RULES.get(type(record)):
                    rule(self, record)
        for slot in list(self.failed_s):
            self._ended(slot)
        for job in self.jobs.values():
            if job.began_s is not None:
                job.work_s, job.began_s = job.work_s + (self.t - job.began_s) / job.slowdown, None

    def history(self) -> History:
        """Return all that was read."""
        slots = tuple(sorted(self.node))
        nodes = sorted(set(self.node.values()))
        cluster = Cluster(tuple([nodes.index(self.node[slot]) for slot in slots]))
        outages = [tuple(self.outages[slot]) for slot in slots]
        away_s = [sum(back - fails for fails, back in some) for some in outages]
        seen_s = [self.t - self.added_s[slot] - away for slot, away in zip(slots, away_s, strict=True)]
        worked = [(name, job) for name, job in self.jobs.items() if job.work_s > 0.0]
        checkpoint_s = max(_LEAST_S, median(self.intervals_s)) if self.intervals_s else None
        return History(
            slots=slots,
            cluster=cluster,
            jobs=tuple([
                TraceJob(name, job.submitted_s, min(job.n_slots, len(slots)), job.work_s) for name, job in worked
            ]),
            outages=tuple(outages),
            rate_hz=rates_hz([len(some) for some in outages], seen_s, cluster.node_of),
            conditions=replace(self.conditions, checkpoint_s=checkpoint_s),
            lasted_s=self.t,
            makespan_s=self.over_s,
        )

    # ------------------------------------------------------------------ slots
    def _here(self, slot: str, node: str, *, here: bool) -> None:
        self.node[slot] = node
        self.added_s.setdefault(slot, self.t)
        self.outages.setdefault(slot, [])
        (self.gone.discard if here else self.gone.add)(slot)

    def added(self, event: leasing.SlotAdded) -> None:
        """Take in a slot that is new, or back, or another process than before."""
        if event.slot in self.node and event.slot not in self.gone and not self.holds:
            self.failed_s.setdefault(event.slot, self.t)
        self._here(event.slot, event.node, here=True)
        self._usable(event.slot)

    def failed(self, event: leasing.SlotFailed) -> None:
        """Note a failure; where slots are held that failed, one that is not did not fail by itself."""
        if event.slot in self.node and event.slot not in self.gone:
            self.gone.add(event.slot)
            if not self.holds:
                self.failed_s.setdefault(event.slot, self.t)

    def node_lost(self, event: words.NodeLost) -> None:
        """Note that all slots of a node failed."""
        for slot, node in self.node.items():
            if node == event.node and slot not in self.gone:
                self.gone.add(slot)
                self.failed_s.setdefault(slot, self.t)

    def deadline_set(self, command: SetDeadline) -> None:
        """Note that a slot is kept out of use, which is what a failure comes to."""
        kind, _, slot = command.name.partition(":")
        if kind == HOLD and slot in self.node:
            self.held.add(slot)
            self.failed_s.setdefault(slot, self.t)

    def deadline_passed(self, event: DeadlinePassed) -> None:
        """Note that a slot was kept out of use for long enough."""
        kind, _, slot = event.name.partition(":")
        if kind == HOLD:
            self.held.discard(slot)
            self._usable(slot)

    def set(self, event: SettingChanged) -> None:
        """Note that the user gave a slot back."""
        if event.key == "slot.undrain":
            self.held.discard(str(event.value))
            self._usable(str(event.value))

    def _usable(self, slot: str) -> None:
        if slot in self.failed_s and slot not in self.gone and slot not in self.held:
            self._ended(slot)

    def _ended(self, slot: str) -> None:
        self.outages[slot].append((self.failed_s.pop(slot), self.t))

    # ------------------------------------------------------------------ jobs that were placed alone
    def submitted(self, event: words.JobSubmitted) -> None:
        """Note a job."""
        self.jobs[self.prefix + event.job] = _Job(submitted_s=self.t, n_slots=event.n_slots)

    def planned(self, decision: words.GangPlanned) -> None:
        """Note the beginning of a gang."""
        if job := self.jobs.get(self.prefix + decision.job):
            job.began_s, job.kept_s, job.lost_s = self.t, 0.0, 0.0
            job.slowdown = self._slowdown(decision.slots)

    def saved(self, event: words.CheckpointSaved) -> None:
        """Note a checkpoint, and the seconds since the one before."""
        if (job := self.jobs.get(self.prefix + event.job)) and event.kept_s > job.kept_s:
            self.intervals_s.append(event.kept_s - job.kept_s)
            job.kept_s = event.kept_s

    def stopped(self, event: words.GangStopped) -> None:
        """Count the work of a gang that is kept."""
        self._worked(event.job, event.kept_s, event.ran_s - event.kept_s)

    def finished(self, event: words.JobFinished) -> None:
        """Count the work of a job's last gang."""
        self._worked(event.job, event.ran_s, 0.0)
        self.over_s = self.t

    def job_failed(self, decision: words.JobFailed) -> None:
        """Count the work of a job that will not be made again: how a job ends says nothing of its slots."""
        if job := self.jobs.get(self.prefix + decision.job):
            job.work_s, job.lost_s = job.work_s + job.lost_s, 0.0

    def _worked(self, name: str, kept_s: float, lost_s: float) -> None:
        if (job := self.jobs.get(self.prefix + name)) and job.began_s is not None:
            job.work_s += kept_s / job.slowdown
            job.lost_s, job.began_s = lost_s / job.slowdown, None

    # ------------------------------------------------------------------ tasks of a fleet
    def released(self, decision: leasing.LeaseReleased) -> None:
        """Count the seconds of a lease whose work is kept; a task is a job of as many slots as it ever had at once."""
        if decision.reason in _KEPT:
            job = self.jobs.setdefault(decision.task, _Job(submitted_s=self.t, n_slots=1))
            job.n_slots = max(job.n_slots, len(decision.slots))
            job.work_s += decision.held_s / self._slowdown(decision.slots)
            self.intervals_s.append(decision.held_s)

    def _slowdown(self, slots: tuple[str, ...]) -> float:
        nodes = sorted(set(self.node.values()))
        cluster = Cluster(tuple([nodes.index(node) for node in self.node.values()]))
        n_nodes = len({self.node.get(slot, "") for slot in slots})
        return self.conditions.terms.slowdown(n_nodes, min(n_nodes, cluster.least_nodes(len(slots))))


#: Record -> what it says.
_RULES: Mapping[type[Record], Callable[..., None]] = {
    leasing.SlotAdded: _Reader.added,
    leasing.SlotFailed: _Reader.failed,
    words.NodeLost: _Reader.node_lost,
    SetDeadline: _Reader.deadline_set,
    DeadlinePassed: _Reader.deadline_passed,
    SettingChanged: _Reader.set,
    words.JobSubmitted: _Reader.submitted,
    words.GangPlanned: _Reader.planned,
    words.CheckpointSaved: _Reader.saved,
    words.GangStopped: _Reader.stopped,
    words.JobFinished: _Reader.finished,
    words.JobFailed: _Reader.job_failed,
    leasing.LeaseReleased: _Reader.released,
}


def history_of(past: object) -> History:
    """Return what became of slots and jobs of a past run.

    Parameters
    ----------
    past
        The folder of a run, its journal, or what has a ``journal()``, such as what :func:`drlnb.placement.place` and a
        fleet's ``train`` return.

    Raises
    ------
    ConfigError
        If it is none of them, or in it no slot was there or no job has computed.
    JournalError
        If the journal cannot be read.
    """
    name = "history"
    if isinstance(past, str | PathLike):
        past, name = Journal.read(Path(past)), f"history {past}"
    elif callable(asked := getattr(past, "journal", None)):
        past = asked()
    if not isinstance(past, Journal):
        raise ConfigError(
            f"history must be the folder of a run, a journal, or what has one (a fleet's run, what place returns), got "
            f"{past!r}"
        )
    reader = _Reader()
    for stream in past.streams.values():
        if stream.header.machine in _MACHINES:
            reader.read(stream)
    history = reader.history()
    if not history.slots:
        raise ConfigError(f"{name} has no slots: it must be of a fleet's run, or of drlnb.placement.place")
    if not history.jobs:
        raise ConfigError(f"{name} has no job that has computed: there is nothing to train on")
    return history
