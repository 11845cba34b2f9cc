"""Run ``drlnb simulate warmup``: planners side by side on the same rounds and starts."""

import argparse
from functools import partial
from typing import Any

from drlnb.planning.warmup import WARMUP, WarmupSettings
from drlnb.records.base import shared
from drlnb.records.errors import ConfigError
from drlnb.sim.report import (
    Comparison,
    chosen_names,
    compare,
    figure_row,
    new_directory,
    print_report,
    table_lines,
    write_journal,
)
from drlnb.sim.warmup.compare import Outcome, WarmupWorkload, simulate_warmup

__all__ = ["main"]


def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate warmup``, print what came out and return 0; ConfigError if an option is out of its range.

    The arguments are ``planners``, ``rho``, ``kappa``, fields of :class:`WarmupWorkload`, ``seeds``, ``out`` (None: no
    journal; else a new or empty directory), ``json``.
    """
    planners = chosen_names("--planners", arguments.planners, WARMUP.names)
    settings = {"rho": arguments.rho, "kappa": arguments.kappa}
    workload = shared(arguments, WarmupWorkload)
    if problems := [*WarmupWorkload.problems(workload), *WarmupSettings.problems(settings)]:
        raise ConfigError(problems)
    out = new_directory(arguments.out)  # before the work, not after it
    works = [WarmupWorkload(seed=seed, **workload) for seed in arguments.seeds]
    compared = compare(planners, works, partial(simulate_warmup, settings=settings))
    write_journal({f"{each.planner}-seed{o.seed}": o.stream for each in compared for o in each.results}, out)
    # The others are compared with cold, or the first one.
    base = next((each for each in compared if each.planner == "cold"), compared[0])
    rows = [_row(each, base) for each in compared]
    title = (
        f"{arguments.n_workers} collectors, gap {arguments.gap_s:g} s, jitter {arguments.jitter_frac:g}, "
        f"{arguments.shape}, {arguments.start_mode}, rho {arguments.rho:g}, {arguments.n_rounds} rounds, seeds "
        f"{', '.join(map(str, arguments.seeds))} (simulated)"
    )
    print_report(
        [title, *table_lines(_table(rows, base.planner))],
        "simulate-warmup",
        rows,
        json_to=arguments.json,
        workload=workload,
        rho=arguments.rho,
        kappa=arguments.kappa,
        seeds=list(arguments.seeds),
        baseline=base.planner,
    )
    return 0


def _row(each: Comparison[Outcome], base: Comparison[Outcome]) -> dict[str, Any]:
    """Return what came out for one planner, beside the cost of the one that it is compared with."""
    return figure_row(
        each.planner,
        "rho wait + idle per worker and round, s",
        each.mean("cost_s"),
        base.planner,
        base.mean("cost_s"),
        each.spread("cost_s"),
        **{name: each.mean(name) for name in ("wait_s", "idle_s", "hit_frac")},
    )


def _table(rows: list[dict[str, Any]], base: str) -> list[dict[str, str]]:
    """Return the rows as they are printed."""
    return [
        {
            "planner": row["id"],
            "wait s": f"{row['wait_s']:.3f}",
            "idle s": f"{row['idle_s']:.3f}",
            "cost s": f"{row['value']:.3f}",
            f"v {base}": f"{row['ratio']:.2f}",
            "in time": f"{row['hit_frac']:.0%}",
        }
        for row in rows
    ]
