"""``drlnb bench runtime``: what does it cost to run on Dask, in processes, under leases?

Each group of rows lives in a file of its own and is imported when it is measured.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from drlnb.bench.report import Report, Row, busy_notice, load, row_lines
from drlnb.records.errors import ConfigError

__all__ = ["GROUPS", "Effort", "main"]

#: Row group -> (module, function): called with the effort, returns rows.  In the order in which they are measured.
GROUPS = {
    "hops": ("drlnb.bench.messages", "hops"),
    "handover": ("drlnb.bench.messages", "handover"),
    "overhead": ("drlnb.bench.training", "overhead"),
    "overhead-train": ("drlnb.bench.training", "overhead_train"),
    "startup": ("drlnb.bench.starts", "startup"),
    "reclaim": ("drlnb.bench.reclaim", "reclaim"),
    "failover": ("drlnb.bench.deaths", "failover"),
    "first-step": ("drlnb.bench.training", "first_step"),
    "orphans": ("drlnb.bench.deaths", "orphans"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Interleaved pairs of blocks per row.
    repeats: int = 3
    #: Leave out what takes longer than a minute by its own rules.
    quick: bool = False
    #: Environment steps of ``overhead-train``.
    steps: int = 50_000


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"bench runtime: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="drlnb bench runtime",
        description="Measure what drlnb's processes, messages and leases cost, each against a named baseline.",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows there, too")
    parser.add_argument("--rows", metavar="NAMES", help=f"only these, by comma: {', '.join(GROUPS)}")
    parser.add_argument("--repeats", metavar="N", type=int, default=3, help="interleaved pairs per row (default 3)")
    parser.add_argument(
        "--steps", metavar="N", type=int, default=50_000, help="steps of overhead-train (default 50000)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out the baseline of reclaim: it takes 30-40 s by its rules"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 if a binding bar is missed")
    return parser


def _chosen(text: str | None) -> list[str]:
    """Return the groups that were asked for, in the order in which they are measured."""
    if text is None:
        return list(GROUPS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    problems = []
    for name in names:
        if name not in GROUPS:
            near = get_close_matches(name, GROUPS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(f"unknown row {name!r}{hint}; known: {', '.join(GROUPS)}")
    if not names:
        problems.append(f"--rows names no row; known: {', '.join(GROUPS)}")
    if problems:
        raise ConfigError(problems)
    return [name for name in GROUPS if name in names]


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench runtime``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    args = _parser().parse_args(list(argv))
    for name, least in (("repeats", 1), ("steps", 1)):
        if getattr(args, name) < least:
            raise ConfigError(f"--{name} must be >= {least}, got {getattr(args, name)}")
    chosen = _chosen(args.rows)
    effort = Effort(repeats=args.repeats, quick=args.quick, steps=args.steps)
    report = Report(bench="runtime")
    if args.json is not None:
        report.write(args.json)
    _say(report.header())
    for name in chosen:
        began = time.monotonic()
        rows = _measure(name, effort)
        report.rows += rows
        for line in [line for row in rows for line in row_lines(row)]:
            _say(line)
        _say(f"    ({name}: {time.monotonic() - began:.0f} s, load {load():.2f})")
        if args.json is not None:
            report.write(args.json)
    _say(_summary(report))
    return report.exit_code(strict=args.strict)


def _measure(name: str, effort: Effort) -> tuple[Row, ...]:
    module, function = GROUPS[name]
    group: Callable[[Effort], tuple[Row, ...]] = getattr(importlib.import_module(module), function)
    try:
        return group(effort)
    except (OSError, RuntimeError, ValueError, TimeoutError) as error:
        # One row that fails must not take the others' figures along: it says so, and so does the exit code.
        text = str(error).strip() or type(error).__name__
        return (Row(id=name, what="could not be measured", not_measured=f"{type(error).__name__}: {text}"),)


def _summary(report: Report) -> str:
    barred = [row for row in report.rows if row.bar is not None]
    held = sum(row.holds is True for row in barred)
    missed = [row.id for row in barred if row.holds is False]
    text = f"{held} of {len(barred)} bars hold"
    if missed:
        text += f"; missed: {', '.join(missed)}"
    notice = busy_notice(report.machine["load_1min"])
    return f"{text}\n{notice}" if notice else text


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
