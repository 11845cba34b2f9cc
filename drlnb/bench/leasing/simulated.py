"""Measure sharing in simulation: utilisation, throughput, fairness, makespan (B1 to B4), beside no leases at all.

Every planner meets the same workload per seed; a sample is one seed.  A headline row on throughput stands beside both
ways to do without leases: exclusive (one task per slot to its end) and co-located (all at once on the devices).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from drlnb.bench.benches import SimulatedLeasing
from drlnb.bench.frame.rows import Bar, Row, pair_up
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.columns.leasing import LeaseReleased
from drlnb.sim.costs import Workload
from drlnb.sim.leasing.colocated import colocated_makespan_s
from drlnb.sim.leasing.compare import LeasingWorkload, for_duty, simulate_leasing, tasks_for_load
from drlnb.sim.leasing.report import Comparison, compare
from drlnb.sim.training.fleet import run_tasks

__all__ = ["fairness", "held_out", "in_sequence", "makespan", "table", "throughput", "utilisation"]

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
#: Never "too dear": what a column of the table is about is the switch itself, not the guard against it.
_NO_GUARD = LeasingSettings(switch_limit_frac=1e6)

_row = partial(Row, unit="", origin="simulated")


def _samples(runs: Comparison, name: str) -> list[float]:
    return [getattr(result, name) for result in runs.results]


# -------------------------------------------------------------------- B1, B2
def utilisation(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare utilisation with its bound, and round times with those of the same tasks alone (B1, B2)."""
    for cv in (0.2, 0.5):
        workload = LeasingWorkload(collect_cv=cv, switch_s=_SWITCH_S, n_rounds=effort.rounds)
        for load in _YIELD:
            yield from _cell(f"cv{cv}-load{load}", load, workload, effort.seeds)


def _cell(
    name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int], *, binding: bool = True
) -> Iterator[Row]:
    rule, lease = compare(["round", "yield"], seeds, load=load, workload=workload)
    least, most = _YIELD[load]
    words = f"load {load}, K={workload.n_slots}, CV {workload.collect_cv}, switch {workload.switch_s * 1e3:g} ms"
    for key, figure, title, bar in (
        ("b1", "of_bound", "utilisation/bound", Bar("value", at_least=least)),
        ("b2", "inflation", "round time/alone", Bar("value", at_most=most)),
    ):
        mine, base = _samples(lease, figure), _samples(rule, figure)
        row = partial(_row, f"{key}-yield-{name}", f"{title}, `yield`, {words}", mine, bar=bar, binding=binding)
        yield row(against="the seed's `round` on the same workloads", baseline_samples=base)
    by_model = f"by the machine-repairman model, {words}"
    expected = [result.expected.utilisation_frac / result.bound_frac for result in lease.results]
    yield _row(f"expected-utilisation-{name}", f"utilisation/bound {by_model}", expected)
    inflation = [result.expected.inflation for result in lease.results]
    yield _row(f"expected-inflation-{name}", f"round time/alone {by_model}", inflation)
    if load == 0.8 and workload.collect_cv <= 0.2:
        title, bar = f"utilisation/bound, `round`, {words}", Bar("value", at_least=_ROUND)
        yield _row(f"b1-round-{name}", title, _samples(rule, "of_bound"), bar=bar, binding=binding)


# -------------------------------------------------------------------- B3
def throughput(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare rounds per second with exclusive and with co-located use of the same slots (B3)."""
    workload = LeasingWorkload(switch_s=_SWITCH_S, n_rounds=effort.rounds)
    for load in (1.0, 1.5):
        yield from _throughput(f"load{load}", load, workload, effort.seeds)


def _throughput(
    name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int], *, binding: bool = True
) -> Iterator[Row]:
    (lease,) = compare(["yield"], seeds, load=load, workload=workload)
    d = lease.mean("d_mean")
    mine, alone, crowd = (_samples(lease, f"{kind}_hz") for kind in ("rounds", "exclusive", "colocated"))
    words = f"rounds/s of all tasks, `yield`, load {load}, K={workload.n_slots}, d={d:.3f}"
    least, exclusive = _FACTOR if abs(d - 0.2) < 0.02 else _OF_LIMIT / d, pair_up(mine, alone)
    against, bar = "exclusive: the same tasks, one per slot to its end, in sequence", Bar("ratio", at_least=least)
    yield _row(f"b3-exclusive-{name}", words, against=against, bar=bar, binding=binding, **exclusive)
    of_limit = [ratio * result.d_mean for ratio, result in zip(exclusive["pairs"], lease.results, strict=True)]
    title, bar = f"the same ratio as a share of its limit 1/d = {1 / d:.2f}", Bar("value", at_least=_OF_LIMIT)
    yield _row(f"b3-limit-{name}", title, of_limit, bar=bar, binding=binding)
    against = "co-located: the same tasks all at once on the devices, no lease, their time shared evenly"
    yield _row(f"b3-colocated-{name}", words, against=against, **pair_up(mine, crowd))


# -------------------------------------------------------------------- B4
def fairness(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare slot seconds of equal tasks, and bound the longest wait of the one with the lowest priority (B4)."""
    equal, lowest, bounds = [], [], []
    for seed in effort.seeds:
        workload = tasks_for_load(1.0, LeasingWorkload(seed=seed, n_rounds=effort.fair_rounds))
        held_s = simulate_leasing(workload, "yield").held_s
        equal.append(max(held_s) / min(held_s))
        low = simulate_leasing(replace(workload, n_rounds=effort.rounds), "yield", priorities={0: -1})
        lowest.append(low.wait_max_s[0])
        # I8: nobody who asks a step's worth later passes, and each of the others holds once before it.
        others = (workload.n_tasks - 1) / workload.n_slots
        bounds.append(LeasingSettings().age_quantum_s + low.longest_hold_s * (1 + others))
    title = f"slot seconds of equal tasks, most/least over {effort.fair_rounds} rounds, `yield`, load 1.0, K=2"
    yield _row("b4-fair", title, equal, bar=Bar("value", at_most=_FAIR))
    title = "longest wait of the one task that is a step of priority behind"
    against = "I8: a step's worth of waiting, then every other task's longest hold, over the slots"
    bar = Bar("ratio", at_most=1.0)
    yield _row("b4-lowest", title, lowest, unit="s", against=against, baseline_samples=bounds, bar=bar)


# -------------------------------------------------------------------- makespan
def makespan(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare the time until all tasks have ended with those of one task per slot to its end, and of all at once.

    Beside both ways to do without leases stands what no way can beat: a slot for each task.
    """
    workload = LeasingWorkload(switch_s=_SWITCH_S, n_rounds=effort.rounds)
    for load in (1.0, 1.5):
        yield from _makespans(f"load{load}", load, workload, effort.seeds)


def _makespans(name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int]) -> Iterator[Row]:
    works = [tasks_for_load(load, replace(workload, seed=seed)) for seed in seeds]
    leased = [max(_ends(work, range(work.n_tasks), "yield")) for work in works]
    lone = [[_ends(replace(work, n_slots=1), [i], "round")[0] for i in range(work.n_tasks)] for work in works]
    counts = sorted({work.n_tasks for work in works})
    tasks = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    title = f"makespan of {tasks} tasks of {workload.n_rounds} rounds, `yield`, load {load}, K={workload.n_slots}"
    turns = [in_sequence(each, workload.n_slots) for each in lone]
    for kind, base, against in (
        ("turns", turns, "one task per slot to its end, the next one as soon as a slot is free"),
        ("colocated", map(_crowd_s, works), "all at once on the devices, no lease, their time shared evenly"),
        ("own", map(max, lone), "as many slots as tasks, one each"),
    ):
        yield _row(f"makespan-{kind}-{name}", title, unit="s", against=against, **pair_up(leased, list(base)))


def _crowd_s(work: LeasingWorkload) -> float:
    """Return when the last task ends, in seconds, if all are ordinary processes on the devices at once."""
    tasks = [Workload(work.costs(i), seed=work.seed, task=i, n_collectors=work.n_workers) for i in range(work.n_tasks)]
    return colocated_makespan_s(tasks, n_devices=work.n_slots, n_rounds=work.n_rounds)


def _ends(workload: LeasingWorkload, indices: Sequence[int], hold: str) -> list[float]:
    """Return when each of some tasks of a workload has given its last slot back, in seconds; all begin together."""
    pool, tasks = run_tasks(
        list(indices),
        n_slots=workload.n_slots,
        n_rounds=workload.n_rounds,
        n_collectors=workload.n_workers,
        hold=hold,
        seed=workload.seed,
        costs={i: workload.costs(i) for i in indices},
    )
    answers = [(event.t, record) for event, answer in pool.host.stream.answers() for record in answer]
    last = {record.task: t for t, record in answers if isinstance(record, LeaseReleased)}
    return [last[task.name] for task in tasks]


def in_sequence(lengths_s: Sequence[float], n_slots: int) -> float:
    """Return when the last of some tasks ends, each on a slot of its own to its end, the next where one is free first.

    Examples
    --------
    >>> in_sequence([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free_t = [0.0] * n_slots
    for length_s in lengths_s:
        free_t[free_t.index(min(free_t))] += length_s
    return max(free_t)


# -------------------------------------------------------------------- planners side by side
#: Planner and seconds of a switch, in the order of the figures below.
_PLANNERS = {
    "round": ("round", 0.0),
    "last": ("last", 0.0),
    "yield-0ms": ("yield", 0.0),
    "yield-50ms": ("yield", 0.05),
    "yield-250ms": ("yield", 0.25),
}
#: (CV, load, slots) -> utilisation/bound of the prototype, and its inflation, by planner.
_PROTOTYPE = {
    (0.05, 1.0, 1): ((0.99, 0.92, 0.99), (1.03, 1.10, 1.03)),
    (0.2, 0.8, 2): ((0.92, 0.85, 0.95, 0.93, 0.88), (1.08, 1.18, 1.05, 1.07, 1.14)),
    (0.2, 1.0, 2): ((0.89, 0.84, 0.93, 0.90, 0.81), (1.13, 1.19, 1.08, 1.11, 1.24)),
    (0.5, 0.8, 2): ((0.78, 0.84, 0.95, 0.92, 0.82), (1.29, 1.19, 1.06, 1.08, 1.22)),
    (0.5, 1.0, 2): ((0.74, 0.85, 0.94, 0.88, 0.74), (1.40, 1.22, 1.11, 1.17, 1.39)),
}


def table(effort: SimulatedLeasing) -> Iterator[Row]:
    """Compare utilisation over its bound and inflation of each planner, without the switch guard."""
    for (cv, load, n_slots), cells in _PROTOTYPE.items():
        for name, *known in zip(_PLANNERS, *cells, strict=False):
            hold, switch_s = _PLANNERS[name]
            workload = LeasingWorkload(collect_cv=cv, n_slots=n_slots, switch_s=switch_s, n_rounds=effort.rounds)
            (runs,) = compare([hold], effort.seeds, load=load, settings=_NO_GUARD, workload=workload)
            words = f"`{hold}`, CV {cv}, load {load}, K={n_slots}, switch {switch_s * 1e3:g} ms"
            for figure, title, base in zip(
                ("of_bound", "inflation"), ("utilisation/bound", "inflation"), known, strict=True
            ):
                key = f"table-{name}-cv{cv}-load{load}-{figure}"
                yield _row(
                    key, f"{title}, {words}", _samples(runs, figure), against="the prototype", baseline_samples=(base,)
                )


# -------------------------------------------------------------------- hold-outs
def held_out(effort: SimulatedLeasing) -> Iterator[Row]:
    """Repeat B1 to B3 on seeds, workers, spread and duties that nothing was tuned on; none of it binds."""
    for d in (0.1, 0.4):
        for n_workers in (3, 7):
            shape = LeasingWorkload(n_workers=n_workers, collect_cv=0.35, switch_s=_SWITCH_S, unequal_frac=0.5)
            workload = for_duty(d, replace(shape, n_rounds=effort.rounds, seed=effort.held_out[0]))
            name = f"heldout-d{d}-w{n_workers}"
            for load in _YIELD:
                yield from _cell(f"{name}-load{load}", load, workload, effort.held_out, binding=False)
            yield from _throughput(name, 1.0, workload, effort.held_out, binding=False)
