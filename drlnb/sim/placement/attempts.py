"""Say what an attempt of a job takes and keeps, and what all attempts of a window came to."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from drlnb.planning.placement import JobView, Terms
from drlnb.planning.placement.closed_form import least_makespan_s
from drlnb.planning.placement.order import BACKFILLS, ORDERS
from drlnb.records.base import Facts, shared
from drlnb.records.settings import NOT_NEGATIVE, Declared, between, choice, fitting, is_number, setting
from drlnb.sim.placement.traces import TraceJob

__all__ = ["Attempt", "Conditions", "Outcome", "kept_s", "outcome_of", "paced_s"]

_INTERVAL = fitting(
    "a number from 1 to 1e9, none or young",
    lambda value: value is None or value == "young" or (is_number(value) and 1 <= value <= 1e9),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions(Declared):
    """What holds for all jobs of a cluster."""

    #: Whose turn it is: ``fifo``, or ``largest`` number of slots times seconds first.
    order: str = setting("fifo", choice(*ORDERS))
    #: Whether any later job that fits may start (``greedy``), or one that does not delay the next of the queue.
    backfill: str = setting("greedy", choice(*BACKFILLS))
    #: Seconds of work between checkpoints; None: none; ``young``: as many for each gang as cost it least (Young's
    #: formula).  Seconds of one; seconds of every start but the first.
    checkpoint_s: float | Literal["young"] | None = setting(3600.0, _INTERVAL)
    checkpoint_cost_s: float = setting(10.0, NOT_NEGATIVE)
    restart_s: float = setting(600.0, NOT_NEGATIVE)
    #: Share by which a gang is slower for each node, up to four, beyond the fewest that could hold it.
    locality_frac: float = setting(0.0, between(0, 10))
    #: Share by which a gang is slower for each other gang on its nodes that is on several nodes.
    interference_frac: float = setting(0.0, between(0, 10))

    @classmethod
    def together(cls, values: Facts, wrong: Collection[str]) -> list[str]:
        """Refuse checkpoints that cost nothing where each gang has as many as cost it least: they would never end."""
        free = values["checkpoint_s"] == "young" and values["checkpoint_cost_s"] == 0
        return ["checkpoint_s=young needs a checkpoint_cost_s above 0"] * free

    @property
    def terms(self) -> Terms:
        """What a planner is told of them."""
        each = shared(self, Terms)
        return Terms(**each | {"checkpoint_s": None}, young=True) if self.checkpoint_s == "young" else Terms(**each)


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


def paced_s(terms: Terms, job: JobView, slowdown: float, ran_s: float, new: float) -> float:
    """Return after how many seconds at another slowdown an attempt would be where it is: only work takes longer.

    Examples
    --------
    Of 60 seconds 10 were the restart; of the others a checkpoint took 1, and 49 were work:

    >>> terms = Terms(checkpoint_s=20.0, checkpoint_cost_s=1.0, restart_s=10.0)
    >>> paced_s(terms, JobView(job="a", n_slots=1, work_s=30.0, started=True), 1.5, 60.0, 3.0)
    109.0
    """
    lead_s = min(ran_s, terms.restart_s if job.started else 0.0)
    every_s, cost_s = (terms.checkpoint_s, terms.checkpoint_cost_s) if terms.checkpoint_s else (math.inf, 0.0)
    n, rest_s = divmod(ran_s - lead_s, every_s * slowdown + cost_s)
    work_s = min(rest_s, every_s * slowdown)
    begun_s = n * (every_s * new + cost_s) if n else 0.0
    return lead_s + begun_s + work_s * new / slowdown + rest_s - work_s


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
