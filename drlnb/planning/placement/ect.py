"""Choose the slots on which a gang is expected to be over first (ours)."""

import math
from collections.abc import Sequence

from drlnb.planning.placement.closed_form import log_completion
from drlnb.planning.placement.cluster import ClusterView, JobView
from drlnb.planning.placement.rules import best_fit, healthiest, healthiest_packed, rate_of

__all__ = ["best_of", "candidates", "ect", "log_completion_on"]

#: A later candidate is taken if it is expected to take less than this share of the best one's time: scattered gangs
#: leave scattered slots to those that follow, which costs more than smaller gains bring.
_LESS = math.log(0.98)


def ect(view: ClusterView, job: JobView) -> Sequence[int]:
    """Return the slots of three rules of the least expected completion (expected completion time).

    Best fit with the healthiest slots of each node, the healthiest of few nodes, the healthiest anywhere, in this
    order.  The slot of a member that fails is taken to be replaced at once by another one.
    """
    weighed = [slots for _, slots in candidates(view, job)]
    return weighed[best_of([log_completion_on(view, job, (*job.kept, *slots)) for slots in weighed])]


def best_of(logs: Sequence[float]) -> int:
    """Return which candidate is taken, by the logarithms of the seconds that they are expected to take."""
    best = 0
    for i, log in enumerate(logs):
        if log < logs[best] + _LESS:
            best = i
    return best


def candidates(view: ClusterView, job: JobView) -> list[tuple[str, list[int]]]:
    """Return the slots that are weighed, each with the rule that they are from."""
    return [
        ("best_fit", best_fit(view, job, by_health=True)),
        ("healthiest_packed", healthiest_packed(view, job)),
        ("healthiest", healthiest(view, job)),
    ]


def log_completion_on(view: ClusterView, job: JobView, slots: Sequence[int]) -> float:
    """Return the logarithm of the seconds that a job is expected to take on some slots."""
    rate_hz = rate_of(view.rate_hz, slots)
    terms = view.terms.of(rate_hz)
    return log_completion(
        job.work_s,
        rate_hz,
        checkpoint_s=terms.checkpoint_s,
        checkpoint_cost_s=terms.checkpoint_cost_s,
        restart_s=terms.restart_s,
        slowdown=view.slowdown(slots, job.n_slots),
    )
