"""``drlnb bench warmup``: does starting ahead pay, and never cost more than the best simple rule?"""

from collections.abc import Sequence
from dataclasses import dataclass

from drlnb.bench.groups import BenchParser, chosen, go_through, live_part
from drlnb.bench.report import Report

__all__ = ["GROUPS", "Effort", "main"]

#: Row group -> (module, function): called with the effort, returns rows.  In the order in which they are measured.
GROUPS = {
    "wait": ("drlnb.bench.warmup_rows", "wait"),
    "cells": ("drlnb.bench.warmup_rows", "cells"),
    "plan": ("drlnb.bench.warmup_rows", "plan_time"),
    "held-out": ("drlnb.bench.warmup_rows", "held_out"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Rounds per simulated run; a tenth does not count.
    rounds: int = 400
    #: Seeds of the rows that are no hold-outs.
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    #: Seeds on which nothing was ever tuned.
    held_out: tuple[int, ...] = (100, 101, 102, 103, 104)
    #: Plans that are timed.
    plans: int = 300


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench warmup``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    parser = BenchParser("warmup", "Start collectors by each planner, in simulation, on the same rounds.", GROUPS)
    parser.number("rounds", 400, least=20, help="rounds per simulated run")
    parser.number("repeats", 5, least=1, most=5, help="seeds per row, at most 5")
    parser.live("warmup-live", least_rounds=2)
    args = parser.parse(argv)
    live = live_part(args, "drlnb.bench.warmup_live")
    names = chosen(args.rows, GROUPS, live[0] if live else None)
    report = Report(bench="warmup")
    whole = Effort()
    effort = Effort(rounds=args.rounds, seeds=whole.seeds[: args.repeats], held_out=whole.held_out[: args.repeats])
    more = live and (live[0], [name for name in live[1] if name in names], live[2])
    go_through(report, GROUPS, [name for name in GROUPS if name in names], effort, args.json, more)
    return report.exit_code(strict=args.strict)
