"""Hold the simulator of gangs to what is known exactly: the closed form, its own seed, and optimal schedules."""

import random
import statistics
import time
from collections.abc import Iterator, Sequence

from benchmarks.efforts import Placement
from benchmarks.frame.rows import Bar, Row
from benchmarks.placement.suite import CLUSTER, REGIMES, WAYS
from drlnb.learned.placement import Patent
from drlnb.planning.placement import GANGS, Cluster, ClusterView, JobView
from drlnb.planning.placement.closed_form import expected_completion_s
from drlnb.planning.registry import PlannerFailed
from drlnb.sim.placement import FaultModel, FaultPath, TraceJob, load_trace, simulate

__all__ = ["exact", "optimum", "speed"]

#: Setting -> checkpoints, slots of the cluster, which the gang fills, days between failures of each, seconds of work.
_CLOSED: dict[str, tuple[float | None, int, float, float]] = {
    "8 slots, a day, hourly checkpoints": (3600.0, 8, 20, 86_400.0),
    "8 slots, a day, no checkpoints": (None, 8, 20, 86_400.0),
    "16 slots, 10 h, checkpoints each 4 h": (4 * 3600.0, 16, 5, 36_000.0),
}
_RUNS, _DECISIONS, _INSTANCES = 5000, 100_000, 50
#: Planner -> most milliseconds of a plan.
_MOST_MS = {"ect": 1.0, "learned": 10.0}


def exact(effort: Placement) -> Iterator[Row]:
    """Compare with the closed form and with optimal schedules; play twice; count picks that do not fit."""
    yield from _closed_form(effort)
    yield from _same(effort)
    yield from _picks(effort)
    yield from _optimal(effort)


def _closed_form(effort: Placement) -> Iterator[Row]:
    """Play a gang that fills the cluster, slots being back at once."""
    for number, (words, (checkpoint_s, n_slots, mtbf_days, work_s)) in enumerate(_CLOSED.items()):
        cluster, jobs = Cluster.uniform(1, n_slots), [TraceJob("gang", 0.0, n_slots, work_s)]
        model = FaultModel(mtbf_days=mtbf_days, spread=0.0, node_spread=0.0, mttr_s=0.0)
        rates = model.rates(cluster)
        n = int(_RUNS * effort.share)
        seeds = range(effort.seed * n, (effort.seed + 1) * n)
        runs = [
            simulate(cluster, jobs, "first", model.path(rates, seed=seed), checkpoint_s=checkpoint_s).makespan_s
            for seed in seeds
        ]
        expected_s = expected_completion_s(work_s, rates, checkpoint_s=checkpoint_s)
        mean, error = statistics.fmean(runs) / expected_s, statistics.stdev(runs) / expected_s / n**0.5
        title = f"mean of {n} simulated makespans over the closed form: {words}"
        yield Row(
            f"closed-form/{number}",
            title,
            (mean,),
            "x",
            interval={"kind": "95 %", "low": mean - 1.96 * error, "high": mean + 1.96 * error, "n": n},
            bar=Bar("value", 1.02, 0.98),
            origin="simulated",
        )


def _same(effort: Placement) -> Iterator[Row]:
    """Play windows twice, and look at the faults after each planner."""
    regime, trace = REGIMES["r6"], load_trace(effort.trace or None)
    n_other = n_moved = n_played = 0
    for number, window in enumerate(effort.of("gang").cut(trace)[:20]):
        rates = regime.model.rates(CLUSTER, seed=number)
        before = _faults(regime.model.path(rates, seed=number))
        for planner in [name for name in GANGS.names if name != Patent.name]:  # it is of one cluster
            paths = [regime.model.path(rates, seed=number) for _ in range(2)]
            first, again = (simulate(CLUSTER, window, planner, path, checkpoint_s=None) for path in paths)
            n_played += 1
            n_other += first != again
            n_moved += any(_faults(path) != before for path in paths)
    title = f"of {n_played} windows and planners, those that came out another way under the same seed"
    yield Row("same-seed", title, (n_other,), "runs", bar=Bar("value", 0.0), origin="simulated")
    title = f"of {n_played} windows and planners, those after which a fault was another one"
    yield Row("same-path", title, (n_moved,), "runs", bar=Bar("value", 0.0), origin="simulated")


def _faults(path: FaultPath) -> list[tuple[float, float]]:
    """Return the first 40 outages of each slot."""
    return [path.outage(slot, k) for slot in range(CLUSTER.n_slots) for k in range(40)]


def _picks(effort: Placement) -> Iterator[Row]:
    """Count decisions that do not fit, and jobs that did not hold their slots."""
    trace, limit = load_trace(effort.trace or None), _DECISIONS * effort.share
    n_plans = n_wrong = n_unheld = number = 0
    windows = {family: effort.of(family).cut(trace) for family in ("gang", "mixed")}
    while n_plans < limit:
        regime = list(REGIMES.values())[number % len(REGIMES)]
        window = windows[regime.family][number % len(windows[regime.family])]
        path = regime.model.path(regime.model.rates(CLUSTER, seed=number), seed=number)
        how = {"checkpoint_s": regime.checkpoint_s, "locality_frac": regime.locality_frac}
        planner, order = list(WAYS.values())[number // len(REGIMES) % len(WAYS)]
        number += 1
        try:
            outcome = simulate(CLUSTER, window, planner, path, order=order, **how)
        except PlannerFailed:
            n_wrong += 1
            continue
        n_plans += outcome.n_plans
        held = {each.job: len(set(each.slots)) for each in outcome.attempts if each.finished}
        n_unheld += held != {job.job: job.n_slots for job in window}
    title = f"picks that do not fit, of {n_plans}"
    yield Row("picks", title, (n_wrong,), "picks", bar=Bar("value", 0.0), origin="simulated")
    title = f"of {number} windows, those with a job that did not end on as many slots as it needs"
    yield Row("held", title, (n_unheld,), "windows", bar=Bar("value", 0.0), origin="simulated")


def _optimal(effort: Placement) -> Iterator[Row]:
    """Compare largest + ect, nothing failing, with the shortest schedule of a few jobs."""
    rng, ratios = random.Random(effort.seed), []
    for _ in range(int(_INSTANCES * effort.share)):
        n_slots = rng.randint(4, 8)
        jobs = [(rng.randint(1, n_slots), float(rng.randint(1, 100))) for _ in range(rng.randint(4, 8))]
        cluster = Cluster.uniform(1, n_slots)
        window = [TraceJob(f"j{i}", 0.0, n, work_s) for i, (n, work_s) in enumerate(jobs)]
        idle = FaultPath([()] * n_slots)
        placed = simulate(cluster, window, "ect", idle, order="largest", checkpoint_s=None)
        ratios.append(placed.makespan_s / optimum(jobs, n_slots))
    title = f"largest+ect over the shortest schedule, nothing failing, of {len(ratios)} batches"
    most = Bar("value", 1.3)
    yield Row("optimum/most", f"the most of {title}", (max(ratios),), "x", bar=most, origin="simulated")
    least = Bar("value", at_least=1.0)
    yield Row("optimum/least", f"the least of {title}", (min(ratios),), "x", bar=least, origin="simulated")
    yield Row("optimum", title, ratios, "x", origin="simulated")


def optimum(jobs: Sequence[tuple[int, float]], n_slots: int) -> float:
    """Return the least makespan of jobs that need slots side by side, nothing failing, any slots alike.

    Some order of the jobs gives a shortest schedule if each in turn starts as early as those before it let it; so all
    orders are tried, as far as they can still be shorter than the best (branch and bound).

    Parameters
    ----------
    jobs
        Slots and seconds of each; a dozen take too long.
    n_slots
        Slots there are.
    """
    area_s = sum(n * work_s for n, work_s in jobs) / n_slots
    least_s = max(area_s, *(work_s for _, work_s in jobs))
    best_s = sum(work_s for _, work_s in jobs)

    def place(placed: list[tuple[float, float, int]], left: list[tuple[int, float]], ends_s: float) -> None:
        nonlocal best_s
        if not left:
            best_s = min(best_s, ends_s)
        for i, (n, work_s) in enumerate(left):
            if best_s <= least_s:
                return
            if (n, work_s) in left[:i]:
                continue
            start_s = _earliest(placed, n, work_s, n_slots)
            if (later_s := max(ends_s, start_s + work_s)) < best_s:
                place([*placed, (start_s, start_s + work_s, n)], left[:i] + left[i + 1 :], later_s)

    place([], sorted(jobs, key=lambda job: -job[0] * job[1]), 0.0)
    return best_s


def _earliest(placed: Sequence[tuple[float, float, int]], n: int, work_s: float, n_slots: int) -> float:
    """Return when `n` slots are free for so long."""
    for start_s in sorted({0.0, *(end_s for _, end_s, _ in placed)}):
        within = [start_s, *(begun_s for begun_s, _, _ in placed if start_s < begun_s < start_s + work_s)]
        if all(sum(k for a, b, k in placed if a <= t < b) + n <= n_slots for t in within):
            return start_s
    raise ValueError(f"a job needs {n} of {n_slots} slots")


def speed(effort: Placement) -> Iterator[Row]:
    """Time plans for a gang of eight among 256 slots, half of them free."""
    cluster = Cluster.uniform(n_nodes=32, slots_per_node=8)
    rates = FaultModel().rates(cluster, seed=effort.seed)
    planners = {name: GANGS.build(name) for name in _MOST_MS}
    took_ms: dict[str, list[float]] = {name: [] for name in planners}
    for seed in range(int(400 * effort.share)):
        rng = random.Random(seed)
        view = ClusterView(
            cluster=cluster,
            state=tuple(rng.choice(("free", "busy")) for _ in range(cluster.n_slots)),
            rate_hz=rates,
            window=(JobView(job="gang", n_slots=8, work_s=86_400.0),),
        )
        for name, planner in planners.items():
            began = time.perf_counter()
            planner.plan(view)
            took_ms[name].append((time.perf_counter() - began) * 1e3)
    for name, most_ms in _MOST_MS.items():
        title = f"a plan of {name}: 8 of 256 slots, half of them free"
        yield Row(f"plan/{name}/256", title, took_ms[name], "ms", bar=Bar("value", most_ms))
