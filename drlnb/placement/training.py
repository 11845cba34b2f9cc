"""Train planners of gangs: in simulation, on what a past run was like, or on gangs that run.

Networks are trained with torch, which loads with the first training.
"""

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from drlnb.learned.placement import Patent
from drlnb.learned.placement.network import Policy, load, save
from drlnb.learned.placement.planner import steps_of_patent
from drlnb.learned.placement.playing import Interval, Progress, Trained, simulated
from drlnb.planning.placement.cluster import Cluster
from drlnb.records.errors import ConfigError, nearest
from drlnb.sim.placement.attempts import Conditions
from drlnb.sim.placement.faults import FaultModel
from drlnb.sim.placement.history import History, history_of
from drlnb.sim.placement.traces import Trace, load_trace
from drlnb.sim.placement.training import Site, any_batches, batches_after, batches_of, clock

if TYPE_CHECKING:
    from distributed import Client

    from drlnb.runtime.placement.placing import Job

__all__ = ["train"]

_LOG = logging.getLogger("drlnb")
_SOURCES, _NETS = ("simulate", "history", "live"), ("scorer", "patent")
#: Source and network -> arguments that they need, and that they may have.
_TAKEN: Mapping[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("simulate", "scorer"): ((), ("trace",)),
    ("simulate", "patent"): (("cluster",), ("trace", "model", "conditions", "weights", "n_rounds")),
    ("history", "scorer"): (("history",), ()),
    ("history", "patent"): (("history",), ("weights", "n_rounds")),
    ("live", "patent"): (("jobs",), ("client", "model", "hold_s", "weights", "n_rounds")),
}
#: What an argument is that is needed.
_SUCH_AS = {
    "cluster": "it is of one cluster, such as Cluster.uniform(8, 8)",
    "history": "the folder of a run, or what place(...) or a fleet's train(...) returns",
    "jobs": "batches of jobs, [[Job(...), ...], ...], a round each",
}


def train(
    *,
    out: str | PathLike[str],
    net: str = "scorer",
    source: str = "simulate",
    budget_s: float = 600.0,
    n_rounds: int | None = None,
    seed: int = 0,
    weights: str | PathLike[str] | None = None,
    trace: Trace | None = None,
    cluster: Cluster | None = None,
    model: FaultModel | None = None,
    conditions: Conditions | None = None,
    history: object = None,
    jobs: "Sequence[Sequence[Job]] | None" = None,
    client: "Client | None" = None,
    hold_s: float | None = None,
) -> list[float]:
    """Train a network, and write its weights.

    Parameters
    ----------
    out
        File of the weights, for ``learned:weights=FILE`` or ``patent:weights=FILE``.
    net
        ``scorer``, of planner `learned`, for any cluster; or ``patent``, the placement patent's, for one.
    source
        ``simulate``: jobs of a trace, on faults that are drawn; ``history``: the jobs and faults of a past run, again
        and again in a simulator; ``live``: gangs of real processes as they run, for ``patent`` alone.
    budget_s
        Seconds that it takes; a round that has begun is made to its end.
    n_rounds
        Rounds after which ``patent`` ends if the time is not over: of eight batches in a simulator, of one of real
        processes.
    seed
        Of all that is drawn; how many rounds fit into the time depends on the machine.
    weights
        File of weights with which ``patent`` goes on; None: random ones.
    trace
        Of ``simulate``, its jobs; None: the sample that is part of the package.
    cluster, conditions
        Of ``simulate`` and ``patent``: the cluster, and what its jobs lose.
    model
        Of ``patent``: how the cluster's slots fail, at rates that are drawn with `seed`; of ``live``, how workers are
        killed beside those that fail by themselves, None: none are.
    history
        Of ``history``: the folder of a run, its journal, or what has one, as what
        :func:`~drlnb.runtime.placement.placing.place` and a fleet's ``train`` return.
    jobs, client, hold_s
        Of ``live``: batches of jobs, each of which is a round and is placed once those before are over; the rest as of
        ``place``.

    Returns
    -------
    list of float
        Mean reward of each round.

    Raises
    ------
    ConfigError
        If an argument is wrong, is missing, or is of another source or network; or the file cannot be written.
    JournalError
        If a history cannot be read.
    """
    given = {
        "trace": trace,
        "cluster": cluster,
        "model": model,
        "conditions": conditions,
        "history": history,
        "jobs": jobs,
        "client": client,
        "hold_s": hold_s,
        "weights": weights,
        "n_rounds": n_rounds,
    }
    _check(net, source, {name for name, value in given.items() if value is not None}, budget_s, n_rounds, Path(out))
    begin = None if weights is None else load(Path(weights), Policy)
    slots = tuple[str, ...]()
    if jobs is not None:
        from drlnb.placement.live import LiveBatches

        live = LiveBatches(jobs, client, model=model, hold_s=hold_s, longest_s=budget_s, seed=seed)
        n_rounds, slots = min(n_rounds or len(jobs), len(jobs)), live.slots
        trained = _patent(live, len(slots), slots, seed, _planned(budget_s, n_rounds), begin)
    else:
        if history is not None:
            past = _past(history)
            batches, n_slots, slots = batches_after(past, seed, window=net == "scorer"), len(past.slots), past.slots
        elif cluster is not None:
            site, n_slots = Site(cluster, model or FaultModel(), conditions or Conditions(), seed), cluster.n_slots
            batches = batches_of(trace or load_trace(), site, np.random.default_rng(seed))
        else:
            batches = any_batches(trace or load_trace(), seed)
        if net == "scorer":
            from drlnb.learned.placement.train import train as train_scorer

            trained = train_scorer(batches, seed, clock(budget_s))
        else:
            play = simulated(batches, steps_of_patent)
            trained = _patent(play, n_slots, slots, seed, _planned(budget_s, n_rounds), begin)
    save(Path(out), "learned" if net == "scorer" else Patent.name, trained.weights, () if net == "scorer" else slots)
    return trained.rewards


def _check(net: str, source: str, given: set[str], budget_s: float, n_rounds: int | None, out: Path) -> None:
    """Raise ConfigError of all that is wrong before anything is read or started."""
    problems = [
        f"{name} must be {' or '.join(known)}, got {value!r}{nearest(str(value), known)}"
        for name, value, known in (("net", net, _NETS), ("source", source, _SOURCES))
        if value not in known
    ]
    if (source, net) == ("live", "scorer"):
        problems.append("source live is of net patent: what scorer learns from are many plays of the same batch")
    elif not problems:
        needed, more = _TAKEN[source, net]
        here = f"net {net} from source {source}"
        problems += [f"{here} needs {name}: {_SUCH_AS[name]}" for name in needed if name not in given]
        problems += [f"{here} takes no {name}" for name in sorted(given.difference(needed, more))]
    if not isinstance(budget_s, int | float) or not 0 < budget_s < math.inf:
        problems.append(f"budget_s must be seconds above 0, got {budget_s!r}")
    if n_rounds is not None and (not isinstance(n_rounds, int) or n_rounds < 1):
        problems.append(f"n_rounds must be a whole number above 0, got {n_rounds!r}")
    if not out.parent.is_dir() or out.is_dir():
        problems.append(f"out must be a file in a folder that is there, got {out}")
    if problems:
        raise ConfigError(problems)


def _past(history: object) -> History:
    """Return what became of slots and jobs; say so if no slot failed."""
    past = history_of(history)
    if not past.n_failures:
        _LOG.warning("no slot has failed in the %.0f s of this history: it teaches nothing about that", past.lasted_s)
    return past


def _patent(
    play: Interval, n_slots: int, slots: Sequence[str], seed: int, progress: Progress, begin: Policy | None
) -> Trained:
    """Train the patent's networks; ConfigError if the weights to begin with are of other slots."""
    if begin is not None and (begin.n_slots != n_slots or (begin.slots and slots and begin.slots != tuple(slots))):
        theirs = ", ".join(begin.slots) or f"{begin.n_slots} slots"
        raise ConfigError(
            f"weights are of {theirs}; here is to be trained for {', '.join(slots) or f'{n_slots} slots'}"
        )
    from drlnb.learned.placement.patent import train_patent

    return train_patent(play, n_slots, seed, progress, begin=begin)


def _planned(budget_s: float, n_rounds: int | None) -> Progress:
    """Return the progress of so many seconds or, if they are planned, rounds: whichever are over first."""
    timed, made = clock(budget_s), itertools.count()
    return lambda: 1.0 if n_rounds is not None and next(made) >= n_rounds else timed()
