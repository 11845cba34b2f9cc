"""Measure warm-up in simulation: waits against cold, costs against the best simple rule, the time of one plan."""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.efforts import SimulatedWarmup
from benchmarks.frame.rows import Bar, Row, pair_up
from drlnb.planning.warmup import saa_plan
from drlnb.sim.report import Comparison, compare
from drlnb.sim.warmup.compare import SHAPES, STARTS, Outcome, WarmupWorkload, simulate_warmup

__all__ = ["cells", "plan", "wait"]

#: Bars: share of cold's wait, idle seconds, cost over the best simple rule, milliseconds of a plan.
_WAIT = Bar("ratio", 0.30)
_IDLE_S, _CELL, _PLAN_MS = 0.75, 1.08, 2.0
#: Rules that need no cost model; each is the best one somewhere.
_SIMPLE = ("cold", "keep", "patent")
_NAMES = ", ".join(_SIMPLE)
_RHOS = (1.0, 10.0)
#: Plans that are timed.
_PLANS = 300

_row = partial(Row, origin="simulated")


# ------------------------------------------------------------------ W1
def wait(effort: SimulatedWarmup) -> Iterator[Row]:
    """Compare how long rounds wait for spawned collectors at rho 1 (W1)."""
    works = [WarmupWorkload(seed=seed, n_rounds=effort.rounds) for seed in effort.seeds]
    compared = compare(["cold", "saa", "keep", "patent"], works, simulate_warmup)
    cold_s = compared[0].samples("wait_s")
    against = "the same rounds under cold: started by the parameters' arrival"
    for runs in compared[1:]:
        name, words = f"w1-{runs.planner}", "spawn, jitter, 8 workers"
        paired, barred = pair_up(runs.samples("wait_s"), cold_s), runs.planner == "saa"
        title = f"{runs.planner}: wait of a round, {words}"
        yield _row(name, title, against=against, bar=_WAIT if barred else None, **paired)
        title, bar = f"{runs.planner}: idle per worker, {words}", Bar("value", _IDLE_S) if barred else None
        yield _row(f"{name}-idle", title, runs.samples("idle_s"), bar=bar)


# ------------------------------------------------------------------ W2
def cells(effort: SimulatedWarmup) -> Iterator[Row]:
    """Compare saa's cost with that of the best simple rule in twelve cells (W2)."""
    for mode in STARTS:
        for shape in SHAPES:
            shaped = partial(WarmupWorkload, n_rounds=effort.rounds, shape=shape, start_mode=mode)
            works = [shaped(seed=seed) for seed in effort.seeds]
            simple = compare(_SIMPLE, works, simulate_warmup)
            for rho in _RHOS:
                (mine,) = compare(["saa"], works, partial(simulate_warmup, settings={"rho": rho}))
                # Waits and idle times of the simple rules do not depend on rho: only their sum does.
                costs = {comparison.planner: _costs(comparison, rho) for comparison in simple}
                best = min(costs, key=lambda planner: sum(costs[planner]))
                name, words = f"w2-{shape}-{mode}-rho{rho:g}", f"rho {rho:g}, {mode}, {shape}, 8 workers"
                title, against = f"saa: rho wait + idle per worker and round, {words}", f"the best of {_NAMES}: {best}"
                paired = pair_up(_costs(mine, rho), costs[best])
                yield _row(name, title, against=against, bar=Bar("ratio", _CELL), **paired)


def _costs(comparison: Comparison[Outcome], rho: float) -> list[float]:
    return [rho * outcome.wait_s + outcome.idle_s for outcome in comparison.results]


# ------------------------------------------------------------------ W5
def plan(effort: SimulatedWarmup) -> tuple[Row, ...]:
    """Time one plan from 64 rounds of 8 workers (W5)."""
    del effort
    work = WarmupWorkload(n_rounds=64)
    gaps = np.repeat(work.gaps_s[:, None], work.n_workers, axis=1).tolist()
    starts = work.starts_s.tolist()
    took_ms = []
    for _ in range(_PLANS):
        began = time.perf_counter()
        saa_plan(gaps, starts, 1.0)
        took_ms.append((time.perf_counter() - began) * 1e3)
    title = "one plan of saa from 64 rounds x 8 workers, lists in, plan out"
    return (Row("w5-plan", title, took_ms, "ms", bar=Bar("value", _PLAN_MS)),)
