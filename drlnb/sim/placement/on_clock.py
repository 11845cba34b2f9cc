"""Play jobs under the machine that places them on real workers, on a virtual clock: slower, and with a journal.

What the machine commands takes as long as it should; both start the same gangs at the same times.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import count
from math import inf
from typing import NamedTuple

import drlnb
from drlnb.planning.placement import Cluster, JobView, Terms
from drlnb.planning.placement.cluster import attempt_s
from drlnb.planning.placement.jobs.machine import PlacementMachine
from drlnb.planning.placement.jobs.state import INSTANT
from drlnb.planning.placement.planner import node_of
from drlnb.planning.placement.rules import rate_of
from drlnb.planning.registry import PlannerFailed, Planners
from drlnb.records.base import Event, Record
from drlnb.records.columns import placement as words
from drlnb.records.columns.leasing import SlotAdded, SlotFailed
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Stream, StreamOpened
from drlnb.sim.placement.attempts import Attempt, Conditions, Outcome, kept_s, outcome_of
from drlnb.sim.placement.faults import FaultPath
from drlnb.sim.placement.traces import TraceJob

__all__ = ["play_on_clock"]


class _Gang(NamedTuple):
    """A gang that computes."""

    version: int
    job: JobView
    slots: tuple[int, ...]
    terms: Terms
    slowdown: float
    began_s: float


class _OnClock:
    """A machine, its journal, and what is to come."""

    def __init__(self, cluster: Cluster, path: FaultPath, conditions: Conditions, machine: PlacementMachine) -> None:
        self.cluster, self.path, self.terms, self.machine = cluster, path, conditions.terms, machine
        width = len(str(cluster.n_slots - 1))
        self.names = [f"n{node}/slot{slot:0{width}}" for slot, node in enumerate(cluster.node_of)]
        self.records: list[Record] = []
        self.attempts: list[Attempt] = []
        self._gangs: dict[str, _Gang] = {}
        self._t, self._order = 0.0, count()
        self._coming: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []

    def play(self, jobs: list[TraceJob]) -> None:
        """Go on until all jobs are over."""
        for slot in range(self.cluster.n_slots):
            self._add(slot, 0)
        for job in jobs:
            fields = {"job": job.job, "n_slots": job.n_slots, "work_s": job.work_s}
            self._at(job.submitted_s, self._feed, words.JobSubmitted, fields)
        while sum(each.finished for each in self.attempts) < len(jobs):
            self._t, _, call, arguments = heapq.heappop(self._coming)
            call(*arguments)

    def _at(self, t: float, call: Callable[..., None], *arguments: object) -> None:
        heapq.heappush(self._coming, (t, next(self._order), call, arguments))

    def _feed(self, kind: type[Event], fields: dict[str, object]) -> None:
        """Journal an event, and carry out what the machine commands."""
        event = kind(t=self._t, **fields)
        answer = self.machine.handle(event)
        self.records += [event, *answer]
        for record in answer:
            if isinstance(record, SetDeadline):
                if record.name == INSTANT:  # the others are of members that are late: none is here
                    self._at(self._t, self._feed, DeadlinePassed, {"name": record.name})
            elif isinstance(record, words.StartGang):
                self._start(record)
            elif isinstance(record, words.StopGang):
                self._at(self._t, self._stop, record.job)
            elif isinstance(record, words.JobFailed):
                raise PlannerFailed(record.reason)

    # ------------------------------------------------------------------ slots
    def _add(self, slot: int, k: int) -> None:
        """Add a slot; both ends of its next outage come one after the other, even in one instant."""
        name = self.names[slot]
        self._feed(SlotAdded, {"slot": name, "node": node_of(name), "device": "cpu", "executor_epoch": 0})
        fails_s, back_s = self.path.outage(slot, k)
        if fails_s < inf:
            self._at(fails_s, self._feed, SlotFailed, {"slot": name, "reason": "drawn"})
            self._at(back_s, self._add, slot, k + 1)

    # ------------------------------------------------------------------ gangs
    def _start(self, command: words.StartGang) -> None:
        slots = tuple(map(self.names.index, command.slots))
        job = JobView(job=command.job, n_slots=len(slots), work_s=command.work_s, started=command.gang_version > 1)
        nodes = {self.cluster.node_of[slot] for slot in slots}
        slowdown = self.terms.slowdown(len(nodes), self.cluster.least_nodes(len(slots)))
        terms = self.terms.of(rate_of(self.path.rate_hz, slots))
        self._gangs[job.job] = _Gang(command.gang_version, job, slots, terms, slowdown, self._t)
        self._at(self._t + attempt_s(terms, job, slowdown), self._end, job.job, command.gang_version)

    def _end(self, name: str, version: int) -> None:
        if name in self._gangs and self._gangs[name].version == version:
            gang = self._gangs.pop(name)
            self.attempts.append(Attempt(name, gang.slots, gang.began_s, self._t, gang.job.work_s, True))
            self._feed(words.JobFinished, {"job": name, "gang_version": version, "ran_s": self._t - gang.began_s})

    def _stop(self, name: str) -> None:
        gang = self._gangs.pop(name)
        ran_s = self._t - gang.began_s
        kept = kept_s(gang.terms, gang.job, gang.slowdown, ran_s)
        self.attempts.append(Attempt(name, gang.slots, gang.began_s, self._t, kept, False))
        stopped = {"job": name, "gang_version": gang.version, "ran_s": ran_s, "kept_s": kept}
        self._feed(words.GangStopped, stopped)


def play_on_clock(
    cluster: Cluster,
    jobs: Iterable[TraceJob],
    planner: str,
    path: FaultPath,
    conditions: Conditions | None = None,
    *,
    own: Planners | None = None,
    stream: str = "placement",
) -> tuple[Outcome, Stream]:
    """Play jobs under a planner, and return what they came to and the machine's journal, which replays.

    Parameters
    ----------
    cluster, jobs, path
        As of :func:`~drlnb.sim.placement.play.simulate`.
    planner
        Name of a planner.
    conditions
        None: the defaults.
    own
        Planners of the user's own, one of which is meant.
    stream
        Name of the journal.

    Raises
    ------
    ConfigError, ValueError
        If there is no planner of the name, or gangs slow each other down, which the fast loop alone plays.
    PlannerFailed
        If the planner raises, or returns a plan that does not fit.
    """
    conditions = conditions or Conditions()
    if conditions.interference_frac:
        raise ConfigError("the machine knows no gangs that slow each other down: interference_frac must be 0")
    config = {
        "planner": planner,
        "order": conditions.order,
        "backfill": conditions.backfill,
        "terms": asdict(conditions.terms),
        "hold_s": 0.0,
        "downtime_s": path.mttr_s,
        "rate_hz": list(path.rate_hz),
    }
    known = sorted(jobs, key=lambda job: job.submitted_s)
    game = _OnClock(cluster, path, conditions, PlacementMachine(config, own))
    game.play(known)
    header = StreamOpened(
        stream=stream, machine="placement", config=config, origin="simulated", version=drlnb.__version__
    )
    n_plans = sum(isinstance(record, words.GangPlanned) for record in game.records)
    outcome = outcome_of(game.attempts, known, cluster.n_slots, n_plans)
    return outcome, Stream(header=header, records=tuple(game.records), torn=False, source=stream)
