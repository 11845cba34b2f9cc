"""Compare the learned planners of gangs with plain rules, on the same jobs and the same faults.

Where the trace is the one that the shipped weights were trained on, jobs are of its last 30 %, for all planners alike.
Planner `patent` is trained here, each time for one cluster.
"""

import itertools
import json
import math
import time
from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import NamedTuple

import numpy as np

from benchmarks.efforts import Placement
from benchmarks.frame.rows import Bar, Row
from benchmarks.placement.suite import CLUSTER, LOSSY, REGIMES, WAYS, geometric, played, ratio_row
from benchmarks.placement.weights import FOLDER, parts
from drlnb.learned.placement import Patent
from drlnb.learned.placement.network import Policy
from drlnb.learned.placement.patent import train_patent
from drlnb.learned.placement.planner import steps_of_patent
from drlnb.learned.placement.playing import Batch, Progress, makespan_s, random_s, simulated
from drlnb.planning.placement import GANGS, Cluster, ClusterView, Pick
from drlnb.planning.registry import Planner
from drlnb.sim.placement import Conditions, FaultModel, Trace, TraceJob, load_trace, play, ratio_of, side_by_side
from drlnb.sim.placement.training import Site, batches_of
from drlnb.views.placement.compared import Ratio

__all__ = ["ablation", "learner", "patent", "small", "transfer"]

#: Way to place -> planner and order; `learned` chooses slots alone, `learned+window` jobs, too.
_WAYS = {
    **{name: WAYS[name] for name in ("random", "healthiest", "ect", "largest+ect")},
    "learned": ("learned:window=0", "fifo"),
    "learned+window": ("learned", "fifo"),
}
#: Way, what it is compared with, most of its makespans over all regimes.
_GEOMETRIC = (
    ("learned", "random", 0.82),
    ("learned", "healthiest", 0.875),
    ("learned", "ect", 1.02),
    ("learned+window", "ect", 0.97),
    ("learned+window", "largest+ect", 1.02),
)
#: Most of `ect` in each regime, and most of the GPU-hours that random placement loses.
_OF_ECT, _LOST = 1.04, 0.62
#: Slots of the clusters to which the weights were not fitted.
_SIZES = (16, 32, 128, 256)
#: Batches of jobs on which planner `patent` is compared, and the constant in place of a reference is counted.
_SHOWN, _COUNTED = 60, 16
_OWN = "r3"
#: A cluster that is easy to learn: which slots fail each hour, which ones when they have other numbers, and intervals.
_EIGHT, _ILL, _OTHERS_ILL, _ILL_HZ, _ROUNDS = Cluster.uniform(1, 8), (1, 4, 6), (0, 2, 3), 1 / 3600, 40
#: Intervals of a training that is compared before it has learned all, one more; and seeds of each way to train.
_FEW_ROUNDS, _SEEDS = 9, 16


def _later(trace: Trace) -> Trace:
    """Return the jobs that the shipped weights were not trained on."""
    made = json.loads((FOLDER / "learned.json").read_text(encoding="utf-8"))
    return parts(trace)[1] if trace.sha256 == made["trace_sha256"] else trace


def learner(effort: Placement) -> Iterator[Row]:
    """Compare planner `learned` with rules in each regime, and over all."""
    trace = _later(load_trace(effort.trace or None))
    yield Row("learner/trace", f"jobs of {trace.name} that are played", (len(trace.jobs),), "jobs", origin="simulated")
    runs = {}
    for name, regime in REGIMES.items():
        runs[name] = played(effort, trace, regime, _WAYS)
        for way, base, _ in _GEOMETRIC:
            bar = Bar("value", _OF_ECT) if (way, base) == ("learned", "ect") else None
            title = f"{way} over {base}, {regime.words}"
            yield ratio_row(f"{name}/{way}/{base}", title, ratio_of(runs[name], way, base), bar=bar)
    for way, base, most in _GEOMETRIC:
        title = f"{way} over {base}, geometric mean of all regimes"
        yield ratio_row(f"geo/{way}/{base}", title, geometric(runs, way, base), bar=Bar("value", most))
    for way in ("learned", "learned+window"):
        lost = [ratio_of(runs[name], way, "random", "lost_gpu_s", of_sums=True).mean for name in LOSSY]
        title = f"GPU-hours lost to failures: {way} over random, geometric mean of {', '.join(LOSSY)}"
        bar = Bar("value", _LOST) if way == "learned" else None
        yield Row(f"geo/lost/{way}/random", title, (_geometric_mean(lost),), "x", bar=bar, origin="simulated")


def transfer(effort: Placement) -> Iterator[Row]:
    """Place on clusters of other sizes with the same weights."""
    trace, regime = _later(load_trace(effort.trace or None)), REGIMES["r6"]
    how = {"checkpoint_s": regime.checkpoint_s, "locality_frac": regime.locality_frac}
    for n_slots in _SIZES:
        windows = effort.of(regime.family, n_jobs=n_slots, max_gpus=min(32, n_slots // 2))
        ways = {name: (planner, {**how, "order": order}) for name, (planner, order) in _WAYS.items()}
        runs = side_by_side(trace, Cluster.uniform(n_slots // 8, 8), regime.model, windows, ways)
        for way, base in (("learned", "ect"), ("learned+window", "largest+ect")):
            title = f"{way} over {base} on {n_slots} slots, {regime.words}"
            yield ratio_row(f"transfer/{n_slots}/{way}/{base}", title, ratio_of(runs, way, base))


def patent(effort: Placement) -> Iterator[Row]:
    """Train planner `patent` for one cluster, and compare it there, and where the same slots have other numbers."""
    bench = _Own(effort)
    planner = bench.trained(_ABLATIONS[0])
    yield bench.row(
        "patent/random", f"patent after {effort.seconds * effort.share:g} s over random, {bench.words}", planner
    )
    yield bench.row("patent/healthiest", "the same over healthiest", planner, GANGS.build("healthiest"))
    words = "patent over random, the same slots with other numbers"
    yield bench.row("patent/permuted/random", words, planner, permuted=True)
    words = f"healthiest over random, {bench.words}: what there is to learn"
    yield bench.row("healthiest/random", words, GANGS.build("healthiest"))


def small(effort: Placement) -> Iterator[Row]:
    """Show what planner `patent` learns where it is easy: three of eight slots fail each hour, the others never."""
    trained, others = (_batches(ill, effort.seed) for ill in (_ILL, _OTHERS_ILL))
    rounds = iter(np.linspace(0, 1, _ROUNDS).tolist())
    weights = train_patent(
        simulated(trained, steps_of_patent), _EIGHT.n_slots, effort.seed, lambda: next(rounds)
    ).weights
    planner, base = Patent(network=Policy(weights)), GANGS.build("random")
    for name, words, batches in (("own", "slots that it knows", trained), ("permuted", "other slots ill", others)):
        shown = [next(batches) for _ in range(int(_SHOWN * effort.share))]
        for way, each in (("patent", planner), ("healthiest", GANGS.build("healthiest"))):
            logs = [math.log(makespan_s(batch, each) / makespan_s(batch, base)) for batch in shown]
            title = f"{way} over random, three of eight slots ill, {words}"
            yield ratio_row(f"small/{name}/{way}/random", title, _mean_of(logs))


def _batches(ill: tuple[int, ...], seed: int) -> Iterator[Batch]:
    """Yield four jobs of an hour on eight slots, some of which fail each hour."""
    rates = tuple([_ILL_HZ if slot in ill else 0.0 for slot in range(_EIGHT.n_slots)])
    jobs = [TraceJob(f"j{i}", 0.0, 1, 3600.0) for i in range(4)]
    model, conditions = FaultModel(mttr_s=600.0), Conditions(checkpoint_s=None, restart_s=60.0)
    for k in itertools.count(seed << 32):
        path = model.path(rates, seed=k)
        yield Batch(partial(play, _EIGHT, jobs, path, conditions), window=False)


class _Way(NamedTuple):
    """A way to train planner `patent`."""

    name: str
    words: str
    #: Batches are judged beside their mean best of eight, the same seconds for all of them.
    constant: bool = False
    n_kept: int = 20_000

    def trained(self, batches: Iterator[Batch], n_slots: int, seed: int, progress: Progress) -> Patent:
        """Return the planner."""
        reference = random_s
        if self.constant:
            constant_s = fmean(random_s(next(batches)) for _ in range(_COUNTED))
            reference = lambda batch: constant_s  # noqa: E731
        play = simulated(batches, steps_of_patent, reference)
        return Patent(network=Policy(train_patent(play, n_slots, seed, progress, n_kept=self.n_kept).weights))


#: What the patent says, and what it says of two of its parts that they help.
_ABLATIONS = (
    _Way("t-random", "best of 8 random placements as reference, ring of 20,000"),
    _Way("constant", "their mean as reference of all batches", constant=True),
    _Way("no-ring", "samples of the interval alone", n_kept=0),
)


def ablation(effort: Placement) -> Iterator[Row]:
    """Train planner `patent` with a constant for T_random, and without a ring: where it is easy, and where it is not.

    Where it is easy each way is trained a few intervals with several seeds, and is halfway then.
    """
    base, n_seeds = GANGS.build("random"), max(2, int(_SEEDS * effort.share))
    for way in _ABLATIONS:
        logs = []
        for seed in range(effort.seed, effort.seed + n_seeds):
            rounds = iter(np.linspace(0, 1, _FEW_ROUNDS).tolist())
            planner = way.trained(_batches(_ILL, seed), _EIGHT.n_slots, seed, partial(next, rounds))
            shown = itertools.islice(_batches(_ILL, effort.seed + n_seeds), _SHOWN)
            logs.append(fmean(math.log(makespan_s(each, planner) / makespan_s(each, base)) for each in shown))
        title = (
            f"patent over random, three of eight slots ill, {_FEW_ROUNDS - 1} intervals, {n_seeds} seeds: {way.words}"
        )
        yield ratio_row(f"ablation/small/{way.name}/random", title, _mean_of(logs))
    bench = _Own(effort)
    for way in _ABLATIONS:
        yield bench.row(f"ablation/{way.name}/random", f"patent over random: {way.words}", bench.trained(way))


class _Own:
    """One cluster: its jobs before and after, and the faults of its slots."""

    def __init__(self, effort: Placement) -> None:
        regime = REGIMES[_OWN]
        self.words, self._effort = regime.words, effort
        self._before, self._after = parts(load_trace(effort.trace or None))
        conditions = Conditions(checkpoint_s=regime.checkpoint_s, locality_frac=regime.locality_frac)
        self._site = Site(CLUSTER, regime.model, conditions, effort.seed)

    def batches(self) -> Iterator[Batch]:
        """Yield batches to train on."""
        return batches_of(self._before, self._site, np.random.default_rng([self._effort.seed, 1]))

    def trained(self, way: _Way) -> Patent:
        """Return the planner after the bench's seconds of training."""
        return way.trained(
            self.batches(), CLUSTER.n_slots, self._effort.seed, _processor(self._effort.seconds * self._effort.share)
        )

    def row(
        self,
        name: str,
        title: str,
        planner: Planner[ClusterView, Pick | None],
        base: Planner[ClusterView, Pick | None] | None = None,
        *,
        permuted: bool = False,
    ) -> Row:
        """Return the geometric mean of ratios on later jobs, and its 95 % interval over them; random is the base."""
        rng, logs = np.random.default_rng([self._effort.seed, 2]), list[float]()
        rates = self._site.model.rates(CLUSTER, seed=self._site.rates_seed)
        if permuted:
            rates = tuple(rng.permutation(rates).tolist())
        windows = self._effort.of("gang").cut(self._after)
        for k in range(int(_SHOWN * self._effort.share)):
            path = self._site.model.path(rates, seed=int(rng.integers(2**62)))
            jobs, conditions = windows[k % len(windows)], self._site.conditions
            batch = Batch(lambda: play(CLUSTER, jobs, path, conditions), window=False)  # noqa: B023  # played here
            mine_s, base_s = (makespan_s(batch, each) for each in (planner, base or GANGS.build("random")))
            logs.append(math.log(mine_s / base_s))
        return ratio_row(name, title, _mean_of(logs))


def _mean_of(logs: list[float]) -> Ratio:
    """Return the geometric mean of ratios whose logarithms these are, and its 95 % interval."""
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    mean, low, high = (math.exp(fmean(logs) + 1.96 * each) for each in (0.0, -error, error))
    return Ratio(mean, low, high, len(logs))


def _geometric_mean(values: list[float]) -> float:
    return math.exp(fmean(map(math.log, values)))


def _processor(budget_s: float) -> Progress:
    """Return the progress of a training of so many processor seconds."""
    began_s = time.process_time()
    return lambda: min(1.0, (time.process_time() - began_s) / budget_s)
