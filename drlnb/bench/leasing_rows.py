"""The simulated rows of ``drlnb bench leasing``: B1 to B4 of the leasing page, its table, and the hold-outs.

Every planner sees the same workload per seed; a sample is one seed.  A headline row on throughput stands beside both
ways to do without leases: exclusive (one task per slot to its end) and co-located (all at once on the devices).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from drlnb.bench.leasing import Effort
from drlnb.bench.report import Bar, Row
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.columns.leasing import LeaseReleased
from drlnb.sim.costs import Workload
from drlnb.sim.leasing.colocated import colocated_makespan_s
from drlnb.sim.leasing.compare import LeasingResult, LeasingWorkload, for_duty, simulate_leasing, tasks_for_load
from drlnb.sim.leasing.report import Comparison, compare
from drlnb.sim.training.fleet import run_tasks

__all__ = ["fairness", "held_out", "in_turn", "makespan", "table", "throughput", "utilisation"]

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


def _samples(runs: Comparison, name: str) -> tuple[float, ...]:
    return tuple(getattr(result, name) for result in runs.results)


def _row(name: str, what: str, samples: tuple[float, ...], **more: Any) -> Row:
    return Row(id=name, what=what, unit="", samples=samples, origin="simulated", **more)


# -------------------------------------------------------------------- B1, B2
def utilisation(effort: Effort) -> tuple[Row, ...]:
    """Compare utilisation with its bound, and round times with those of the same tasks alone (B1, B2)."""
    rows: list[Row] = []
    for cv in (0.2, 0.5):
        for load in _YIELD:
            workload = LeasingWorkload(collect_cv=cv, switch_s=_SWITCH_S, n_rounds=effort.rounds)
            rows += _cell(f"cv{cv}-load{load}", load, workload, effort.seeds)
    return tuple(rows)


def _cell(
    name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int], *, binding: bool = True
) -> list[Row]:
    rule, lease = compare(["round", "yield"], seeds, load=load, workload=workload)
    least, most = _YIELD[load]
    words = f"load {load}, K={workload.n_slots}, CV {workload.collect_cv}, switch {workload.switch_s * 1e3:g} ms"
    against = "the seed's `round` on the same workloads"
    expected = tuple(one.expected.utilisation_frac / one.bound_frac for one in lease.results)
    inflation = tuple(one.expected.inflation for one in lease.results)
    rows = [
        _row(
            f"b1-yield-{name}",
            f"utilisation/bound, `yield`, {words}",
            _samples(lease, "of_bound"),
            baseline_samples=_samples(rule, "of_bound"),
            against=against,
            bar=Bar("value", at_least=least),
            binding=binding,
        ),
        _row(
            f"b2-yield-{name}",
            f"round time/alone, `yield`, {words}",
            _samples(lease, "inflation"),
            baseline_samples=_samples(rule, "inflation"),
            against=against,
            bar=Bar("value", at_most=most),
            binding=binding,
        ),
        _row(f"expected-utilisation-{name}", f"utilisation/bound by the machine-repairman model, {words}", expected),
        _row(f"expected-inflation-{name}", f"round time/alone by the machine-repairman model, {words}", inflation),
    ]
    if load == 0.8 and workload.collect_cv <= 0.2:
        rows.append(
            _row(
                f"b1-round-{name}",
                f"utilisation/bound, `round`, {words}",
                _samples(rule, "of_bound"),
                bar=Bar("value", at_least=_ROUND),
                binding=binding,
            )
        )
    return rows


# -------------------------------------------------------------------- B3
def throughput(effort: Effort) -> tuple[Row, ...]:
    """Compare rounds per second with exclusive and with co-located use of the same slots (B3)."""
    rows: list[Row] = []
    for load in (1.0, 1.5):
        workload = LeasingWorkload(switch_s=_SWITCH_S, n_rounds=effort.rounds)
        rows += _throughput(f"load{load}", load, workload, effort.seeds)
    return tuple(rows)


def _throughput(
    name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int], *, binding: bool = True
) -> list[Row]:
    (lease,) = compare(["yield"], seeds, load=load, workload=workload)
    d = lease.mean("d_mean")
    mine, alone, crowd = (_samples(lease, f"{kind}_hz") for kind in ("rounds", "exclusive", "colocated"))
    words = f"rounds/s of all tasks, `yield`, load {load}, K={workload.n_slots}, d={d:.3f}"
    pairs = tuple(a / b for a, b in zip(mine, alone, strict=True))
    of_limit = tuple(ratio * one.d_mean for ratio, one in zip(pairs, lease.results, strict=True))
    least = _FACTOR if abs(d - 0.2) < 0.02 else _OF_LIMIT / d
    return [
        _row(
            f"b3-exclusive-{name}",
            words,
            mine,
            baseline_samples=alone,
            pairs=pairs,
            against="exclusive: the same tasks, one per slot to its end, in sequence",
            bar=Bar("ratio", at_least=least),
            binding=binding,
        ),
        _row(
            f"b3-limit-{name}",
            f"the same ratio as a share of its limit 1/d = {1 / d:.2f}",
            of_limit,
            bar=Bar("value", at_least=_OF_LIMIT),
            binding=binding,
        ),
        _row(
            f"b3-colocated-{name}",
            words,
            mine,
            baseline_samples=crowd,
            pairs=tuple(a / b for a, b in zip(mine, crowd, strict=True)),
            against="co-located: the same tasks all at once on the devices, no lease, their time shared evenly",
        ),
    ]


# -------------------------------------------------------------------- B4
def fairness(effort: Effort) -> tuple[Row, ...]:
    """Compare slot seconds of equal tasks, and bound the longest wait of the one with the lowest priority (B4)."""
    equal, lowest, bounds = [], [], []
    for seed in effort.seeds:
        workload = tasks_for_load(1.0, LeasingWorkload(seed=seed, n_rounds=effort.fair_rounds))
        run = simulate_leasing(workload, "yield")
        equal.append(max(run.held_s) / min(run.held_s))
        low = simulate_leasing(replace(workload, n_rounds=effort.rounds), "yield", priorities={0: -1})
        lowest.append(low.wait_max_s[0])
        bounds.append(_longest_wait_s(low, workload))
    return (
        _row(
            "b4-fair",
            f"slot seconds of equal tasks, most/least over {effort.fair_rounds} rounds, `yield`, load 1.0, K=2",
            tuple(equal),
            bar=Bar("value", at_most=_FAIR),
        ),
        Row(
            id="b4-lowest",
            what="longest wait of the one task that is a step of priority behind",
            samples=tuple(lowest),
            baseline_samples=tuple(bounds),
            against="I8: a step's worth of waiting, then every other task's longest hold, over the slots",
            bar=Bar("ratio", at_most=1.0),
            origin="simulated",
        ),
    )


def _longest_wait_s(run: LeasingResult, workload: LeasingWorkload) -> float:
    """Return I8's bound: nobody who asks a step's worth later passes, and each of the others holds once before it."""
    step_s = LeasingSettings().age_quantum_s
    return step_s + run.longest_hold_s * (1 + (workload.n_tasks - 1) / workload.n_slots)


# -------------------------------------------------------------------- makespan
def makespan(effort: Effort) -> tuple[Row, ...]:
    """Compare the time until all tasks have ended with those of one task per slot to its end, and of all at once.

    Beside both ways to do without leases stands what no way can beat: a slot for each task.
    """
    rows: list[Row] = []
    for load in (1.0, 1.5):
        workload = LeasingWorkload(switch_s=_SWITCH_S, n_rounds=effort.rounds)
        rows += _makespans(f"load{load}", load, workload, effort.seeds)
    return tuple(rows)


def _makespans(name: str, load: float, workload: LeasingWorkload, seeds: Sequence[int]) -> list[Row]:
    works = [tasks_for_load(load, replace(workload, seed=seed)) for seed in seeds]
    leased = tuple(max(_ends(work, range(work.n_tasks), "yield").values()) for work in works)
    lone = [[_ends(replace(work, n_slots=1), [i], "round")[i] for i in range(work.n_tasks)] for work in works]
    turns = tuple(in_turn(each, workload.n_slots) for each in lone)
    crowd = tuple(_crowd_s(work) for work in works)
    own = tuple(max(each) for each in lone)
    counts = sorted({work.n_tasks for work in works})
    tasks = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    what = f"makespan of {tasks} tasks of {workload.n_rounds} rounds, `yield`, load {load}, K={workload.n_slots}"
    return [
        Row(
            id=f"makespan-{kind}-{name}",
            what=what,
            samples=leased,
            baseline_samples=base,
            pairs=tuple(mine / theirs for mine, theirs in zip(leased, base, strict=True)),
            against=against,
            origin="simulated",
        )
        for kind, base, against in (
            ("turns", turns, "one task per slot to its end, the next one as soon as a slot is free"),
            ("colocated", crowd, "all at once on the devices, no lease, their time shared evenly"),
            ("own", own, "as many slots as tasks, one each"),
        )
    ]


def _crowd_s(work: LeasingWorkload) -> float:
    """Return when the last task ends, in seconds, if all are ordinary processes on the devices at once."""
    tasks = [Workload(work.costs(i), seed=work.seed, task=i, n_collectors=work.n_workers) for i in range(work.n_tasks)]
    return colocated_makespan_s(tasks, n_devices=work.n_slots, n_rounds=work.n_rounds)


def _ends(workload: LeasingWorkload, indices: Sequence[int], hold: str) -> dict[int, float]:
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
    last = {
        one.task: event.t
        for event, answer in pool.host.stream.answers()
        for one in answer
        if isinstance(one, LeaseReleased)
    }
    return {i: last[task.name] for i, task in zip(indices, tasks, strict=True)}


def in_turn(lengths_s: Sequence[float], n_slots: int) -> float:
    """Return when the last of some tasks ends, each on a slot of its own to its end, the next where one is free first.

    Examples
    --------
    >>> in_turn([3.0, 1.0, 1.0, 2.0], 2)
    4.0
    """
    free_t = [0.0] * n_slots
    for length_s in lengths_s:
        free_t[free_t.index(min(free_t))] += length_s
    return max(free_t)


# -------------------------------------------------------------------- the page's table
#: (CV, load, slots) -> planner and switch -> utilisation/bound and inflation of the prototype.
_PROTOTYPE: dict[tuple[float, float, int], dict[str, tuple[float, float]]] = {
    (0.05, 1.0, 1): {"round": (0.99, 1.03), "last": (0.92, 1.10), "yield-0ms": (0.99, 1.03)},
    (0.2, 0.8, 2): {
        "round": (0.92, 1.08),
        "last": (0.85, 1.18),
        "yield-0ms": (0.95, 1.05),
        "yield-50ms": (0.93, 1.07),
        "yield-250ms": (0.88, 1.14),
    },
    (0.2, 1.0, 2): {
        "round": (0.89, 1.13),
        "last": (0.84, 1.19),
        "yield-0ms": (0.93, 1.08),
        "yield-50ms": (0.90, 1.11),
        "yield-250ms": (0.81, 1.24),
    },
    (0.5, 0.8, 2): {
        "round": (0.78, 1.29),
        "last": (0.84, 1.19),
        "yield-0ms": (0.95, 1.06),
        "yield-50ms": (0.92, 1.08),
        "yield-250ms": (0.82, 1.22),
    },
    (0.5, 1.0, 2): {
        "round": (0.74, 1.40),
        "last": (0.85, 1.22),
        "yield-0ms": (0.94, 1.11),
        "yield-50ms": (0.88, 1.17),
        "yield-250ms": (0.74, 1.39),
    },
}


def table(effort: Effort) -> tuple[Row, ...]:
    """Repeat the page's table: utilisation over its bound and inflation of each planner, without the switch guard."""
    rows: list[Row] = []
    for (cv, load, n_slots), cells in _PROTOTYPE.items():
        for name, (of_bound, inflation) in cells.items():
            hold, _, switch = name.partition("-")
            switch_s = float(switch.removesuffix("ms") or 0) / 1e3
            workload = LeasingWorkload(collect_cv=cv, n_slots=n_slots, switch_s=switch_s, n_rounds=effort.rounds)
            (runs,) = compare([hold], effort.seeds, load=load, settings=_NO_GUARD, workload=workload)
            cell = f"{name}-cv{cv}-load{load}"
            words = f"`{hold}`, CV {cv}, load {load}, K={n_slots}, switch {switch_s * 1e3:g} ms"
            for kind, figure, known in (
                ("utilisation/bound", "of_bound", of_bound),
                ("inflation", "inflation", inflation),
            ):
                rows.append(
                    _row(
                        f"table-{cell}-{figure}",
                        f"{kind}, {words}",
                        _samples(runs, figure),
                        baseline_samples=(known,),
                        against="the prototype",
                    )
                )
    return tuple(rows)


# -------------------------------------------------------------------- hold-outs
def held_out(effort: Effort) -> tuple[Row, ...]:
    """Repeat B1 to B3 on seeds, workers, spread and duties that nothing was tuned on; none of it binds."""
    rows: list[Row] = []
    for d in (0.1, 0.4):
        for n_workers in (3, 7):
            shape = LeasingWorkload(
                n_workers=n_workers, collect_cv=0.35, switch_s=_SWITCH_S, unequal_frac=0.5, n_rounds=effort.rounds
            )
            workload = for_duty(d, replace(shape, seed=effort.held_out[0]))
            name = f"heldout-d{d}-w{n_workers}"
            for load in _YIELD:
                rows += _cell(f"{name}-load{load}", load, workload, effort.held_out, binding=False)
            rows += _throughput(name, 1.0, workload, effort.held_out, binding=False)
    return tuple(rows)
