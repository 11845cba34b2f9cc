"""What tests of the learned planners of gangs share: views, and batches whose best answer is known."""

from dataclasses import dataclass
from itertools import repeat

from drlnb.learned.placement.playing import Batch
from drlnb.planning.placement import Cluster, ClusterView, JobView


@dataclass(frozen=True)
class Ended:
    """What a run came to."""

    makespan_s: float


def view_of(rates, *, nodes=None, state=None, jobs=((1, 3600.0),), **fields):
    """Return a view of slots of these failures a day."""
    n = len(rates)
    return ClusterView(
        cluster=Cluster(tuple(nodes or (0,) * n)),
        state=tuple(state or ("free",) * n),
        rate_hz=tuple(rate / 86_400 for rate in rates),
        window=tuple(JobView(job=f"j{i}", n_slots=k, work_s=work_s) for i, (k, work_s) in enumerate(jobs)),
        **fields,
    )


def batch_of(view, makespan_s):
    """Return a batch of one decision, whose makespan in seconds is a function of the plan."""

    def play():
        pick = yield view
        return Ended(makespan_s(pick))

    return Batch(play, window=len(view.window) > 1)


def endless(batch):
    """Return the same batch without end."""
    return repeat(batch)


class Count:
    """Progress by the number of times that it was asked."""

    def __init__(self, n):
        self.n, self.asked = n, -1

    def __call__(self):
        self.asked += 1
        return self.asked / self.n
