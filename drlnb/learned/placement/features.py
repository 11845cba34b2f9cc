"""Turn a view of a cluster into what the network sees of each job and of each free slot.

Nothing here knows a slot's number, or how many there are but by a logarithm: one network serves any cluster.  Slots
that are masked count as if they were not there.
"""

import math

import numpy as np
import numpy.typing as npt

from drlnb.planning.placement.closed_form import log_completion
from drlnb.planning.placement.cluster import ClusterView, JobView
from drlnb.planning.placement.ect import best_of, candidates, log_completion_on

__all__ = ["BY_RULE", "N_JOB", "N_SLOT", "Array", "Gang", "Seen", "job_rows"]

#: Floats of the learned planners.
Array = npt.NDArray[np.float64]

#: A slot that never fails counts as one that does once in 30,000 years.
_LEAST_HZ = 1e-12
_DAY_S = 86_400.0
#: Figures of the whole cluster, of a job, of a gang to which slots are added, and of a slot.
_COMMON, _JOB, _GANG, _FIXED, _MOVING = 7, 15, 7, 8, 8
#: Figures of a row of each part of the network.
N_JOB, N_SLOT = _JOB + _COMMON, _FIXED + _MOVING + _GANG + _COMMON
#: Column of how much plain rules would choose a row: 1 of slots of `ect`, of jobs by their size beside the largest.
BY_RULE = 0


class Seen:
    """A view as arrays: what the rows of its jobs and slots have in common."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.node_of = np.array(view.cluster.node_of)
        self.free = np.array(view.free(), dtype=int)
        used = np.array([state != "masked" for state in view.state])
        log_hz = np.log(np.maximum(view.rate_hz, _LEAST_HZ))
        self.health: Array = log_hz - log_hz[used].mean()
        self.mean_hz = math.exp(log_hz[used].mean())
        self.n_free_of = np.bincount(self.node_of[self.free], minlength=int(self.node_of.max()) + 1)
        n_used, terms = int(used.sum()), view.terms.of(self.mean_hz)
        self.common = (
            math.log(n_used) / 4,
            len(self.free) / n_used,
            float(self.health[used].std()),
            math.log(self.mean_hz * _DAY_S) / 4,
            float(terms.checkpoint_s is None),
            math.log1p((terms.checkpoint_s or 0.0) / 3600),
            terms.locality_frac * 5,
        )

    def log_risk(self, job: JobView) -> float:
        """Return log(failures that the gang is expected to have per interval whose work they cost)."""
        terms = self.view.terms.of(job.n_slots * self.mean_hz)
        interval_s = min(job.work_s, terms.checkpoint_s or math.inf)
        return math.log(job.n_slots * self.mean_hz * max(interval_s, 1.0))


def job_rows(seen: Seen, *, waits: bool) -> Array:
    """Return what the network sees of each job of the window, and in a last row of waiting.

    Parameters
    ----------
    seen
        The view.
    waits
        Whether there is a last row.

    Returns
    -------
    Array
        Shape ``(n_jobs + waits, N_JOB)``: its size (slots times seconds) beside the largest, squared, its place by
        size, and whether it is the largest; its work and slots beside the most of the window; logs of its slots and
        work; slots over free ones; place in the queue; whether it has run, one node holds it now, and nodes beyond
        the fewest where slots are taken from the emptiest; log risk, and log of the time that failures cost on slots
        of mean health; whether the row is waiting; then the cluster's.
    """
    window = seen.view.window
    n, work_s = (np.array([getattr(job, name) for job in window], dtype=float) for name in ("n_slots", "work_s"))
    place = np.argsort(np.argsort(-n * work_s, kind="stable"), kind="stable")
    rows = np.zeros((len(window) + waits, N_JOB))
    rows[:, _JOB:] = seen.common
    rows[len(window) :, _JOB - 1] = 1.0
    most_free = np.cumsum(np.sort(seen.n_free_of)[::-1])
    for i, job in enumerate(window):
        n_nodes = int(np.searchsorted(most_free, job.n_slots)) + 1
        terms = seen.view.terms.of(job.n_slots * seen.mean_hz)
        log_s = log_completion(
            job.work_s,
            job.n_slots * seen.mean_hz,
            checkpoint_s=terms.checkpoint_s,
            checkpoint_cost_s=terms.checkpoint_cost_s,
            restart_s=terms.restart_s,
        )
        rows[i, : _JOB - 1] = (
            (n[i] * work_s[i] / (n * work_s).max()) ** 2,
            place[i] / 8,
            place[i] == 0,
            work_s[i] / work_s.max(),
            n[i] / n.max(),
            math.log(n[i]) / 2,
            math.log(work_s[i] / 3600) / 3,
            n[i] / len(seen.free),
            i / 8,
            job.started,
            n_nodes == 1,
            min(4, n_nodes - seen.view.cluster.least_nodes(job.n_slots)) / 4,
            seen.log_risk(job) / 4,
            min(3.0, log_s - math.log(work_s[i])),
        )
    return rows


class Gang:
    """A job whose slots are chosen one by one."""

    def __init__(self, seen: Seen, job: JobView) -> None:
        self.job, self.chosen = job, list(job.kept)
        self._free, self._node, self._n_free = seen.free, seen.node_of[seen.free], seen.n_free_of.copy()
        self._open = np.ones(len(self._free), dtype=bool)
        self._n_on = np.bincount(seen.node_of[self.chosen], minlength=len(self._n_free))
        weighed = [slots for _, slots in candidates(seen.view, job)]
        logs = [log_completion_on(seen.view, job, (*job.kept, *slots)) for slots in weighed]
        self._fixed = self._of_slots(seen, [weighed[best_of(logs)], *weighed])
        log_work = math.log(job.work_s)
        self._shared = (
            math.log(job.n_slots) / 2,
            log_work / 3 - 2.7,
            seen.log_risk(job) / 4,
            *[min(1.0, log - min(logs)) * 5 for log in logs],
            min(3.0, min(logs) - log_work),
            *seen.common,
        )

    @property
    def n_missing(self) -> int:
        """Slots that are still to be chosen."""
        return self.job.n_slots - len(self.chosen)

    @property
    def open(self) -> npt.NDArray[np.int_]:
        """Numbers of the slots to choose from, in the order of their rows."""
        slots: npt.NDArray[np.int_] = self._free[self._open]
        return slots

    @property
    def n_open(self) -> int:
        """Slots to choose from."""
        return int(self._open.sum())

    def rows(self) -> Array:
        """Return what the network sees of each free slot that is not chosen.

        Returns
        -------
        Array
            Shape ``(n_open, N_SLOT)``: whether `ect` takes it, and each of its three candidates; its log rate beside
            the cluster's mean, beside the last of as many healthiest as are missing, by rank, and that of its node's
            free slots; free slots of its node over those missing, whether they hold them exactly, and more; slots
            left over then; those chosen there; whether any other node is used; share that is missing; then of the
            gang logs of slots and work, risk, and how much longer each candidate is expected to take than the best
            one, and that one than without failures; then the cluster's.
        """
        node = self._node[self._open]
        n_free, n_on, n_missing = self._n_free[node], self._n_on[node], self.n_missing
        rows = np.empty((len(node), N_SLOT))
        rows[:, :_FIXED] = self._fixed[self._open]
        moving = rows[:, _FIXED : _FIXED + _MOVING].T
        moving[0] = np.minimum(n_free / n_missing, 2.0)
        moving[1] = n_free == n_missing
        moving[2] = n_free > n_missing
        moving[3] = np.minimum(np.maximum(n_free - n_missing, -8), 8) / 8
        moving[4] = n_on / self.job.n_slots
        moving[5] = len(self.chosen) > n_on
        moving[6] = n_missing / self.job.n_slots
        moving[7] = np.minimum(n_free, 8) / 8
        rows[:, _FIXED + _MOVING :] = self._shared
        return rows

    def take(self, row: int) -> None:
        """Choose the slot of a row."""
        at = int(np.flatnonzero(self._open)[row])
        self._open[at] = False
        self.chosen.append(int(self._free[at]))
        self._n_free[self._node[at]] -= 1
        self._n_on[self._node[at]] += 1

    def _of_slots(self, seen: Seen, weighed: list[list[int]]) -> Array:
        """Return what does not change while slots are chosen; shape ``(n_free, _FIXED)``."""
        health = seen.health[self._free]
        of_node = np.bincount(self._node, weights=health, minlength=len(self._n_free)) / np.maximum(self._n_free, 1)
        rank = np.argsort(np.argsort(health, kind="stable"), kind="stable")
        last = np.sort(health)[self.n_missing - 1]
        taken = np.zeros((len(weighed), len(seen.node_of)))
        for row, slots in zip(taken, weighed, strict=True):
            row[slots] = 1.0
        return np.column_stack([*taken[:, self._free], health, health - last, rank / len(health), of_node[self._node]])
