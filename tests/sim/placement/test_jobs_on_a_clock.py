"""The machine of jobs on a virtual clock does what the fast loop does: the same gangs at the same times."""

import heapq
from dataclasses import asdict
from itertools import count

import numpy as np
import pytest

from drlnb.planning.placement import Cluster, Pick
from drlnb.planning.placement.cluster import JobView, attempt_s
from drlnb.planning.placement.jobs.machine import PlacementMachine
from drlnb.planning.registry import Planners
from drlnb.planning.replay import replay
from drlnb.records.columns import placement as words
from drlnb.records.columns.leasing import SlotAdded, SlotFailed
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.journal import Stream, StreamOpened
from drlnb.sim.placement import Conditions, FaultModel, TraceJob, simulate
from drlnb.sim.placement.attempts import Attempt, kept_s, outcome_of

PLANNERS = ("ect", "first", "best_fit", "healthiest", "healthiest_packed", "interference_aware", "random:seed=3")


class OnClock:
    """Jobs of a window on slots that fail, decided by the machine; what it commands takes as long as it should."""

    def __init__(self, cluster, jobs, path, planner="ect", own=None, **how):
        self.cluster, self.jobs, self.path = cluster, sorted(jobs, key=lambda job: job.submitted_s), path
        conditions = Conditions.from_mapping(how)
        self.terms = conditions.terms
        self.config = {
            "planner": planner,
            "order": conditions.order,
            "backfill": conditions.backfill,
            "terms": asdict(self.terms),
            "hold_s": 0.0,
            "downtime_s": path.mttr_s,
            "rate_hz": list(path.rate_hz),
        }
        self.machine = PlacementMachine(self.config, Planners(own))
        self.t, self.heap, self.order = 0.0, [], count()
        self.records, self.gangs, self.attempts = [], {}, []

    def at(self, t, call, *arguments):
        heapq.heappush(self.heap, (t, next(self.order), call, arguments))

    def feed(self, kind, **fields):
        event = kind(t=self.t, **fields)
        answer = self.machine.handle(event)
        self.machine.check()
        self.records += [event, *answer]
        for record in answer:
            if isinstance(record, SetDeadline):
                if record.name == "instant":  # the others are of members that are late: none is here
                    self.at(self.t, self.tell, DeadlinePassed, {"name": record.name})
            elif isinstance(record, words.StartGang):
                self.start(record)
            elif isinstance(record, words.StopGang):
                self.at(self.t, self.stop, record.job)
        return answer

    def outage(self, slot, k):
        """Set both ends of an outage, so that those of one instant come one after the other."""
        fails_s, back_s = self.path.outage(slot, k)
        if fails_s < float("inf"):
            self.at(fails_s, self.tell, SlotFailed, {"slot": str(slot), "reason": "drawn"})
            self.at(back_s, self.back, slot, k + 1)

    def tell(self, kind, fields):
        self.feed(kind, **fields)

    def back(self, slot, k):
        self.add(slot)
        self.outage(slot, k)

    def add(self, slot):
        self.feed(SlotAdded, slot=str(slot), node=f"n{self.cluster.node_of[slot]}", device="cpu", executor_epoch=0)

    def start(self, command):
        slots = tuple(map(int, command.slots))
        job = JobView(job=command.job, n_slots=len(slots), work_s=command.work_s, started=command.gang_version > 1)
        nodes = {self.cluster.node_of[slot] for slot in slots}
        slowdown = self.terms.slowdown(len(nodes), self.cluster.least_nodes(len(slots)))
        terms = self.terms.of(sum(self.path.rate_hz[slot] for slot in sorted(slots)))
        self.gangs[command.job] = command.gang_version, job, slots, terms, slowdown, self.t
        self.at(self.t + attempt_s(terms, job, slowdown), self.end, command.job, command.gang_version)

    def end(self, name, version):
        if name in self.gangs and self.gangs[name][0] == version:
            _, job, slots, _, _, began_t = self.gangs.pop(name)
            self.attempts.append(Attempt(name, slots, began_t, self.t, job.work_s, True))
            self.feed(words.JobFinished, job=name, gang_version=version, ran_s=self.t - began_t)

    def stop(self, name):
        version, job, slots, terms, slowdown, began_t = self.gangs.pop(name)
        ran_s = self.t - began_t
        kept = kept_s(terms, job, slowdown, ran_s)
        self.attempts.append(Attempt(name, slots, began_t, self.t, kept, False))
        self.feed(words.GangStopped, job=name, gang_version=version, ran_s=ran_s, kept_s=kept)

    def play(self):
        for slot in range(self.cluster.n_slots):
            self.add(slot)
            self.outage(slot, 0)
        for job in self.jobs:
            fields = {"job": job.job, "n_slots": job.n_slots, "work_s": job.work_s}
            self.at(job.submitted_s, self.tell, words.JobSubmitted, fields)
        n_over = 0
        while n_over < len(self.jobs):
            self.t, _, call, arguments = heapq.heappop(self.heap)
            call(*arguments)
            n_over = sum(each.finished for each in self.attempts)
        return outcome_of(self.attempts, self.jobs, self.cluster.n_slots, 0)

    def stream(self):
        header = StreamOpened(
            stream="placement", machine="placement", config=self.config, origin="simulated", version="0"
        )
        return Stream(header=header, records=tuple(self.records), torn=False, source="placement")


class Choosy:
    """A planner with a window and a history: the job of the most slots there, on those that were up for longest."""

    name, window, history = "choosy", True, True

    def plan(self, view):
        job = max(view.window, key=lambda each: (each.n_slots, each.job))
        free = sorted(view.free(), key=lambda i: (view.n_failures_30d[i], view.n_failures_24h[i], -view.up_for_s[i], i))
        if sum(view.busy_for_s) > 3e5 and len(free) < 4:
            return None  # much is busy: wait
        return Pick(job.job, tuple(free[: job.n_slots]))


def instance(k):
    """Draw a cluster, jobs, faults and conditions."""
    rng = np.random.default_rng(k)
    cluster = Cluster.uniform(n_nodes=int(rng.integers(1, 5)), slots_per_node=int(rng.integers(1, 5)))
    jobs = [
        TraceJob(
            f"j{i}",
            float(rng.integers(0, 4)) * 3600.0 * (k % 2),
            int(rng.integers(1, cluster.n_slots + 1)),
            float(rng.choice([3600.0, 7200.0, 36_000.0 * rng.random() + 60.0])),
        )
        for i in range(int(rng.integers(1, 25)))
    ]
    model = FaultModel(mtbf_days=float(rng.choice([5.0, 20.0, 60.0])), mttr_s=float(rng.choice([0.0, 600.0, 7200.0])))
    path = model.path(model.rates(cluster, seed=k), seed=k)
    how = {
        "order": str(rng.choice(["fifo", "largest"])),
        "backfill": str(rng.choice(["greedy", "reserve"])),
        "checkpoint_s": [None, 3600.0, 600.0, "young"][int(rng.integers(4))],
        "locality_frac": float(rng.choice([0.0, 0.05, 0.15])),
    }
    return cluster, jobs, path, how


def differences(k, planner):
    """Return how an instance's gangs differ between the machine and the loop; empty if they do not."""
    cluster, jobs, path, how = instance(k)
    own = planner() if isinstance(planner, type) else None
    on_clock = OnClock(
        cluster,
        jobs,
        path,
        planner if own is None else f"own:{own.name}",
        None if own is None else {"gangs": own},
        **how,
    )
    ours = on_clock.play()
    theirs = simulate(cluster, jobs, planner if own is None else planner(), instance(k)[2], **how)
    mine, others = ([(a.job, a.slots, a.finished) for a in sorted(each.attempts)] for each in (ours, theirs))
    if mine != others:
        return f"{k}: {len(mine)} gangs, {len(others)} by the loop"
    for name in ("makespan_s", "jct_s", "lost_gpu_s", "ettr"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-9, abs=1e-9), (k, name)
    return replay(on_clock.stream()).difference or ""


@pytest.mark.parametrize("planner", [*PLANNERS, Choosy])
def test_the_machine_and_the_loop_start_the_same_gangs_at_the_same_times(planner):
    """On any cluster, jobs, faults, order and backfill; and the journal decides the same again."""
    assert [differences(k, planner) for k in range(4)] == [""] * 4


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(8))
def test_they_do_on_two_hundred_instances(part):
    """Times and lost slot seconds to 1e-9."""
    ks = range(100 + 25 * part, 125 + 25 * part)
    assert [found for k in ks if (found := differences(k, [*PLANNERS, Choosy][k % 8]))] == []
