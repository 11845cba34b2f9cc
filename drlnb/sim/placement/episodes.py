"""Draw batches of jobs to train planners on: windows of a trace on clusters that fail, to be played again and again."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from drlnb.learned.placement.playing import Batch
from drlnb.planning.placement import Cluster
from drlnb.sim.placement.attempts import Conditions
from drlnb.sim.placement.faults import FaultModel
from drlnb.sim.placement.play import play
from drlnb.sim.placement.traces import FAMILIES, Trace

__all__ = ["any_batches", "batches_of"]

_NODES, _SLOTS_PER_NODE = (4, 6, 8, 8, 10, 12), 8
#: Days between failures of a slot, and spreads of their logarithms: limits of what is drawn.
_MTBF_DAYS, _SPREAD = (7.0, 337.0), (0.5, 1.5)
_LEMONS, _CHECKPOINT_S, _LOCALITY = (0.0, 0.05), (None, None, 3600.0, 14_400.0), (0.0, 0.05, 0.15)
#: Of so many batches all but one show several jobs to choose from.
_WINDOWS = 4


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
            node_spread=float(rng.choice((0.0, 0.45))),
            lemons=float(rng.choice(_LEMONS)),
        )
        terms = Conditions(
            checkpoint_s=_CHECKPOINT_S[int(rng.integers(len(_CHECKPOINT_S)))],
            locality_frac=float(rng.choice(_LOCALITY)),
        )
        rates = model.rates(cluster, seed=int(rng.integers(2**62)))
        yield _batch(trace, cluster, model, rates, terms, rng, window=k % _WINDOWS > 0)


def batches_of(
    trace: Trace, cluster: Cluster, model: FaultModel, rates: Sequence[float], terms: Conditions, seed: int
) -> Iterator[Batch]:
    """Yield batches on one cluster, the next job alone to choose for, without end.

    Parameters
    ----------
    trace
        Whose jobs they have.
    cluster, model, rates, terms
        The cluster, and how its slots fail.
    seed
        Of windows and of paths of faults.
    """
    rng = np.random.default_rng(seed)
    while True:
        yield _batch(trace, cluster, model, rates, terms, rng, window=False)


def _batch(
    trace: Trace,
    cluster: Cluster,
    model: FaultModel,
    rates: Sequence[float],
    terms: Conditions,
    rng: np.random.Generator,
    *,
    window: bool,
) -> Batch:
    """Return as many consecutive jobs as there are slots, three times of four of family `gang`, on a new path."""
    family = str(rng.choice(FAMILIES, p=(0.75, 0.25, 0.0)))
    n_known = len(trace.families[family])
    n_jobs = min(n_known, cluster.n_slots)
    jobs = trace.window(int(rng.integers(n_known - n_jobs + 1)), n_jobs, family, max_gpus=max(1, cluster.n_slots // 2))
    path = model.path(rates, seed=int(rng.integers(2**62)))
    return Batch(lambda: play(cluster, jobs, path, terms, window=window), window)
