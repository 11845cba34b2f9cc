"""How does a bench go through its rows?  Chosen groups in order, each printed and written as soon as it is measured."""

import argparse
import importlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from drlnb.bench.report import Report, Row, busy_notice, load, row_lines
from drlnb.records.errors import ConfigError

__all__ = ["BenchParser", "Groups", "Part", "chosen", "go_through", "live_part", "measure", "say", "summary"]

#: Row group -> (module, function); the function is called with the bench's effort and returns rows.
Groups = Mapping[str, tuple[str, str]]
#: Groups, the names of those to measure, and what their functions are called with.
Part = tuple[Groups, Sequence[str], object]


class BenchParser(argparse.ArgumentParser):
    """Raises instead of ending the process, and has the options that every bench has.

    Parameters
    ----------
    name
        Of the bench.
    description
        What it measures, in one sentence.
    groups
        What ``--rows`` may name; none: there is no such option.
    """

    def __init__(self, name: str, description: str, groups: Groups | None = None) -> None:
        super().__init__(prog=f"drlnb bench {name}", description=description)
        self.add_argument("--json", metavar="FILE", type=Path, help="write the rows there, too")
        if groups is not None:
            self.add_argument("--rows", metavar="NAMES", help=f"only these, by comma: {', '.join(groups)}")
        self.add_argument("--strict", action="store_true", help="exit 1 if a binding bar is missed")
        self._limits: dict[str, tuple[float, float]] = {}

    def number(
        self,
        name: str,
        default: float | None,
        *,
        least: float,
        most: float = math.inf,
        help: str,
    ) -> None:
        """Add an option that takes a number: a whole one, unless `default` is not.

        Parameters
        ----------
        name
            Without its dashes.
        default
            What it is where nobody says; None: not given.
        least, most
            Its limits, both included.
        help
            What it says; the default is added.
        """
        kind = float if isinstance(default, float) else int
        said = help if default is None else f"{help} (default {default:g})"
        self.add_argument(f"--{name}", metavar="N", type=kind, default=default, help=said)
        self._limits[name] = (least, most)

    def live(self, name: str, *, least_rounds: int) -> None:
        """Add the options that bring the rows of real processes into the same report.

        Parameters
        ----------
        name
            Of the bench that has those rows alone.
        least_rounds
            Fewest rounds that they make sense with.
        """
        self.add_argument("--live", action="store_true", help=f"add the rows of {name}: real processes, some minutes")
        own = f"the same of the live rows (default: that of {name})"
        self.number("live-rounds", None, least=least_rounds, help=f"with --live, rounds: {own}")
        self.number("live-repeats", None, least=1, help=f"with --live, repeats: {own}")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return the options.

        Raises
        ------
        ConfigError
            If a word is unknown or a number out of its limits.
        """
        args = self.parse_args(list(argv))
        for name, (least, most) in self._limits.items():
            value = getattr(args, name.replace("-", "_"))
            if value is not None and not least <= value <= most:
                limits = f">= {least:g}" if most == math.inf else f"in {least:g}..{most:g}"
                raise ConfigError(f"--{name} must be {limits}, got {value:g}")
        return args

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found.

        Raises
        ------
        ConfigError
            Always.
        """
        raise ConfigError(f"{self.prog.removeprefix('drlnb ')}: {message}")


def chosen(text: str | None, groups: Groups, live: Groups | None = None) -> list[str]:
    """Return the groups that were asked for, in the order in which they are measured.

    Parameters
    ----------
    text
        What ``--rows`` said, or None: all.
    groups
        That may be named.
    live
        More of them, which may have names in common with `groups`: such a name means both.

    Raises
    ------
    ConfigError
        If a name is unknown, or there is none.
    """
    groups = {**groups, **(live or {})}
    if text is None:
        return list(groups)
    names = [name.strip() for name in text.split(",") if name.strip()]
    problems = []
    for name in names:
        if name not in groups:
            near = get_close_matches(name, groups, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(f"unknown row {name!r}{hint}; known: {', '.join(groups)}")
    if not names:
        problems.append(f"--rows names no row; known: {', '.join(groups)}")
    if problems:
        raise ConfigError(problems)
    return [name for name in groups if name in names]


def live_part(args: argparse.Namespace, module: str) -> Part | None:
    """Return the live rows that the options of :meth:`BenchParser.live` ask for; None without ``--live``.

    Parameters
    ----------
    args
        What was parsed; ``--rows`` is not looked at.
    module
        That of the live bench, with ``GROUPS`` and ``Effort``; imported only if it is wanted, since it starts clusters.

    Raises
    ------
    ConfigError
        If numbers of the live rows were given without ``--live``.
    """
    given = {"rounds": args.live_rounds, "repeats": args.live_repeats}
    numbers = {name: value for name, value in given.items() if value is not None}
    if not args.live:
        if numbers:
            raise ConfigError([f"--live-{name} needs --live" for name in numbers])
        return None
    live = importlib.import_module(module)
    return live.GROUPS, list(live.GROUPS), live.Effort(**numbers)


def go_through(
    report: Report,
    groups: Groups,
    names: Sequence[str],
    effort: object,
    path: Path | None,
    live: Part | None = None,
) -> None:
    """Measure groups, print their rows, and write the report after each.

    Parameters
    ----------
    report
        Gets the rows.
    groups
        Of the bench.
    names
        Those to measure.
    effort
        What their functions are called with.
    path
        JSON file, or None.
    live
        More groups, measured after these; None: no others.
    """
    if path is not None:
        report.write(path)
    say(report.header())
    parts = [(groups, names, effort)] + ([live] if live else [])
    for where, name, what in [(of[name], name, what) for of, wanted, what in parts for name in wanted]:
        began = time.monotonic()
        rows = measure(where, name, what)
        report.rows += rows
        for line in [line for row in rows for line in row_lines(row)]:
            say(line)
        say(f"    ({name}: {time.monotonic() - began:.0f} s, load {load():.2f})")
        if path is not None:
            report.write(path)
    say(summary(report))


def measure(where: tuple[str, str], name: str, effort: object) -> tuple[Row, ...]:
    """Return a group's rows; one that cannot be measured says why instead of taking the others along."""
    module, function = where
    group: Callable[[object], tuple[Row, ...]] = getattr(importlib.import_module(module), function)
    try:
        return group(effort)
    except (OSError, RuntimeError, ValueError, TimeoutError) as error:
        text = str(error).strip() or type(error).__name__
        return (Row(id=name, what="could not be measured", not_measured=f"{type(error).__name__}: {text}"),)


def summary(report: Report) -> str:
    """Return how many bars hold, which are missed, and whether the machine was busy."""
    barred = [row for row in report.rows if row.bar is not None]
    held = sum(row.holds is True for row in barred)
    missed = [row.id for row in barred if row.holds is False]
    text = f"{held} of {len(barred)} bars hold"
    if missed:
        text += f"; missed: {', '.join(missed)}"
    notice = busy_notice(report.machine["load_1min"])
    return f"{text}\n{notice}" if notice else text


def say(text: str) -> None:
    """Print a line now."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
