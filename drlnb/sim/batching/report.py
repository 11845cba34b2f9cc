"""Run ``drlnb simulate batching``: planners side by side on the same contention."""

import argparse
from functools import partial
from typing import Any

from drlnb.planning.batching import BATCHING
from drlnb.records.base import shared
from drlnb.records.errors import ConfigError
from drlnb.sim.batching.play import CLAIRVOYANT, Gang, Outcome, simulate_batching
from drlnb.sim.batching.traces import Contention
from drlnb.sim.report import Comparison, chosen_names, compare, figure_row, print_report, table_lines

__all__ = ["main"]


#: Column of the table -> how a row's figures are written there.
_COLUMNS = {
    "split s": "{value:.3f}",
    f"v {CLAIRVOYANT}": "{ratio:.3f}",
    "samples/s": "{samples_hz:.0f}",
    "of best": "{samples_ratio:.3f}",
    "lost": "{lost_frac:.2%}",
}


def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate batching``, print what came out and return 0; ConfigError if an option is out of its range.

    The arguments are ``planners``, fields of :class:`~drlnb.sim.batching.traces.Contention` and of
    :class:`~drlnb.sim.batching.play.Gang`, ``seeds``, ``json``.
    """
    planners = chosen_names("--planners", arguments.planners, (*BATCHING.names, CLAIRVOYANT))
    trace, gang = shared(arguments, Contention), shared(arguments, Gang)
    if problems := [*Contention.problems(trace), *Gang.problems(gang)]:
        raise ConfigError(problems)
    traces = [Contention(seed=seed, **trace) for seed in arguments.seeds]
    run = partial(simulate_batching, gang=Gang(**gang))
    compared = {each.planner: each for each in compare(dict.fromkeys([*planners, CLAIRVOYANT]), traces, run)}
    rows = [_row(compared[name], compared[CLAIRVOYANT]) for name in planners]
    print_report(
        [_title(traces[0], Gang(**gang), arguments.seeds), *table_lines(_table(rows))],
        "simulate-batching",
        rows,
        json_to=arguments.json,
        contention=trace,
        gang=gang,
        seeds=list(arguments.seeds),
        baseline=CLAIRVOYANT,
    )
    return 0


def _title(trace: Contention, gang: Gang, seeds: list[int]) -> str:
    members = f"{len(trace.speeds)} member{'s' * (len(trace.speeds) != 1)}"
    of_family = {"memoryless": f" dwell {trace.dwell:g}", "periodic": f" periods {','.join(map(str, trace.periods))}"}
    return (
        f"{members}, {gang.n_units} samples a split, {trace.family}{of_family.get(trace.family, '')}, "
        f"quorum {gang.quorum}, {'steal' if gang.steal else f'late {gang.late}'}, {trace.n_splits} splits, "
        f"seeds {', '.join(map(str, seeds))} (simulated)"
    )


def _row(each: Comparison[Outcome], best: Comparison[Outcome]) -> dict[str, Any]:
    """Return what came out for one planner, beside who knows each split's speeds before it."""
    return figure_row(
        each.planner,
        "mean split, s",
        each.mean("split_s"),
        CLAIRVOYANT,
        best.mean("split_s"),
        each.spread("split_s"),
        **{name: each.mean(name) for name in ("samples_hz", "lost_frac")},
        samples_ratio=each.mean("samples_hz") / best.mean("samples_hz"),
    )


def _table(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the rows as they are printed."""
    return [{"planner": row["id"]} | {name: form.format(**row) for name, form in _COLUMNS.items()} for row in rows]
