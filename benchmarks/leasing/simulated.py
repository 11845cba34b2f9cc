"""Measure sharing in simulation: utilisation, throughput, fairness (B1 to B4), beside no leases at all.

Every planner meets the same workload per seed; a sample is one seed.  A headline row on throughput stands beside both
ways to do without leases: exclusive (one task per slot to its end) and co-located (all at once on the devices).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.efforts import SimulatedLeasing
from benchmarks.frame.rows import Bar, Row, pair_up
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.sim.leasing.compare import LeasingWorkload, simulate_leasing, tasks_for_load
from drlnb.sim.leasing.report import workloads
from drlnb.sim.report import compare

__all__ = ["fairness", "throughput", "utilisation"]

#: Load -> least utilisation over its bound (B1), most round inflation (B2), for ``yield`` on two slots.
_YIELD = {0.8: (0.93, 1.10), 1.0: (0.88, 1.15)}
#: Least of the same for ``round`` at load 0.8 and CV 0.2.
_ROUND = 0.90
#: Least share of the limit 1/d in throughput over exclusive, and the least factor at d = 0.2 (B3).
_OF_LIMIT, _FACTOR = 0.85, 4.2
#: Most that slot seconds of equal tasks may differ, as a ratio (B4).
_FAIR = 1.10
#: Seconds of a switch up to which B1 binds.
_SWITCH_S = 0.01

_row = partial(Row, unit="", origin="simulated")


# -------------------------------------------------------------------- B1, B2
def utilisation(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare utilisation with its bound, and round times with those of the same tasks alone (B1, B2)."""
    for cv in (0.2, 0.5):
        workload = LeasingWorkload(collect_cv=cv, switch_s=_SWITCH_S, n_rounds=effort.rounds)
        for load in _YIELD:
            yield from _cell(f"cv{cv}-load{load}", load, workload, effort.seeds)


def _cell(name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int]) -> Iterator[Row]:
    rule, lease = compare(["round", "yield"], workloads(seeds, load, workload), simulate_leasing)
    least, most = _YIELD[load]
    words = f"load {load}, K={workload.n_slots}, CV {workload.collect_cv}, switch {workload.switch_s * 1e3:g} ms"
    for key, figure, title, bar in (
        ("b1", "of_bound", "utilisation/bound", Bar("value", at_least=least)),
        ("b2", "inflation", "round time/alone", Bar("value", at_most=most)),
    ):
        mine, base = lease.samples(figure), rule.samples(figure)
        row = partial(_row, f"{key}-yield-{name}", f"{title}, `yield`, {words}", mine, bar=bar)
        yield row(against="the patent's `round` on the same workloads", baseline_samples=base)
    if load == 0.8 and workload.collect_cv <= 0.2:
        title, bar = f"utilisation/bound, `round`, {words}", Bar("value", at_least=_ROUND)
        yield _row(f"b1-round-{name}", title, rule.samples("of_bound"), bar=bar)


# -------------------------------------------------------------------- B3
def throughput(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare rounds per second with exclusive and with co-located use of the same slots (B3)."""
    workload = LeasingWorkload(switch_s=_SWITCH_S, n_rounds=effort.rounds)
    for load in (1.0, 1.5):
        yield from _throughput(f"load{load}", load, workload, effort.seeds)


def _throughput(name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int]) -> Iterator[Row]:
    (lease,) = compare(["yield"], workloads(seeds, load, workload), simulate_leasing)
    d = lease.mean("d_mean")
    mine, alone, crowd = (lease.samples(f"{kind}_hz") for kind in ("rounds", "exclusive", "colocated"))
    words = f"rounds/s of all tasks, `yield`, load {load}, K={workload.n_slots}, d={d:.3f}"
    least, exclusive = _FACTOR if abs(d - 0.2) < 0.02 else _OF_LIMIT / d, pair_up(mine, alone)
    against, bar = "exclusive: the same tasks, one per slot to its end, in sequence", Bar("ratio", at_least=least)
    yield _row(f"b3-exclusive-{name}", words, against=against, bar=bar, **exclusive)
    of_limit = [ratio * result.d_mean for ratio, result in zip(exclusive["pairs"], lease.results, strict=True)]
    title, bar = f"the same ratio as a share of its limit 1/d = {1 / d:.2f}", Bar("value", at_least=_OF_LIMIT)
    yield _row(f"b3-limit-{name}", title, of_limit, bar=bar)
    against = "co-located: the same tasks all at once on the devices, no lease, their time shared evenly"
    yield _row(f"b3-colocated-{name}", words, against=against, **pair_up(mine, crowd))


# -------------------------------------------------------------------- B4
def fairness(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare slot seconds of equal tasks, and bound the longest wait of the one with the lowest priority (B4)."""
    equal, lowest, bounds = [], [], []
    n_rounds = max(effort.rounds, 200) if effort.rounds >= 60 else effort.rounds
    for seed in effort.seeds:
        workload = tasks_for_load(1.0, LeasingWorkload(seed=seed, n_rounds=n_rounds))
        held_s = simulate_leasing(workload, "yield").held_s
        equal.append(max(held_s) / min(held_s))
        low = simulate_leasing(replace(workload, n_rounds=effort.rounds), "yield", priorities={0: -1})
        lowest.append(low.wait_max_s[0])
        # I8: nobody who asks a step's worth later passes, and each of the others holds once before it.
        others = (workload.n_tasks - 1) / workload.n_slots
        bounds.append(LeasingSettings().age_quantum_s + low.longest_hold_s * (1 + others))
    title = f"slot seconds of equal tasks, most/least over {n_rounds} rounds, `yield`, load 1.0, K=2"
    yield _row("b4-fair", title, equal, bar=Bar("value", at_most=_FAIR))
    title = "longest wait of the one task that is a step of priority behind"
    against = "I8: a step's worth of waiting, then every other task's longest hold, over the slots"
    bar = Bar("ratio", at_most=1.0)
    yield _row("b4-lowest", title, lowest, unit="s", against=against, baseline_samples=bounds, bar=bar)
