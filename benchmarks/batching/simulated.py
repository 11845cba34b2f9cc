"""Compare planners of shares in simulation (M1 to M4, M7), beside who knows each split's speeds before it.

Every planner meets the same contention per seed; a sample is one seed.  Planner `patent` has no bar.  The networks were
trained on other seeds, other periods and other numbers of members: see :mod:`benchmarks.batching.weights`.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from benchmarks.batching import weights
from benchmarks.batching.episodes import QUORUM, REWARDS
from benchmarks.efforts import SimulatedBatching
from benchmarks.frame.rows import Bar, Row, pair_up
from drlnb.learned.batching import Ddqn, Patent
from drlnb.learned.batching.network import Network
from drlnb.planning.batching import Member, plan_split
from drlnb.sim.batching.play import CLAIRVOYANT, Gang, Outcome, simulate_batching
from drlnb.sim.batching.traces import MIXED, Contention
from drlnb.sim.report import Comparison, compare

__all__ = ["ablation", "bursts", "foreseen", "harm", "patent", "plan", "static", "steal", "trained", "unseen"]

#: Whom a split of eight waits for.
_QUORUM = 6
#: M1: most of equal's time, most of the optimum.
_OF_EQUAL, _OF_OPTIMUM = 0.41, 1.07
#: M2: mean splits of a burst -> most of the optimum, least share of the optimum's samples per second.
_BURSTS = {5.0: (1.11, 0.87), 20.0: (1.09, 0.91), 100.0: (1.08, 0.92)}
_TWELVE = MIXED + MIXED[:4]
#: M3: most of jump-reset's time.
_NO_HARM = 1.02
_Least = tuple[float | None, ...]
#: M4: title of a contention -> its settings; how much faster than jump-reset at least, in full and, if that is
#: measured, with a quorum: of ddqn, of auto (None: no bar).  Training had none of the periods, and no twelve members.
_FORESEEN: Mapping[str, tuple[Mapping[str, object], _Least, _Least]] = {
    "held-out": ({"family": "periodic", "periods": (10, 13)}, (1.5, 1.08), (None, None)),
    "beyond": ({"family": "periodic", "periods": (17, 19, 21)}, (None, None), (1.5, None)),
    "correlated": ({"family": "correlated"}, (1.25, 1.01), (None, None)),
    "held-out-12": ({"family": "periodic", "periods": (10, 13), "speeds": _TWELVE}, (1.5,), (None,)),
    "correlated-12": ({"family": "correlated", "speeds": _TWELVE}, (1.25,), (None,)),
}
#: Seeds of networks that are trained to be compared with the shipped one, of seed 0.
_OTHER_SEEDS = (1, 2)
#: What planner `patent` is shown on, and how its splits are gathered.
_SHOWN: Mapping[str, Mapping[str, object]] = {
    "static": {"family": "static"},
    "dwell5": {"family": "memoryless", "dwell": 5.0},
    "held-out": _FORESEEN["held-out"][0],
    "correlated": _FORESEEN["correlated"][0],
}
_GATHERED = Gang(quorum=QUORUM, late="drop")
#: M7: most of the optimum where what is left of a slow share is shared anew, by title of a contention.
_STOLEN = 1.3
_STEALING: Mapping[str, Mapping[str, object]] = {
    "static": {"family": "static"},
    "dwell2": {"family": "memoryless", "dwell": 2.0},
    "dwell20": {"family": "memoryless", "dwell": 20.0},
    "periodic": {"family": "periodic"},
    "correlated": {"family": "correlated"},
}
#: M6: most milliseconds of a plan for eight members.
_PLAN_MS = 0.5
_PLANS = 400
#: Student's t, 95 %, by the number of samples.
_STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}

_row = partial(Row, origin="simulated")
_Compared = dict[str, Comparison[Outcome]]


def _traces(effort: SimulatedBatching, **contention: object) -> list[Contention]:
    """Return the contention of each seed."""
    return [Contention(seed=seed, n_splits=effort.splits, **contention) for seed in effort.seeds]  # type: ignore[arg-type]


def _compared(effort: SimulatedBatching, planners: Sequence[str], gang: Gang, **contention: object) -> _Compared:
    """Return what came out for each planner, and for the clairvoyant one, on the same contention."""
    run = partial(simulate_batching, gang=gang)
    return {each.planner: each for each in compare([*planners, CLAIRVOYANT], _traces(effort, **contention), run)}


def _of_optimum(runs: _Compared, planner: str, figure: str = "split_s") -> list[float]:
    """Return a figure of a planner over the clairvoyant one's without a quorum, by seed."""
    return [a / b for a, b in zip(runs[planner].samples(figure), runs[CLAIRVOYANT].samples(figure), strict=True)]


# ------------------------------------------------------------------ M1
def static(effort: SimulatedBatching) -> Iterator[Row]:
    """Compare planners where members differ, and nothing else happens (M1)."""
    runs = _compared(effort, ["equal", "static", "ewma", "jump-reset", "ddqn"], Gang(), family="static")
    for planner in ("static", "ewma", "jump-reset", "ddqn"):
        barred = planner in {"jump-reset", "ddqn"}
        name, words = f"m1-{planner}", "eight unequal members"
        paired = pair_up(runs[planner].samples("split_s"), runs["equal"].samples("split_s"))
        bar = Bar("ratio", _OF_EQUAL) if barred else None
        yield _row(name, f"{planner}: mean split, {words}", against="the same members under equal", bar=bar, **paired)
        title, bar = f"{planner}: mean split over the optimum, {words}", Bar("value", _OF_OPTIMUM) if barred else None
        yield _row(f"{name}-optimum", title, _of_optimum(runs, planner), "x", bar=bar)


# ------------------------------------------------------------------ M2
def bursts(effort: SimulatedBatching) -> Iterator[Row]:
    """Compare jump-reset with the optimum under bursts of chance, waiting for six of eight (M2)."""
    for dwell, (most, least) in _BURSTS.items():
        contention: dict[str, object] = {"family": "memoryless", "dwell": dwell}
        full = _compared(effort, ["ewma", "jump-reset"], Gang(), **contention)
        some = _compared(effort, ["ewma", "jump-reset"], Gang(quorum=_QUORUM), **contention)
        for planner in ("ewma", "jump-reset"):
            is_default = planner == "jump-reset"
            name, words = f"m2-dwell{dwell:g}-{planner}", f"{planner}, bursts of {dwell:g} splits"
            title = f"mean split over the optimum, {words}, waiting for all"
            yield _row(f"{name}-full", title, _of_optimum(full, planner), "x")
            title, bar = f"mean split over the optimum, {words}, waiting for 6 of 8", Bar("value", most)
            yield _row(name, title, _of_optimum(some, planner), "x", bar=bar if is_default else None)
            title, bar = f"samples/s over the optimum's, {words}, waiting for 6 of 8", Bar("value", at_least=least)
            shares = _of_optimum(some, planner, "samples_hz")
            yield _row(f"{name}-samples", title, shares, "x", bar=bar if is_default else None)
            title = f"share of samples not used, {words}, waiting for 6 of 8"
            yield _row(f"{name}-lost", title, some[planner].samples("lost_frac"), "")


# ------------------------------------------------------------------ M3
def harm(effort: SimulatedBatching) -> Iterator[Row]:
    """Show what learned planners cost where nothing can be foreseen (M3)."""
    cases: dict[str, dict[str, object]] = {"static": {"family": "static"}}
    cases |= {f"memoryless, bursts of {dwell:g}": {"family": "memoryless", "dwell": dwell} for dwell in _BURSTS}
    for words, contention in cases.items():
        runs = _compared(effort, ["jump-reset", "seasonal", "ddqn", "auto"], Gang(), **contention)
        name = "m3-" + words.replace(", bursts of ", "-")
        for planner in ("auto", "ddqn", "seasonal"):
            paired = pair_up(runs[planner].samples("split_s"), runs["jump-reset"].samples("split_s"))
            bar = Bar("ratio", _NO_HARM) if planner == "auto" else None
            title = f"{planner}: mean split, {words}"
            yield _row(f"{name}-{planner}", title, against="jump-reset on the same contention", bar=bar, **paired)


# ------------------------------------------------------------------ M4
def foreseen(effort: SimulatedBatching) -> Iterator[Row]:
    """Compare planners where contention has a pattern (M4)."""
    yield from _foreseen(effort, "held-out", "correlated")


def unseen(effort: SimulatedBatching) -> Iterator[Row]:
    """Compare planners at periods and with members beyond those of training (M4)."""
    yield from _foreseen(effort, "beyond", "held-out-12", "correlated-12")


def _foreseen(effort: SimulatedBatching, *titles: str) -> Iterator[Row]:
    gangs = (("waiting for all", "", Gang()), ("waiting for 6 of 8", "-q6", Gang(quorum=_QUORUM)))
    for words in titles:
        contention, of_ddqn, of_auto = _FORESEEN[words]
        for (waiting, suffix, gang), *least in zip(gangs, of_ddqn, of_auto, strict=False):
            runs = _compared(effort, ["jump-reset", "seasonal", "ddqn", "auto"], gang, **contention)
            for planner, at_least in zip(("ddqn", "auto", "seasonal"), (*least, None), strict=True):
                name, title = f"m4-{words}{suffix}-{planner}", f"{planner}, {words}, {waiting}"
                yield from _faster(name, title, runs, planner, at_least)
            title = f"mean split over the optimum: jump-reset, {words}, {waiting}"
            yield _row(f"m4-{words}{suffix}-jump-reset-optimum", title, _of_optimum(runs, "jump-reset"), "x")


def _faster(name: str, words: str, runs: _Compared, planner: str, at_least: float | None) -> Iterator[Row]:
    """Yield how much faster than jump-reset a planner is, and what is certain of it."""
    mine, base = runs[planner].samples("split_s"), runs["jump-reset"].samples("split_s")
    factors = [b / a for a, b in zip(mine, base, strict=True)]
    bar = None if at_least is None else Bar("value", at_least=at_least)
    yield _row(name, f"times faster than jump-reset: {words}", factors, "x", bar=bar)
    if at_least is not None and (n := len(factors)) > 1:
        mean = math.fsum(factors) / n
        spread = math.sqrt(math.fsum((f - mean) ** 2 for f in factors) / (n - 1))
        low = mean - _STUDENT[n] * spread / math.sqrt(n)
        title = f"lower end of the 95 % interval of the mean: {words}"
        yield _row(f"{name}-low", title, (low,), "x", bar=Bar("value", at_least=1.0))


def trained(effort: SimulatedBatching) -> Iterator[Row]:
    """Train networks under other seeds than the shipped one's, and compare each as it is (M4)."""
    networks = {f"seed {seed}": Ddqn(Network(weights.trained(seed))) for seed in _OTHER_SEEDS}
    for words in ("held-out", "correlated"):
        traces = _traces(effort, **_FORESEEN[words][0])
        runs = {each.planner: each for each in compare(["jump-reset"], traces, simulate_batching)}
        for name, planner in networks.items():
            outcomes = [simulate_batching(trace, planner) for trace in traces]
            title = f"ddqn trained under {name}, {words}, waiting for all"
            row = f"m4-{words}-{name.replace(' ', '-')}"
            yield from _faster(row, title, runs | {name: Comparison(name, outcomes)}, name, None)


# ------------------------------------------------------------------ the patent's planner
def patent(effort: SimulatedBatching) -> Iterator[Row]:
    """Show what the batching patent's planner comes to, waiting for three quarters and for all, beside others."""
    for words, contention in _SHOWN.items():
        full = _compared(effort, ["patent"], Gang(), **contention)
        title = f"mean split over the optimum: patent, {words}, waiting for all"
        yield _row(f"patent-{words}-full", title, _of_optimum(full, "patent"), "x")
        some = _compared(effort, ["jump-reset", "ddqn", "patent"], _GATHERED, **contention)
        for planner in ("jump-reset", "ddqn", "patent"):
            yield from _objectives(f"patent-{words}-{planner}", f"{planner}, {words}", some[planner], full)


def ablation(effort: SimulatedBatching) -> Iterator[Row]:
    """Train the patent's planner under each reward, and compare the networks as its splits are gathered."""
    planners = {name: Patent(Network(weights.trained(0, name))) for name in REWARDS}
    for words, contention in _SHOWN.items():
        best = _compared(effort, [], Gang(), **contention)
        for name, planner in planners.items():
            outcomes = [simulate_batching(trace, planner, _GATHERED) for trace in _traces(effort, **contention)]
            row, title = f"ablation-{words}-{name.replace(' ', '-')}", f"patent rewarded by {name}, {words}"
            yield from _objectives(row, title, Comparison(name, outcomes), best)


def _objectives(name: str, words: str, run: Comparison[Outcome], best: _Compared) -> Iterator[Row]:
    """Yield the objectives apart: time and samples per second beside the optimum's, and the share not used."""
    runs = {**best, run.planner: run}
    title = f"{words}, waiting for 3 of 4 and dropping the rest"
    yield _row(name, f"mean split over the optimum: {title}", _of_optimum(runs, run.planner), "x")
    shares = _of_optimum(runs, run.planner, "samples_hz")
    yield _row(f"{name}-samples", f"samples/s over the optimum's: {title}", shares, "x")
    yield _row(f"{name}-lost", f"share of samples not used: {title}", run.samples("lost_frac"), "")


# ------------------------------------------------------------------ M7
def steal(effort: SimulatedBatching) -> Iterator[Row]:
    """Share anew what slow members have not begun, and compare with the optimum (M7); no sample is lost."""
    for words, contention in _STEALING.items():
        full = _compared(effort, ["jump-reset"], Gang(), **contention)
        again = _compared(effort, ["equal", "jump-reset", "ddqn"], Gang(steal=True), **contention)
        yield _row(
            f"m7-{words}-alone",
            f"mean split over the optimum: jump-reset, {words}",
            _of_optimum(full, "jump-reset"),
            "x",
        )
        for planner in ("equal", "jump-reset", "ddqn"):
            runs = {**full, planner: again[planner]}
            title = f"mean split over the optimum: {planner} with steal, {words}"
            bar = Bar("value", _STOLEN) if planner == "jump-reset" else None
            yield _row(f"m7-{words}-{planner}", title, _of_optimum(runs, planner), "x", bar=bar)
        title = f"share of samples not used: jump-reset with steal, {words}"
        yield _row(f"m7-{words}-lost", title, again["jump-reset"].samples("lost_frac"), "", bar=Bar("value", 0.0))


# ------------------------------------------------------------------ M6
def plan(effort: SimulatedBatching) -> Iterator[Row]:
    """Time one plan of sizes for 8 and for 64 members (M6)."""
    for n in (8, 64):
        speeds = (MIXED * n)[:n]
        took_ms = []
        for k in range(_PLANS):
            members = [
                Member(id=f"m{i}", speed_hz=speed * (1 + 0.01 * ((7 * i + k) % 5)), overhead_s=0.01)
                for i, speed in enumerate(speeds)
            ]
            began = time.perf_counter()
            plan_split(512 * n // 8, members)
            took_ms.append((time.perf_counter() - began) * 1e3)
        bar = Bar("value", _PLAN_MS) if n == len(MIXED) else None
        yield Row(f"m6-plan-{n}", f"sizes of {n} members' shares from their speeds", took_ms, "ms", bar=bar)
