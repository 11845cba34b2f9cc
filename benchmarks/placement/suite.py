"""Compare planners of gangs in eight regimes, on the same jobs and the same faults.

Ratios are of makespans, to planner `healthiest` with the queue in order unless another is named: geometric means over
runs, with 95 % intervals from a bootstrap over windows that share no job.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.efforts import Placement
from benchmarks.frame.rows import Bar, Row, Spread
from drlnb.planning.placement import Cluster
from drlnb.sim.placement import FaultModel, Outcome, Trace, load_trace, ratio_of, side_by_side
from drlnb.sim.placement.compare import Played
from drlnb.views.placement.compared import NOTHING, Ratio

__all__ = ["CLUSTER", "LOSSY", "REGIMES", "WAYS", "Regime", "baselines", "geometric", "null", "played", "ratio_row"]

#: What all regimes run on.
CLUSTER = Cluster.uniform(n_nodes=8, slots_per_node=8)
_HOUR_S = 3600.0
#: Random placements of which hindsight takes the best, and the regime in which it is shown.
_N_RANDOM, _HINDSIGHT = 8, "r3"


class Regime(NamedTuple):
    """Jobs, how often slots fail, and what that costs."""

    family: str
    mtbf_days: float
    checkpoint_s: float | None
    locality_frac: float
    lemons: float = 0.0

    @property
    def model(self) -> FaultModel:
        """How slots fail."""
        return FaultModel(mtbf_days=self.mtbf_days, node_spread=0.0, lemons=self.lemons)

    @property
    def words(self) -> str:
        """What it is."""
        saved = "no checkpoints" if self.checkpoint_s is None else f"checkpoints each {self.checkpoint_s / _HOUR_S:g} h"
        lemons = f", {self.lemons:.0%} lemons" if self.lemons else ""
        return f"{self.family}, {self.mtbf_days:g} slot-days, {saved}, locality {self.locality_frac:g}{lemons}"


#: Regime by name.
REGIMES = {
    "r1": Regime("gang", 60, _HOUR_S, 0.15),
    "r2": Regime("gang", 20, 4 * _HOUR_S, 0.0),
    "r3": Regime("gang", 20, None, 0.0),
    "r4": Regime("gang", 20, 4 * _HOUR_S, 0.15),
    "r5": Regime("gang", 20, None, 0.15),
    "r6": Regime("gang", 20, None, 0.05),
    "r7": Regime("gang", 20, None, 0.05, 0.05),
    "r8": Regime("mixed", 20, None, 0.05),
}
#: Way to place -> planner and order of the queue.
WAYS = {
    "healthiest": ("healthiest", "fifo"),
    "random": ("random", "fifo"),
    "best_fit": ("best_fit", "fifo"),
    "healthiest_packed": ("healthiest_packed", "fifo"),
    "interference_aware": ("interference_aware", "fifo"),
    "ect": ("ect", "fifo"),
    "largest+ect": ("ect", "largest"),
    "largest+random": ("random", "largest"),
}
_BASE = "healthiest"
#: Digest of the trace on which :data:`_COUNTED` was counted: 65,028 jobs of the Philly trace, September to November
#: 2017.
_DEVELOPMENT = "0ad3299702653238163c098f22eae82acbaa0c9d59124e662659fbdd53b4fb9e"
#: Ratios that another simulator, and other windows of that trace, gave; they are to come out again within so much.
_WITHIN = 0.03
_COUNTED: Mapping[str, tuple[float, ...]] = {
    "random": (1.002, 1.005, 1.070, 1.012, 1.191, 1.097, 1.292, 1.030),
    "best_fit": (0.723, 1.005, 1.062, 0.721, 0.707, 0.910, 1.024, 0.960),
    "healthiest_packed": (0.750, 1.008, 1.048, 0.744, 0.723, 0.918, 0.977, 0.963),
    "ect": (0.722, 1.003, 0.999, 0.722, 0.717, 0.908, 0.920, 0.945),
    "largest+ect": (0.655, 0.956, 0.951, 0.657, 0.649, 0.872, 0.893, 0.891),
    "largest+random": (0.964, 0.973, 1.040, 0.982, 1.167, 1.069, 1.251, 1.041),
}
#: Those of them that must.
_BINDING = {("r3", "random"), ("r3", "ect"), ("r4", "ect"), ("r7", "ect"), ("r7", "random")}
#: Where failures cost most; slot time that they cost is compared there.
LOSSY = ("r3", "r5", "r6", "r7")
#: Regimes without a difference, and how a difference is bounded in the first.
_NULL = {"337": Regime("gang", 337, _HOUR_S, 0.0), "60": Regime("gang", 60, _HOUR_S, 0.0)}

_row = partial(Row, origin="simulated", unit="x")


def played(effort: Placement, trace: Trace, regime: Regime, ways: Mapping[str, tuple[str, str]] = WAYS) -> Played:
    """Play the windows of a regime under each way to place."""
    how = {"checkpoint_s": regime.checkpoint_s, "locality_frac": regime.locality_frac}
    placed = {name: (planner, how | {"order": order}) for name, (planner, order) in ways.items()}
    return side_by_side(trace, CLUSTER, regime.model, effort.of(regime.family), placed)


def baselines(effort: Placement) -> Iterator[Row]:
    """Compare rules and orders in each regime, and over all."""
    trace = load_trace(effort.trace or None)
    yield from _trace_rows(effort, trace)
    all_played: dict[str, Played] = {}
    for number, (name, regime) in enumerate(REGIMES.items()):
        runs = all_played[name] = played(effort, trace, regime)
        for way in WAYS:
            if way == _BASE:
                continue
            counted, bar, said = _COUNTED.get(way), None, ""
            if counted and trace.sha256 == _DEVELOPMENT and not effort.quick:
                bar = Bar("value", counted[number] + _WITHIN, counted[number] - _WITHIN)
                said = f" (counted before: {counted[number]})"
            yield ratio_row(
                f"{name}/{way}/{_BASE}",
                f"{way} over {_BASE}, {regime.words}{said}",
                ratio_of(runs, way, _BASE),
                bar=bar,
                binding=(name, way) in _BINDING,
            )
        yield ratio_row(f"{name}/largest+ect/ect", "largest+ect over ect", ratio_of(runs, "largest+ect", "ect"))
    yield from _over_regimes(all_played)
    yield from _hindsight(effort, trace)


def _hindsight(effort: Placement, trace: Trace) -> Iterator[Row]:
    """Show what the best of some random placements on the same faults is: nobody can know it before."""
    ways = {f"random:seed={i}": (f"random:seed={i}", "fifo") for i in range(_N_RANDOM)} | {_BASE: WAYS[_BASE]}
    runs = []
    for window in played(effort, trace, REGIMES[_HINDSIGHT], ways):
        chances = zip(*(outcomes for way, outcomes in window.items() if way != _BASE), strict=True)
        best = [min(some, key=lambda outcome: outcome.makespan_s) for some in chances]
        runs.append({"best_of_random": best, _BASE: window[_BASE]})
    title = f"best of {_N_RANDOM} random, in hindsight, over {_BASE}, {REGIMES[_HINDSIGHT].words}"
    yield ratio_row(f"{_HINDSIGHT}/best_of_random/{_BASE}", title, ratio_of(runs, "best_of_random", _BASE))


def null(effort: Placement) -> Iterator[Row]:
    """Show the regimes in which it makes no difference which slots fail."""
    trace = load_trace(effort.trace or None)
    for name, regime in _NULL.items():
        ratio = ratio_of(played(effort, trace, regime, {way: WAYS[way] for way in ("random", _BASE)}), "random", _BASE)
        mean, low, high = (100 * (end - 1) for end in ratio[:3])
        percent = Ratio(mean, low, high, ratio.n)
        bar = Bar("value", 100 * NOTHING, -100 * NOTHING) if name == "337" else None
        title = f"by so much random takes longer than {_BASE}: {regime.words}"
        yield ratio_row(f"null/{name}/random/{_BASE}", title, percent, unit="%", bar=bar)


def _trace_rows(effort: Placement, trace: Trace) -> Iterator[Row]:
    """Say which jobs are played."""
    words = f"rows of {trace.name}, sha256 {trace.sha256}, {trace.n_dropped} of no duration dropped"
    yield Row("trace", words, (len(trace.jobs),), "jobs", origin="simulated")
    for family in ("gang", "mixed"):
        cut = effort.of(family).cut(trace)
        jobs = [job for window in cut for job in window]
        words = (
            f"windows of 64 jobs that share none, family {family}, played as {cut[0].family}: mean gang "
            f"{sum(job.n_slots for job in jobs) / len(jobs):.1f}, {sum(w.n_cut_s for w in cut)} jobs cut to 24 h, "
            f"{sum(w.n_cut_slots for w in cut)} to 32 slots"
        )
        yield Row(f"trace/{family}", words, (len(cut),), "windows", origin="simulated")


def ratio_row(
    name: str, title: str, ratio: Ratio, unit: str = "x", bar: Bar | None = None, binding: bool = True
) -> Row:
    """Return a row of a ratio, with its interval."""
    interval: Spread | None = None
    if ratio.n > 1:
        interval = {"kind": "95 %", "low": ratio.low, "high": ratio.high, "n": ratio.n}
    return Row(name, title, (ratio.mean,), unit, interval=interval, bar=bar, binding=binding, origin="simulated")


def _over_regimes(all_played: Mapping[str, Played]) -> Iterator[Row]:
    """Yield geometric means over all regimes, and the slot time that failures cost where they cost most."""
    pairs = [(way, _BASE) for way in WAYS if way != _BASE]
    for way, base in (*pairs, ("ect", "random"), ("largest+ect", "ect")):
        title = f"{way} over {base}, geometric mean of all regimes"
        yield ratio_row(f"geo/{way}/{base}", title, geometric(all_played, way, base))
    lost = [ratio_of(all_played[name], "ect", "random", "lost_gpu_s", of_sums=True) for name in LOSSY]
    for name, ratio in zip(LOSSY, lost, strict=True):
        yield ratio_row(f"{name}/lost/ect/random", "GPU-hours lost to failures: ect over random", ratio)
    mean = math.exp(sum(math.log(ratio.mean) for ratio in lost) / len(lost))
    title = f"GPU-hours lost to failures: ect over random, geometric mean of {', '.join(LOSSY)}"
    yield _row("geo/lost/ect/random", title, (mean,))


def geometric(all_played: Mapping[str, Played], way: str, base: str) -> Ratio:
    """Return the geometric mean of all regimes; those of a family share its windows, which are drawn together."""
    families: dict[str, list[list[float]]] = {}
    for name, runs in all_played.items():
        logs = [_mean_log(window[way], window[base]) for window in runs]
        families.setdefault(REGIMES[name].family, []).append(logs)
    rng, n = np.random.default_rng(0), len(all_played)
    mean, drawn = 0.0, np.zeros(2000)
    for logs_of in families.values():
        by_window = np.sum(logs_of, axis=0)
        mean += float(by_window.mean()) / n
        drawn += by_window[rng.integers(len(by_window), size=(2000, len(by_window)))].mean(1) / n
    low, high = np.exp(np.quantile(drawn, (0.025, 0.975)))
    return Ratio(math.exp(mean), float(low), float(high), min(len(logs_of[0]) for logs_of in families.values()))


def _mean_log(outcomes: Iterable[Outcome], base: Iterable[Outcome]) -> float:
    logs = [math.log(a.makespan_s / b.makespan_s) for a, b in zip(outcomes, base, strict=True)]
    return sum(logs) / len(logs)
