"""Have the placement patent's agent learn from gangs of real processes while they run.

A batch of jobs is placed by the network with its probabilities; what it took is judged beside the best of eight random
placements, which a simulator plays on the outages that were seen: a batch of real processes cannot be repeated.
"""

import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from distributed import Client

from drlnb.learned.placement.planner import Question, ended, steps_by_name
from drlnb.learned.placement.playing import Answers, Batch, Played, Sample, random_s
from drlnb.planning.placement.cluster import Cluster, ClusterView, Pick
from drlnb.records.columns.leasing import SlotAdded
from drlnb.records.errors import ConfigError, words_of
from drlnb.runtime.client.plugins import usable
from drlnb.runtime.placement.injector import Fault
from drlnb.runtime.placement.placing import Job, place
from drlnb.sim.placement.faults import FaultModel
from drlnb.sim.placement.history import history_of
from drlnb.sim.placement.play import play

__all__ = ["LiveBatches"]

_LOG = logging.getLogger("drlnb")
#: Longest wait for workers that were killed in the batch before, in seconds.
_UP_S = 60.0


class _Drawn:
    """A planner that draws slots with a network's probabilities, and keeps what it was asked."""

    name = "patent"

    def __init__(self, slots: Sequence[str], answers: Answers) -> None:
        self._slots, self._answers = slots, answers
        self.samples: list[Sample] = []

    def plan(self, view: ClusterView) -> Pick | None:
        """Return the next job, and its slots."""
        return ended(steps_by_name(view, self._slots), self._answer)

    def _answer(self, question: Question) -> int:
        (chosen,), (log_p,) = self._answers(question.part, [question.rows])
        self.samples.append(Sample(question, chosen, log_p))
        return chosen


class LiveBatches:
    """Places one batch of jobs after the other on a cluster.

    Parameters
    ----------
    batches
        Jobs of each.
    client
        Of the cluster.
    model
        How often workers are killed, beside those that fail by themselves; None: none are.
    hold_s
        As of ``place``; None: its default.
    longest_s
        Seconds of a batch after which none is killed any more.
    seed
        Of these faults.

    Attributes
    ----------
    slots
        Names of the cluster's slots, by the numbers by which a network knows them.

    Raises
    ------
    ConfigError
        If the batches are none of jobs, a job needs more slots than there are, or two batches have a folder for
        checkpoints in common.
    """

    def __init__(
        self,
        batches: Sequence[Sequence[Job]],
        client: Client | None,
        *,
        model: FaultModel | None,
        hold_s: float | None,
        longest_s: float,
        seed: int,
    ) -> None:
        problem = _problem(batches)
        if problem:
            raise ConfigError(problem)
        self._client = usable(client, "train(..., client=distributed.Client(...))")
        with place([], self._client) as placing:
            nodes = dict(sorted((event.slot, event.node) for event in placing.journal().of(SlotAdded)))
        self.slots = tuple(nodes)
        _LOG.info("placement planner patent is trained for the %d slots that are up: %s", len(nodes), ", ".join(nodes))
        if too_large := [job for jobs in batches for job in jobs if job.n_slots > len(nodes)]:
            raise ConfigError(
                f"job {too_large[0].name!r} needs {too_large[0].n_slots} slots, the cluster has {len(nodes)}"
            )
        self._batches, self._longest_s = enumerate(batches), longest_s
        self._place = place if hold_s is None else partial(place, hold_s=hold_s)
        self._model, self._seed = model or FaultModel(), seed
        numbers = sorted(set(nodes.values()))
        self._cluster = cluster = Cluster(tuple([numbers.index(node) for node in nodes.values()]))
        self._rates = model.rates(cluster, seed=seed) if model else (0.0,) * len(nodes)

    def __call__(self, answers: Answers) -> list[Played]:
        """Place the next batch by such answers; one of which a job fails teaches nothing, and that is said."""
        number, jobs = next(self._batches)
        planner = _Drawn(self.slots, answers)
        with contextlib.suppress(TimeoutError):  # then on those that are there
            self._client.wait_for_workers(len(self.slots), timeout=_UP_S)
        try:
            with self._place(jobs, self._client, planner=planner) as placing:
                placing.inject(self._faults(number, placing.slots))
                placing.wait()
                failures = [f"job {job} has failed: {words_of(error)}" for job, error in placing.failures.items()]
        except ConfigError as error:
            if not number:
                raise
            failures = [str(error)]  # such as workers that are gone: what was learned is kept
        if failures:
            _LOG.warning("batch %d teaches nothing: %s", number, "; ".join(failures))
            return []
        seen = history_of(placing)
        batch = Batch(partial(play, seen.cluster, seen.jobs, seen.path(), seen.conditions), window=False)
        return [Played(seen.makespan_s, random_s(batch), planner.samples)]

    def _faults(self, number: int, up: Sequence[str]) -> list[Fault]:
        """Return the faults of a batch: of each slot that is up, on a path of its own."""
        path = self._model.path(self._rates, seed=(self._seed << 20) + number, cluster=self._cluster)
        faults = list[Fault]()
        for i, slot in enumerate(self.slots):
            outages = map(partial(path.outage, i), itertools.count())
            soon = itertools.takewhile(lambda outage: outage[0] < self._longest_s, outages)
            faults += [(fails, slot, back - fails) for fails, back in soon if slot in up]
        return faults


def _problem(batches: Sequence[Sequence[Job]]) -> str:
    """Return what is wrong with batches of jobs; empty if nothing is."""
    if not batches or not all(isinstance(jobs, list | tuple) and jobs for jobs in batches):
        return f"jobs must be batches of jobs, [[Job(...), ...], ...], got {batches!r}"
    if strange := [job for jobs in batches for job in jobs if not isinstance(job, Job)]:
        return f"jobs must be Job(function, ...), got {strange[0]!r}"
    folders = [folder for jobs in batches for folder in {Path(job.checkpoint) for job in jobs if job.checkpoint}]
    if twice := [folder for folder, n in Counter(folders).items() if n > 1]:
        return f"checkpoint {twice[0]} is of several batches: the second one would go on where the first one ended"
    return ""
