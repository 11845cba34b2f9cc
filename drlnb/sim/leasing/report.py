"""Run ``drlnb simulate leasing``: hold planners on the same workloads, beside exclusive and co-located use."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial

from drlnb.planning.leasing.settings import HOLD_PLANNERS, LeasingSettings
from drlnb.records.base import shared
from drlnb.records.errors import ConfigError
from drlnb.sim.faults import fault_rates
from drlnb.sim.leasing.compare import LeasingResult, LeasingWorkload, simulate_leasing, tasks_for_load
from drlnb.sim.report import Comparison, Row, chosen_names, compare, figure_row, print_report, table_lines

__all__ = ["main", "workloads"]

#: Load where neither it nor the number of tasks was named.
_LOAD = 1.0
#: Most tasks that a load may mean.
_MOST_TASKS = 100
#: Column of the table -> figure of a result.
_COLUMNS = {
    "util/bound": "of_bound",
    "util": "utilisation_frac",
    "held": "held_frac",
    "inflation": "inflation",
    "rounds/s": "rounds_hz",
    "grants/round": "grants_per_round",
    "wait p50 s": "wait_p50_s",
    "wait p95 s": "wait_p95_s",
}
#: Column -> figure that faults change, without them and with them.
_CHANGED = {"util": "utilisation_frac", "inflation": "inflation", "rounds/s": "rounds_hz"}
#: Column -> figure that only faults make.
_COUNTED = {
    "faults": "n_faults",
    "expired": "n_expired",
    "restarts": "n_restarts",
    "redone": "redone_frac",
    "failed": "n_failed",
}
_Compared = Sequence[Comparison[LeasingResult]]


def workloads(seeds: Sequence[int], load: float | None, workload: LeasingWorkload) -> list[LeasingWorkload]:
    """Return a workload by seed, with as many tasks as make this load; None: as many as it says."""
    seeded = [replace(workload, seed=seed) for seed in seeds]
    if load is None:
        return seeded
    works = []
    for each in seeded:
        works.append(tasks_for_load(load, each))
        if (n_tasks := works[-1].n_tasks) > _MOST_TASKS:
            raise ConfigError(
                f"--load {load:g} means {n_tasks} tasks here, and more than {_MOST_TASKS} take long to simulate: "
                f"name a lower --load, or how many with --tasks"
            )
    return works


def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate leasing``, print what came out and return 0; ConfigError if an option is out of its range.

    The arguments are ``hold``, ``load`` or ``n_tasks`` (None), other fields of :class:`LeasingWorkload`, ``faults`` as
    text, ``queue``, ``no_stream``, ``seeds``, ``json``.
    """
    holds = chosen_names("--hold", arguments.hold, HOLD_PLANNERS)
    settings = LeasingSettings.from_mapping({"queue": arguments.queue})
    of_tasks = {"n_tasks": arguments.n_tasks or 1, "faults": fault_rates(arguments.faults)}
    workload = LeasingWorkload(**shared(arguments, LeasingWorkload) | of_tasks)
    load = arguments.load if arguments.load is not None else None if arguments.n_tasks else _LOAD
    if load is not None and not 0.0 < load <= 10.0:
        raise ConfigError(f"--load must be in (0, 10], got {load}")
    works = workloads(arguments.seeds, load, workload)
    run = partial(simulate_leasing, settings=settings, streams=not arguments.no_stream)
    compared = compare(holds, works, run)
    lines = _lines(works, compared)
    spared: Sequence[Comparison[LeasingResult] | None] = [None] * len(compared)
    if workload.faults:
        spared = plain = compare(holds, [replace(each, faults=()) for each in works], run)
        lines += _lines_of_faults(workload, compared, plain)
    rows = [row for pair in zip(compared, spared, strict=True) for row in _rows(*pair)]
    print_report(lines, "simulate-leasing", rows, json_to=arguments.json, workloads=[asdict(each) for each in works])
    return 0


def _lines(works: Sequence[LeasingWorkload], compared: _Compared) -> list[str]:
    first = compared[0]
    expected = first.results[0]
    tasks = sorted({workload.n_tasks for workload in works})
    seeds = ", ".join(str(workload.seed) for workload in works)
    n_tasks = f"{tasks[0]}" if len(tasks) == 1 else f"{tasks[0]} to {tasks[-1]}"
    rows = [
        {"hold": each.planner} | {name: f"{each.mean(figure):.3f}" for name, figure in _COLUMNS.items()}
        for each in compared
    ]
    return [
        f"{n_tasks} tasks, {works[0].n_slots} slots, duty alone {first.mean('d_mean'):.3f}, seeds {seeds} (simulated)",
        f"bound {first.mean('bound_frac'):.3f}; expected by theory (seed {works[0].seed}): utilisation "
        f"{expected.expected_utilisation_frac:.3f}, inflation {expected.expected_inflation:.3f}",
        f"rounds/s without leases: exclusive {first.mean('exclusive_hz'):.3f}, "
        f"co-located {first.mean('colocated_hz'):.3f}",
        *table_lines(rows),
    ]


def _lines_of_faults(workload: LeasingWorkload, compared: _Compared, spared: _Compared) -> list[str]:
    """Return what the faults did, beside the same workloads without them."""
    rates = ", ".join(f"{kind} {rate:g}" for kind, rate in workload.faults)
    rows = [
        {"hold": each.planner}
        | {name: f"{plain.mean(figure):.3f} -> {each.mean(figure):.3f}" for name, figure in _CHANGED.items()}
        | {name: f"{each.mean(figure):.2f}" for name, figure in _COUNTED.items()}
        for each, plain in zip(compared, spared, strict=True)
    ]
    title = f"with faults, per hour: {rates} (means per run; expired: leases; redone: share of rounds)"
    return [title, *table_lines(rows)]


def _rows(each: Comparison[LeasingResult], spared: Comparison[LeasingResult] | None) -> Iterator[Row]:
    """Yield a planner's figures, each beside what it is to be compared with."""
    shown = [
        ("utilisation", "utilisation_frac", "bound", each.mean("bound_frac")),
        ("held", "held_frac", "utilisation", each.mean("utilisation_frac")),
        ("inflation", "inflation", "expected", each.mean("expected_inflation")),
        ("rounds-v-exclusive", "rounds_hz", "exclusive", each.mean("exclusive_hz")),
        ("rounds-v-colocated", "rounds_hz", "co-located", each.mean("colocated_hz")),
    ]
    if spared is not None:
        shown += [
            (f"{name}-v-spared", figure, "without faults", spared.mean(figure))
            for name, figure in (("utilisation", "utilisation_frac"), ("inflation", "inflation"))
        ]
        shown += [(name, figure, "none", 0.0) for name, figure in _COUNTED.items()]
    for name, figure, against, base in shown:
        title = f"hold {each.planner}: {figure}"
        yield figure_row(f"{each.planner}-{name}", title, each.mean(figure), against, base, each.samples(figure))
