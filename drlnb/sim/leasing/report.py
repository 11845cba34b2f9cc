"""Run ``drlnb simulate leasing``: hold planners on the same workloads, beside exclusive and co-located use."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from drlnb.planning.leasing.settings import HOLD_PLANNERS, LeasingSettings
from drlnb.records.errors import ConfigError
from drlnb.sim.compared import chosen_names, mean_of, report_of
from drlnb.sim.faults import fault_rates
from drlnb.sim.leasing.compare import LeasingResult, LeasingWorkload, simulate_leasing, tasks_for_load

__all__ = ["Comparison", "compare", "main"]

#: Load where neither it nor the number of tasks was named.
_LOAD = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One planner over several seeds."""

    hold: str
    #: One workload and one result per seed.
    workloads: tuple[LeasingWorkload, ...]
    results: tuple[LeasingResult, ...]
    #: The same workloads without their faults; the same results where they have none.
    spared: tuple[LeasingResult, ...]

    def mean(self, name: str) -> float:
        """Return the mean of a figure over the seeds."""
        return mean_of(self.results, name)


def compare(
    holds: Sequence[str],
    seeds: Sequence[int],
    *,
    load: float | None = None,
    settings: LeasingSettings | None = None,
    streams: bool = True,
    workload: LeasingWorkload | None = None,
) -> tuple[Comparison, ...]:
    """Run hold planners on the same workloads.

    Parameters
    ----------
    holds
        Names of :data:`~drlnb.planning.leasing.settings.HOLD_PLANNERS`.
    seeds
        Of the durations.
    load
        As many tasks as make this load, by the duty of a task alone; None: as many as the workload says.
    settings
        Of leasing; None for the defaults.
    streams
        Gradients are computed at arrival.
    workload
        All but the seed; with faults, every run is beside the same one without them.
    """
    base = workload or LeasingWorkload()
    seeded = [replace(base, seed=seed) for seed in seeds]
    if load is not None:
        seeded = [tasks_for_load(load, each) for each in seeded]

    def run(hold: str, workloads: Sequence[LeasingWorkload]) -> tuple[LeasingResult, ...]:
        return tuple(simulate_leasing(each, hold, settings=settings, streams=streams) for each in workloads)

    compared = []
    for hold in holds:
        results = run(hold, seeded)
        spared = run(hold, [replace(each, faults=()) for each in seeded]) if base.faults else results
        compared.append(Comparison(hold=hold, workloads=tuple(seeded), results=results, spared=spared))
    return tuple(compared)


# ------------------------------------------------------------------ the command
def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate leasing`` and print what came out.

    Parameters
    ----------
    arguments
        ``hold``, ``load`` or ``tasks`` (None), ``gpus``, ``workers``, ``cv``, ``compute``, ``collect``, ``switch``,
        ``unequal``, ``queue``, ``no_stream``, ``faults``, ``rounds``, ``seeds``, ``json``.

    Returns
    -------
    int
        Exit code 0.

    Raises
    ------
    ConfigError
        If an option is out of its range.
    """
    holds = chosen_names("--hold", arguments.hold, HOLD_PLANNERS)
    settings = LeasingSettings.from_mapping({"queue": arguments.queue})
    workload = LeasingWorkload(
        n_tasks=arguments.tasks or 1,
        n_slots=arguments.gpus,
        n_workers=arguments.workers,
        compute_s=arguments.compute,
        collect_mean_s=arguments.collect,
        collect_cv=arguments.cv,
        switch_s=arguments.switch,
        unequal_frac=arguments.unequal,
        n_rounds=arguments.rounds,
        faults=fault_rates(arguments.faults),
    )
    load = arguments.load if arguments.load is not None else None if arguments.tasks else _LOAD
    if load is not None and not 0.0 < load <= 10.0:
        raise ConfigError(f"--load must be in (0, 10], got {load}")
    compared = compare(
        holds, arguments.seeds, load=load, settings=settings, streams=not arguments.no_stream, workload=workload
    )
    sys.stdout.write(_table(compared))
    if arguments.json:
        workloads = [asdict(each) for each in compared[0].workloads]
        rows = [row for each in compared for row in _rows(each)]
        report = report_of("simulate-leasing", rows, workloads=workloads)
        sys.stdout.write(json.dumps(report) + "\n")
    return 0


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


def _table(compared: Sequence[Comparison]) -> str:
    first = compared[0]
    workloads, expected = first.workloads, first.results[0].expected
    tasks = sorted({workload.n_tasks for workload in workloads})
    seeds = ", ".join(str(workload.seed) for workload in workloads)
    n_tasks = f"{tasks[0]}" if len(tasks) == 1 else f"{tasks[0]} to {tasks[-1]}"
    lines = [
        f"{n_tasks} tasks, {workloads[0].n_slots} slots, duty alone {first.mean('d_mean'):.3f}, seeds {seeds}"
        " (simulated)",
        f"bound {first.mean('bound_frac'):.3f}; expected by theory (seed {workloads[0].seed}): utilisation "
        f"{expected.utilisation_frac:.3f}, inflation {expected.inflation:.3f}",
        f"rounds/s without leases: exclusive {first.mean('exclusive_hz'):.3f}, "
        f"co-located {first.mean('colocated_hz'):.3f}",
        "hold   " + "".join(f"{name:>13}" for name in _COLUMNS),
    ]
    lines += [
        f"{each.hold:7}" + "".join(f"{each.mean(figure):13.3f}" for figure in _COLUMNS.values()) for each in compared
    ]
    if workloads[0].faults:
        lines += _with_faults(compared)
    return "\n".join(lines) + "\n"


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


def _with_faults(compared: Sequence[Comparison]) -> list[str]:
    """Return what the faults did, beside the same workloads without them."""
    rates = ", ".join(f"{kind} {rate:g}" for kind, rate in compared[0].workloads[0].faults)
    lines = [
        f"with faults, per hour: {rates} (means per run; expired: leases; redone: share of rounds)",
        "hold   " + "".join(f"{name:>16}" for name in _CHANGED) + "".join(f"{name:>10}" for name in _COUNTED),
    ]
    for each in compared:
        pairs = [f"{mean_of(each.spared, figure):.3f} -> {each.mean(figure):.3f}" for figure in _CHANGED.values()]
        counts = [f"{each.mean(figure):.2f}" for figure in _COUNTED.values()]
        lines.append(f"{each.hold:7}" + "".join(f"{pair:>16}" for pair in pairs) + "".join(f"{n:>10}" for n in counts))
    return lines


def _rows(each: Comparison) -> list[dict[str, Any]]:
    """Return a planner's figures, each beside what it is to be compared with."""
    shown = [
        ("utilisation", "utilisation_frac", "bound", each.mean("bound_frac")),
        ("held", "held_frac", "utilisation", each.mean("utilisation_frac")),
        ("inflation", "inflation", "expected", mean_of([result.expected for result in each.results], "inflation")),
        ("rounds-v-exclusive", "rounds_hz", "exclusive", each.mean("exclusive_hz")),
        ("rounds-v-colocated", "rounds_hz", "co-located", each.mean("colocated_hz")),
    ]
    if each.workloads[0].faults:
        shown += [
            (f"{name}-v-spared", figure, "without faults", mean_of(each.spared, figure))
            for name, figure in (("utilisation", "utilisation_frac"), ("inflation", "inflation"))
        ]
        shown += [(name, figure, "none", 0.0) for name, figure in _COUNTED.items()]
    return [
        {
            "id": f"{each.hold}-{name}",
            "what": f"hold {each.hold}: {figure}",
            "baseline": f"{against} {base:.6f}",
            "value": each.mean(figure),
            "ratio": each.mean(figure) / base if base else None,
            "spread": [getattr(result, figure) for result in each.results],
        }
        for name, figure, against, base in shown
    ]
