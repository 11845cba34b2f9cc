"""Run ``drlnb simulate warmup``: planners side by side on the same rounds and starts."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drlnb.planning.warmup import PLANNER_NAMES, WarmupSettings
from drlnb.records.errors import ConfigError
from drlnb.sim.compared import chosen_names, mean_of, report_of
from drlnb.sim.training.report import write_journal
from drlnb.sim.warmup.compare import Outcome, WarmupWorkload, simulate_warmup

__all__ = ["Comparison", "compare", "main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One planner over several seeds; times in seconds."""

    planner: str
    #: One outcome per seed.
    outcomes: tuple[Outcome, ...]

    def mean(self, name: str) -> float:
        """Return the mean of a figure over the seeds."""
        return mean_of(self.outcomes, name)


def compare(
    planners: Sequence[str],
    seeds: Sequence[int],
    *,
    settings: Mapping[str, Any] | None = None,
    **workload: Any,
) -> tuple[Comparison, ...]:
    """Run planners on the same workloads.

    Parameters
    ----------
    planners
        Names of :data:`~drlnb.planning.warmup.settings.PLANNER_NAMES`.
    seeds
        Of the durations.
    settings
        Warm-up settings beside the planner and the start mode.
    **workload
        Fields of :class:`~drlnb.sim.warmup.compare.WarmupWorkload` beside the seed.

    Raises
    ------
    ConfigError
        If a setting or a field is wrong; the message lists all of it.
    """
    works = [WarmupWorkload(seed=seed, **workload) for seed in seeds]
    return tuple(
        Comparison(
            planner=name,
            outcomes=tuple(simulate_warmup(work, name, settings=settings) for work in works),
        )
        for name in planners
    )


# ------------------------------------------------------------------ the command
def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate warmup`` and print what came out.

    Parameters
    ----------
    arguments
        ``planners``, ``shape``, ``start_mode``, ``rho``, ``kappa``, ``workers``, ``rounds``, ``gap``, ``jitter``,
        ``start_p95`` (None: measured), ``seeds``, ``out`` (None: no journal), ``json``.

    Returns
    -------
    int
        Exit code 0.

    Raises
    ------
    ConfigError
        If an option is out of its range, or `out` is not a new or empty directory.
    """
    planners = chosen_names("--planners", arguments.planners, PLANNER_NAMES)
    settings = {"rho": arguments.rho, "kappa": arguments.kappa}
    workload = _workload(arguments)
    if problems := [*WarmupWorkload.problems(workload), *WarmupSettings.problems(settings)]:
        raise ConfigError(problems)
    out = None if arguments.out is None else Path(arguments.out)
    if out is not None:
        _refuse_full(out)  # before the work, not after it
    compared = compare(planners, arguments.seeds, settings=settings, **workload)
    if out is not None:
        runs = {f"{c.planner}-seed{o.seed}": o.stream for c in compared for o in c.outcomes}
        write_journal(runs, out)
    sys.stdout.write(_table(compared, arguments))
    if arguments.json:
        sys.stdout.write(json.dumps(_report(compared, arguments)) + "\n")
    return 0


def _workload(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "shape": arguments.shape,
        "start_mode": arguments.start_mode,
        "n_workers": arguments.workers,
        "n_rounds": arguments.rounds,
        "gap_s": arguments.gap,
        "jitter_frac": arguments.jitter,
        "start_p95_s": arguments.start_p95,
    }


def _refuse_full(directory: Path) -> None:
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise ConfigError(f"--out must be a new or empty directory, got {directory}")


def _baseline(compared: Sequence[Comparison]) -> Comparison:
    """Return what the others are compared with: cold, or the first one."""
    return next((each for each in compared if each.planner == "cold"), compared[0])


def _report(compared: Sequence[Comparison], arguments: argparse.Namespace) -> dict[str, object]:
    """Return what ``--json`` prints."""
    base = _baseline(compared)
    rows = []
    for each in compared:
        costs = [outcome.cost_s for outcome in each.outcomes]
        rows.append({
            "id": each.planner,
            "what": "rho wait + idle per worker and round, s",
            "baseline": base.mean("cost_s"),
            "value": each.mean("cost_s"),
            "ratio": each.mean("cost_s") / base.mean("cost_s"),
            "spread": {"kind": "min..max", "low": min(costs), "high": max(costs), "n": len(costs)},
            **{name: each.mean(name) for name in ("wait_s", "idle_s", "hit_frac")},
        })
    return report_of(
        "simulate-warmup",
        rows,
        workload=_workload(arguments),
        rho=arguments.rho,
        kappa=arguments.kappa,
        seeds=list(arguments.seeds),
        baseline=base.planner,
    )


def _table(compared: Sequence[Comparison], arguments: argparse.Namespace) -> str:
    """Return the short table."""
    base = _baseline(compared)
    seeds = ", ".join(map(str, arguments.seeds))
    lines = [
        f"{arguments.workers} collectors, gap {arguments.gap:g} s, jitter {arguments.jitter:g}, {arguments.shape}, "
        f"{arguments.start_mode}, rho {arguments.rho:g}, {arguments.rounds} rounds, seeds {seeds} (simulated)",
        f"{'planner':10}{'wait s':>9}{'idle s':>9}{'cost s':>9}{'v ' + base.planner:>10}{'in time':>9}",
    ]
    lines += [
        f"{each.planner:10}{each.mean('wait_s'):9.3f}{each.mean('idle_s'):9.3f}{each.mean('cost_s'):9.3f}"
        f"{each.mean('cost_s') / base.mean('cost_s'):10.2f}{each.mean('hit_frac'):9.0%}"
        for each in compared
    ]
    return "\n".join(lines) + "\n"
