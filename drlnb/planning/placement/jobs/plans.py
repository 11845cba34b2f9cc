"""Choose which jobs start, and on which slots."""

import math
from collections.abc import Sequence
from dataclasses import replace

from drlnb.planning.machine import Out
from drlnb.planning.placement.cluster import Cluster, ClusterView, JobView, Pick, attempt_s
from drlnb.planning.placement.ect import candidates, log_completion_on
from drlnb.planning.placement.gangs import GANGS, WAIT
from drlnb.planning.placement.health import DAY_S, n_since, rates_hz
from drlnb.planning.placement.jobs.state import START, Placing
from drlnb.planning.placement.order import job_window, order_of, unreserved
from drlnb.planning.placement.rules import rate_of
from drlnb.planning.registry import PlannerFailed
from drlnb.records.columns import placement as words
from drlnb.records.common import SetDeadline

__all__ = ["START_S", "plan"]

#: Seconds that members have to start.
START_S = 30.0
#: An expectation in seconds is at most the exponential of it.
_MOST_LOG = 700.0


def plan(state: Placing, out: Out) -> None:
    """Start the jobs that can be, and say once of which there are too few slots."""
    planner = state.planners.make(GANGS, state.planner)
    while jobs := _startable(state, whole=GANGS.trait(planner, "window")):
        view = _view(state, jobs, history=GANGS.trait(planner, "history"))
        try:
            pick = GANGS.ask(planner, view)
            if pick is None or pick == WAIT:
                if not state.count("failed") and not any(job.slots for job in state.jobs.values()):
                    raise PlannerFailed(f"{GANGS.decision} planner {planner.name}: waits, though nothing is to come")
                out.append(words.JobPostponed(job=jobs[0].job, reason=f"planner {planner.name} has it wait"))
                break
            _start(state, view, pick, planner.name, out)
        except PlannerFailed as error:
            state.jobs[jobs[0].job].failed = str(error)
            state.over(jobs[0].job, out)
    n_alive = len(state.slots) - state.count("failed") - state.count("masked")
    for name, job in state.jobs.items():
        if job.phase == "waiting" and job.n_slots > n_alive and not job.postponed:
            job.postponed = True
            out.append(words.JobPostponed(job=name, reason=f"needs {job.n_slots} slots, {n_alive} alive"))


def _startable(state: Placing, *, whole: bool) -> tuple[JobView, ...]:
    """Return the jobs that a planner may start now: the next one, or a window of the queue."""
    # A job keeps its place, whatever is left of it.
    waiting = [
        JobView(job=name, n_slots=job.n_slots, work_s=job.work_s)
        for name, job in state.jobs.items()
        if job.phase == "waiting"
    ]
    queue = [state.view(first.job) for first in order_of(state.order)(waiting)]
    n_free = state.count("free")
    if not queue or not n_free:
        return ()
    if state.backfill == "greedy":
        fitting = [job for job in queue if job.n_slots <= n_free]
    else:
        ends = [(job.ends_t, job.n_slots) for job in state.jobs.values() if job.slots]
        ends.append((state.t + state.downtime_s, state.count("failed")))
        fitting = list(unreserved(queue, n_free, state.t, ends, lambda job: _most_s(state, job)))
    return job_window(fitting) if whole else tuple(fitting[:1])


def _cluster(state: Placing) -> Cluster:
    return Cluster(tuple([slot.node for slot in state.slots.values()]))


def _most_s(state: Placing, job: JobView) -> float:
    """Return how long a job takes on as many nodes as there are."""
    n_least = _cluster(state).least_nodes(job.n_slots)
    most_hz = sum(sorted(_rates_hz(state))[-job.n_slots :]) if state.terms.young else 0.0
    return attempt_s(state.terms.of(most_hz), job, state.terms.slowdown(len(state.nodes), n_least))


def _rates_hz(state: Placing) -> tuple[float, ...]:
    """Return the failures per second to expect of each slot; a worker that dies is missed whether it is busy or not."""
    slots = state.slots.values()
    seen_s = [slot.up_s + (state.t - slot.added_t if slot.up else 0.0) for slot in slots]
    return tuple(
        state.rate_hz or rates_hz([len(slot.failed_t) for slot in slots], seen_s, [slot.node for slot in slots])
    )


def _view(state: Placing, jobs: tuple[JobView, ...], *, history: bool) -> ClusterView:
    """Return the cluster as it is, with the jobs that may start."""
    slots = list(state.slots.values())
    states = tuple([state.state_of(slot) for slot in slots])
    n_wide = [0] * len(state.nodes)
    for job in state.jobs.values():
        nodes = {slots[i].node for i in job.slots}
        for node in nodes if len(nodes) > 1 else ():
            n_wide[node] += 1
    view = ClusterView(
        cluster=_cluster(state),
        state=states,
        rate_hz=_rates_hz(state),
        window=jobs,
        terms=state.terms,
        t=state.t,
        n_wide=tuple(n_wide),
        names=tuple(state.slots),
    )
    return _with_history(state, view) if history else view


def _with_history(state: Placing, view: ClusterView) -> ClusterView:
    """Add what has become of each slot."""
    t, slots = state.t, list(zip(state.slots.values(), view.state, strict=True))
    ends_t = {name: job.ends_t for name, job in state.jobs.items()}
    busy_s = [state.downtime_s if word == "failed" else max(0.0, ends_t.get(slot.job, t) - t) for slot, word in slots]
    return replace(
        view,
        busy_for_s=tuple(busy_s),
        n_failures_24h=tuple([n_since(slot.failed_t, t - DAY_S) for slot, _ in slots]),
        n_failures_30d=tuple([n_since(slot.failed_t, t - 30 * DAY_S) for slot, _ in slots]),
        up_for_s=tuple([0.0 if word == "failed" else t - slot.added_t for slot, word in slots]),
    )


def _start(state: Placing, view: ClusterView, pick: Pick, planner: str, out: Out) -> None:
    """Start a job on the slots that were picked."""
    job, asked = state.jobs[pick.job], state.view(pick.job)
    options = [_candidate(view, asked, rule, slots) for rule, slots in candidates(view, asked)]
    chosen = _candidate(view, asked, planner, pick.slots)
    job.version, job.phase, job.slots, job.postponed = job.version + 1, "running", tuple(pick.slots), False
    terms = state.terms.of(rate_of(view.rate_hz, pick.slots))
    job.ends_t = state.t + attempt_s(terms, asked, view.slowdown(pick.slots, job.n_slots))
    for slot in chosen.slots:
        state.slots[slot].job = pick.job
    planned = words.GangPlanned(
        job=pick.job,
        gang_version=job.version,
        slots=chosen.slots,
        planner=planner,
        expected_s=chosen.expected_s,
        candidates=tuple(options),
    )
    start = words.StartGang(job=pick.job, gang_version=job.version, slots=chosen.slots, work_s=job.left_s)
    out += [planned, start, SetDeadline(name=f"{START}:{pick.job}", after_s=START_S)]


def _candidate(view: ClusterView, job: JobView, rule: str, slots: Sequence[int]) -> words.Candidate:
    """Describe slots for a job; seconds to the millisecond, since the last bits of exponentials differ."""
    expected_s = round(math.exp(min(_MOST_LOG, log_completion_on(view, job, slots))), 3)
    n_nodes = len({view.cluster.node_of[i] for i in slots})
    return words.Candidate(rule, tuple([view.names[i] for i in slots]), expected_s, n_nodes)
