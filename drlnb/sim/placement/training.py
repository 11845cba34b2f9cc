"""Give planners of gangs what they train on in simulation: jobs on clusters that fail, played again and again.

They are of a trace, on faults that are drawn, or of a past run.  Networks are trained with torch, which loads with the
first training.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from drlnb.learned.placement import Patent
from drlnb.learned.placement.network import Policy
from drlnb.learned.placement.planner import steps_of_patent
from drlnb.learned.placement.playing import Batch, Progress, simulated
from drlnb.planning.placement import Cluster
from drlnb.planning.placement.planner import node_of
from drlnb.sim.placement.attempts import Conditions
from drlnb.sim.placement.faults import FaultModel
from drlnb.sim.placement.history import History
from drlnb.sim.placement.play import play
from drlnb.sim.placement.traces import Trace, load_trace

__all__ = [
    "BEFORE_RUN_S",
    "Site",
    "any_batches",
    "batches_after",
    "batches_of",
    "clock",
    "patent_after",
    "patent_for",
]

_NODES, _SLOTS_PER_NODE = (4, 6, 8, 8, 10, 12), 8
#: Days between failures of a slot, and spreads of their logarithms: limits of what is drawn.
_MTBF_DAYS, _SPREAD = (7.0, 337.0), (0.5, 1.5)
_NODE_SPREAD, _LEMONS, _LOCALITY = (0.0, 0.45), (0.0, 0.05), (0.0, 0.05, 0.15)
_CHECKPOINT_S = (None, None, 3600.0, 14_400.0)
#: Of so many batches all but one show several jobs to choose from.
_WINDOWS = 4
#: Share of batches whose jobs are of family `gang`; the others are of `mixed`.
_GANGS = 0.75
#: Fewer jobs say little about a cluster.
_LEAST_JOBS = 16
#: Gangs have up to half of the slots; up to so many of a small cluster.
_LEAST_SLOTS = 4
#: Seconds of a training before a run, and the seed of all that is drawn for it.
BEFORE_RUN_S, _SEED = 8.0, 0


def any_batches(trace: Trace, seed: int) -> Iterator[Batch]:
    """Yield batches on clusters, faults and terms of many kinds, without end.

    Parameters
    ----------
    trace
        Whose jobs they have.
    seed
        Of all that is drawn.
    """
    rng = np.random.default_rng(seed)
    for k in itertools.count():
        cluster = Cluster.uniform(int(rng.choice(_NODES)), _SLOTS_PER_NODE)
        model = FaultModel(
            mtbf_days=float(np.exp(rng.uniform(*np.log(_MTBF_DAYS)))),
            spread=float(rng.uniform(*_SPREAD)),
            node_spread=float(rng.choice(_NODE_SPREAD)),
            lemons=float(rng.choice(_LEMONS)),
        )
        checkpoint_s = _CHECKPOINT_S[int(rng.integers(len(_CHECKPOINT_S)))]
        conditions = Conditions(checkpoint_s=checkpoint_s, locality_frac=float(rng.choice(_LOCALITY)))
        site = Site(cluster, model, conditions, rates_seed=int(rng.integers(2**62)))
        yield next(batches_of(trace, site, rng, window=k % _WINDOWS > 0))


class Site(NamedTuple):
    """A cluster, how its slots fail, and what jobs lose."""

    cluster: Cluster
    model: FaultModel
    conditions: Conditions
    #: Of the slots' rates.
    rates_seed: int


def batches_of(trace: Trace, site: Site, rng: np.random.Generator, *, window: bool = False) -> Iterator[Batch]:
    """Yield batches on one cluster, whose slots have the same rates in all of them, without end.

    Parameters
    ----------
    trace
        Whose jobs they have: about as many consecutive ones as there are slots.
    site
        The cluster.
    rng
        Draws windows and paths of faults.
    window
        Show several jobs to choose from.
    """
    cluster, model = site.cluster, site.model
    rates = model.rates(cluster, seed=site.rates_seed)
    while True:
        family = "gang" if rng.random() < _GANGS else "mixed"
        n_known = len(trace.families[family])
        n_jobs = min(n_known, max(_LEAST_JOBS, cluster.n_slots))
        start = int(rng.integers(n_known - n_jobs + 1))
        most = max(cluster.n_slots // 2, min(_LEAST_SLOTS, cluster.n_slots))
        jobs = trace.window(start, n_jobs, family, max_gpus=most)
        path = model.path(rates, seed=int(rng.integers(2**62)), cluster=cluster)
        yield Batch(lambda jobs=jobs, path=path: play(cluster, jobs, path, site.conditions, window=window), window)  # type: ignore[misc]  # both are bound now


def patent_for(slots: Iterable[str]) -> Patent:
    """Train planner `patent` for the slots of a pool, in less than ten seconds, on published rates of failures.

    Parameters
    ----------
    slots
        Their names, such as ``n0/gpu1``.
    """
    names = sorted(slots)
    nodes = sorted({node_of(name) for name in names})
    cluster = Cluster(tuple([nodes.index(node_of(name)) for name in names]))
    batches = batches_of(load_trace(), Site(cluster, FaultModel(), Conditions(), _SEED), np.random.default_rng(_SEED))
    return _before_run(batches, names)


def batches_after(history: History, seed: int, *, window: bool = False) -> Iterator[Batch]:
    """Yield batches of the jobs of a past run, on faults as it had them, without end.

    Parameters
    ----------
    history
        What became of its slots and jobs.
    seed
        Of the faults and, where there are many more jobs than slots, of which jobs.
    window
        Show several jobs to choose from, in three of four batches.
    """
    rng = np.random.default_rng(seed)
    cluster, n_jobs = history.cluster, max(_LEAST_JOBS, history.cluster.n_slots)
    for k in itertools.count():
        start = int(rng.integers(max(0, len(history.jobs) - n_jobs) + 1))
        jobs = [job._replace(submitted_s=0.0) for job in history.jobs[start : start + n_jobs]]
        path, several = history.path_like(int(rng.integers(2**62))), window and k % _WINDOWS > 0
        yield Batch(partial(play, cluster, jobs, path, history.conditions, window=several), several)


def patent_after(history: History) -> Patent:
    """Train planner `patent` for the slots of a past run, on its jobs and faults; as long as :func:`patent_for`."""
    return _before_run(batches_after(history, _SEED), history.slots)


def _before_run(batches: Iterator[Batch], slots: Sequence[str]) -> Patent:
    from drlnb.learned.placement.patent import train_patent

    play = simulated(batches, steps_of_patent)
    weights = train_patent(play, len(slots), _SEED, clock(BEFORE_RUN_S)).weights
    halves = {name: value.astype(np.float16) for name, value in weights.items()}  # they travel with the run
    return Patent(network=Policy(halves), slots=slots)


def clock(budget_s: float) -> Progress:
    """Return the progress of something that takes so many seconds from now on."""
    began_s = time.monotonic()
    return lambda: min(1.0, (time.monotonic() - began_s) / budget_s)
