"""Say what an attempt of a job takes and keeps, and what all attempts of a window came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drlnb.planning.placement import JobView, Terms
from drlnb.planning.placement.closed_form import least_makespan_s
from drlnb.planning.placement.order import BACKFILLS, ORDERS
from drlnb.records.base import shared
from drlnb.records.settings import NOT_NEGATIVE, Declared, between, choice, optional, setting
from drlnb.sim.placement.traces import TraceJob

__all__ = ["Attempt", "Conditions", "Outcome", "kept_s", "outcome_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions(Declared):
    """What holds for all jobs of a cluster."""

    #: Whose turn it is: ``fifo``, or ``largest`` number of slots times seconds first.
    order: str = setting("fifo", choice(*ORDERS))
    #: Whether any later job that fits may start (``greedy``), or one that does not delay the next of the queue.
    backfill: str = setting("greedy", choice(*BACKFILLS))
    #: Seconds of work between checkpoints, None: none; seconds of one; seconds of every start but the first.
    checkpoint_s: float | None = setting(3600.0, optional(between(1, 1e9)))
    checkpoint_cost_s: float = setting(10.0, NOT_NEGATIVE)
    restart_s: float = setting(600.0, NOT_NEGATIVE)
    #: Share by which a gang is slower for each node, up to four, beyond the fewest that could hold it.
    locality_frac: float = setting(0.0, between(0, 10))

    @property
    def terms(self) -> Terms:
        """What a planner is told of them."""
        return Terms(**shared(self, Terms))


class Attempt(NamedTuple):
    """One gang of a job, from its start to its end or to the failure of a member."""

    job: str
    slots: tuple[int, ...]
    started_s: float
    ended_s: float
    #: Work that it has added to the job's.
    kept_s: float
    #: The job is over.
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the jobs of a window came to."""

    #: Seconds until all were over, and before which no plan could have ended them.
    makespan_s: float
    bound_s: float
    #: Mean seconds from a job's submission to its end.
    jct_s: float
    #: Slot seconds that failures cost: computed and not kept, restarts and checkpoints with them.
    lost_gpu_s: float
    #: Slot seconds of the jobs' work over those of the cluster, and over those that they held.
    utilisation: float
    ettr: float
    n_restarts: int
    #: Times that a planner was asked.
    n_plans: int
    #: In the order of their ends.
    attempts: tuple[Attempt, ...]


def kept_s(terms: Terms, job: JobView, slowdown: float, ran_s: float) -> float:
    """Return the seconds of work that checkpoints have kept of an attempt.

    Examples
    --------
    >>> kept_s(Terms(checkpoint_s=3600.0), JobView(job="a", n_slots=1, work_s=9000.0), 1.0, 7220.0)
    7200.0
    """
    if terms.checkpoint_s is None:
        return 0.0
    each_s = terms.checkpoint_s * slowdown + terms.checkpoint_cost_s
    lead_s = terms.restart_s if job.started else 0.0
    return terms.checkpoint_s * (max(0.0, ran_s - lead_s) // each_s)


def outcome_of(attempts: Sequence[Attempt], jobs: Sequence[TraceJob], n_slots: int, n_plans: int) -> Outcome:
    """Return what attempts came to: each job has one that finished."""
    submitted_s = {job.job: job.submitted_s for job in jobs}
    work = [(job.n_slots, job.work_s) for job in jobs]
    area = sum(n * work_s for n, work_s in work)
    over = [each for each in attempts if each.finished]
    broken = [each for each in attempts if not each.finished]
    makespan_s = max(each.ended_s for each in over)
    return Outcome(
        makespan_s=makespan_s,
        bound_s=max(least_makespan_s(work, n_slots), *(job.submitted_s + job.work_s for job in jobs)),
        jct_s=sum(each.ended_s - submitted_s[each.job] for each in over) / len(over),
        lost_gpu_s=sum(len(each.slots) * (each.ended_s - each.started_s - each.kept_s) for each in broken),
        utilisation=area / (n_slots * makespan_s),
        ettr=area / sum(len(each.slots) * (each.ended_s - each.started_s) for each in attempts),
        n_restarts=len(broken),
        n_plans=n_plans,
        attempts=tuple(attempts),
    )
