"""Run ``drlnb simulate placement``: planners of gangs side by side on the same jobs of a trace and the same faults."""

import argparse
import re
from collections.abc import Iterable
from statistics import fmean
from typing import Any

from drlnb.learned.placement import Patent
from drlnb.planning.placement import GANGS, Cluster
from drlnb.planning.registry import PlannerFailed
from drlnb.records.base import shared
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Stream
from drlnb.sim.placement.attempts import Conditions
from drlnb.sim.placement.compare import Played, Windows, ratio_of, side_by_side
from drlnb.sim.placement.faults import FaultModel
from drlnb.sim.placement.on_clock import play_on_clock
from drlnb.sim.placement.traces import Trace, Window, load_trace
from drlnb.sim.report import figure_row, new_directory, print_report, table_lines, write_journal
from drlnb.views.placement.compared import Ratio, worth

__all__ = ["main"]

#: What others are compared with, and what knows nothing of failures.
_BASE, _BLIND = "healthiest", "random"
_FIGURES = ("bound_s", "jct_s", "lost_gpu_s", "utilisation", "ettr", "n_restarts")
#: Column of the table -> how a row's figures are written there.
_COLUMNS = {
    "makespan h": "{value:.1f}",
    f"v {_BASE}": "{shown}",
    "bound h": "{bound_s:.1f}",
    "JCT h": "{jct_s:.1f}",
    "lost GPU-h": "{lost_gpu_s:.1f}",
    "utilisation": "{utilisation:.1%}",
    "restarts": "{n_restarts:.1f}",
}
#: Checkpoints that are not so many seconds apart, in words.
_CHECKPOINTS = {None: "no checkpoints", "young": "checkpoints by Young's formula"}
#: What is said only where it is not as usual.
_MORE = {
    "node_mtbf_days": "{:g} days between outages of a node",
    "weibull_shape": "Weibull shape {:g}",
    "interference_frac": "interference {:g}",
}
_USUAL = {name: each.default for name, each in (FaultModel.declared() | Conditions.declared()).items()}


def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate placement``, print what came out and return 0; ConfigError if an option is wrong.

    The arguments are ``trace`` (None: the sample), ``planner`` (names; empty: all but `patent`), ``n_nodes``,
    ``slots_per_node``, fields of :class:`Windows`, :class:`Conditions` and :class:`FaultModel`, ``out`` (None: no
    journal; else a new or empty directory) and ``json``.
    """
    given = {kind: shared(arguments, kind) for kind in (Windows, Conditions, FaultModel)}
    if problems := [text for kind, values in given.items() for text in kind.problems(values)]:
        raise ConfigError(problems)
    trace, windows = load_trace(arguments.trace), Windows(**given[Windows])
    if arguments.out and arguments.interference_frac:
        raise ConfigError("--out writes journals of the machine, which knows no --interference: leave one of them out")
    out = new_directory(arguments.out)  # before the work, not after it
    names = arguments.planner or [name for name in GANGS.names if name != Patent.name]  # it is of one cluster
    ways = {name: (name, given[Conditions]) for name in dict.fromkeys([*names, _BASE, _BLIND])}
    cluster = Cluster.uniform(arguments.n_nodes, arguments.slots_per_node)
    model, conditions = FaultModel(**given[FaultModel]), Conditions(**given[Conditions])
    try:
        played = side_by_side(trace, cluster, model, windows, ways)
    except (ValueError, PlannerFailed) as error:
        raise error if isinstance(error, ConfigError) else ConfigError(f"--planner: {error}") from None
    if out is not None:
        write_journal(
            _streams(dict.fromkeys(names), cluster, model, windows.cut(trace)[0], windows.seed, conditions), out
        )
    rows = [_row(played, name) for name in dict.fromkeys(names)]
    awareness = ratio_of(played, _BLIND, _BASE)
    facts = {"trace": trace.name, "sha256": trace.sha256, "n_dropped": trace.n_dropped}
    settings = {name: value for values in given.values() for name, value in values.items()}
    print_report(
        [*_title(trace, windows, arguments), *table_lines(_table(rows)), f"{worth(awareness)}: {_BLIND} v {_BASE}"],
        "simulate-placement",
        rows,
        json_to=arguments.json,
        **{**settings, **facts},
        awareness={"ratio": awareness.mean, "spread": _spread(awareness)},
        null=awareness.null,
        baseline=_BASE,
    )
    return 0


def _streams(
    names: Iterable[str], cluster: Cluster, model: FaultModel, window: Window, seed: int, conditions: Conditions
) -> dict[str, Stream]:
    """Return the journals of the first window on its first path, one of each planner."""
    rates = model.rates(cluster, seed=seed << 32)
    streams = {}
    for number, name in enumerate(names):
        stream = f"{number}-{re.sub(r'[^A-Za-z0-9._=-]+', '-', name)}"  # parameters may hold anything
        path = model.path(rates, seed=seed << 32, cluster=cluster)
        streams[stream] = play_on_clock(cluster, window, name, path, conditions, stream=stream)[1]
    return streams


def _title(trace: Trace, windows: Windows, how: argparse.Namespace) -> tuple[str, str]:
    """Return which jobs were played, and on what."""
    cut = windows.cut(trace)
    family = cut[0].family if cut[0].family == windows.family else f"all, for want of {windows.family}"
    checkpoints = _CHECKPOINTS.get(how.checkpoint_s) or f"checkpoints each {how.checkpoint_s:g} s"
    more = [form.format(getattr(how, name)) for name, form in _MORE.items() if getattr(how, name) != _USUAL[name]]
    return (
        f"{trace.name}: {len(cut)} windows of {windows.n_jobs} jobs, family {family}; "
        f"{sum(each.n_cut_s for each in cut)} jobs cut to {windows.cap_s:g} s and "
        f"{sum(each.n_cut_slots for each in cut)} to {windows.max_gpus} slots",
        f"{how.n_nodes} x {how.slots_per_node} slots, {how.mtbf_days:g} days between failures of each, {checkpoints}, "
        f"{', '.join([f'locality {how.locality_frac:g}, lemons {how.lemons:g}', *more, how.order, how.backfill])} "
        "(simulated)",
    )


def _row(played: Played, name: str) -> dict[str, Any]:
    """Return what came out under one planner: means over all runs, and the mean of the runs' ratios."""

    def mean(figure: str, way: str = name) -> float:
        return fmean(getattr(outcome, figure) for window in played for outcome in window[way])

    ratio = ratio_of(played, name, _BASE)
    row = figure_row(
        name,
        "mean makespan, s; ratio: geometric mean over runs, 95 % interval over windows",
        mean("makespan_s"),
        _BASE,
        mean("makespan_s", _BASE),
        _spread(ratio),
        **{figure: mean(figure) for figure in _FIGURES},
    )
    return row | {"ratio": ratio.mean}


def _spread(ratio: Ratio) -> dict[str, Any] | None:
    """Return the interval as rows have it; None of one window."""
    return {"kind": "95 %", "low": ratio.low, "high": ratio.high, "n": ratio.n} if ratio.n > 1 else None


def _table(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the rows as they are printed."""
    hours = [row | {name: value / 3600 for name, value in row.items() if name.endswith("_s")} for row in rows]
    for row in hours:
        low_high = " ({low:.3f}..{high:.3f})".format(**row["spread"]) if row["spread"] else ""
        row |= {"shown": f"{row['ratio']:.3f}{low_high}", "value": row["value"] / 3600}
    return [{"planner": row["id"]} | {name: form.format(**row) for name, form in _COLUMNS.items()} for row in hours]
