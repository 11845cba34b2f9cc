"""Train planners of gangs in simulation: on windows of a trace, on clusters that fail, played again and again.

Networks are trained with torch, which loads with the first training.
"""

import itertools
import time
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from drlnb.learned.placement import Patent
from drlnb.learned.placement.network import Policy, save
from drlnb.learned.placement.playing import Batch, Progress, Trained
from drlnb.planning.placement import Cluster
from drlnb.planning.placement.planner import node_of
from drlnb.records.errors import ConfigError
from drlnb.sim.placement.attempts import Conditions
from drlnb.sim.placement.faults import FaultModel
from drlnb.sim.placement.play import play
from drlnb.sim.placement.traces import Trace, load_trace

__all__ = ["BEFORE_RUN_S", "Site", "any_batches", "batches_of", "patent_for", "train"]

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
#: Seconds of a training before a run.
BEFORE_RUN_S = 8.0


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


def patent_for(slots: Iterable[str], seed: int = 0) -> Patent:
    """Train planner `patent` for the slots of a pool, in less than ten seconds, on published rates of failures.

    Parameters
    ----------
    slots
        Their names, such as ``n0/gpu1``.
    seed
        Of all that is drawn.
    """
    names = sorted(slots)
    nodes = sorted({node_of(name) for name in names})
    cluster = Cluster(tuple([nodes.index(node_of(name)) for name in names]))
    weights = _patent(load_trace(), Site(cluster, FaultModel(), Conditions(), seed), seed, BEFORE_RUN_S).weights
    halves = {name: value.astype(np.float16) for name, value in weights.items()}  # they travel with the run
    return Patent(network=Policy(halves), slots=names)


def train(
    *,
    out: str | PathLike[str],
    net: str = "scorer",
    budget_s: float = 600.0,
    seed: int = 0,
    trace: Trace | None = None,
    cluster: Cluster | None = None,
    model: FaultModel | None = None,
    conditions: Conditions | None = None,
) -> list[float]:
    """Train a network in simulation, and write its weights.

    Parameters
    ----------
    out
        File of the weights, for ``learned:weights=FILE`` or ``patent:weights=FILE``.
    net
        ``scorer``, of planner `learned`, for any cluster; or ``patent``, the placement patent's, for one.
    budget_s
        Seconds that it takes.
    seed
        Of all that is drawn; how many rounds fit into the time depends on the machine.
    trace
        Jobs; None: the sample that is part of the package.
    cluster, model, conditions
        Of ``patent``: the cluster, how its slots fail (their rates are drawn with `seed`) and what its jobs lose.

    Returns
    -------
    list of float
        Mean reward of each round.

    Raises
    ------
    ConfigError
        If `net` is unknown, `patent` has no cluster or `scorer` has one, or the file cannot be written.
    """
    problems = [] if net in {"scorer", "patent"} else [f"net must be scorer or patent, got {net!r}"]
    if net == "patent" and cluster is None:
        problems.append("net patent is of one cluster: give it, such as cluster=Cluster.uniform(8, 8)")
    if net == "scorer" and (cluster, model, conditions) != (None, None, None):
        problems.append("net scorer is for any cluster: cluster, model and conditions are of net patent")
    if not isinstance(budget_s, int | float) or not budget_s > 0:
        problems.append(f"budget_s must be seconds above 0, got {budget_s!r}")
    if not Path(out).parent.is_dir():
        problems.append(f"out must be in a folder that is there, got {out}")
    if problems:
        raise ConfigError(problems)
    jobs = trace or load_trace()
    if cluster is not None:
        site = Site(cluster, model or FaultModel(), conditions or Conditions(), seed)
        trained = _patent(jobs, site, seed, budget_s)
        save(Path(out), Patent.name, trained.weights)
        return trained.rewards
    from drlnb.learned.placement.train import train as train_scorer

    trained = train_scorer(any_batches(jobs, seed), seed, _clock(budget_s))
    save(Path(out), "learned", trained.weights)
    return trained.rewards


def _patent(trace: Trace, site: Site, seed: int, budget_s: float) -> Trained:
    from drlnb.learned.placement.patent import train_patent

    batches = batches_of(trace, site, np.random.default_rng(seed))
    return train_patent(batches, site.cluster.n_slots, seed, _clock(budget_s))


def _clock(budget_s: float) -> Progress:
    began_s = time.monotonic()
    return lambda: min(1.0, (time.monotonic() - began_s) / budget_s)
