"""Declare a bench as data, and run it: choose groups of rows; measure, print and write each row once it is there."""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import ClassVar, NoReturn, Protocol, TypeVar

from benchmarks.frame.report import Report, load
from benchmarks.frame.rows import Row
from drlnb.records.errors import ConfigError, nearest

__all__ = ["Bench", "Effort", "Groups", "measure", "option", "write_line"]

T = TypeVar("T")
#: Group of rows -> the function that measures them, given the effort.
Groups = Mapping[str, Callable[..., Iterable[Row]]]


class Effort(Protocol):
    """How much to measure: a dataclass whose fields, made by :func:`option`, are the options of a bench."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


def option(
    default: T, help: str, *, least: float = -math.inf, most: float = math.inf, choices: Sequence[str] | None = None
) -> T:
    """Return a dataclass field that is an option of the command line.

    Parameters
    ----------
    default
        Its value where it is not given; its type is the option's: False is a flag, None an optional whole number,
        a tuple numbers by comma, a text without `choices` any text.
    help
        Its line of ``--help``; the default of a number is added.
    least, most
        Limits of a number, both included.
    choices
        The words that it takes.
    """
    metadata = {"help": help, "least": least, "most": most, "choices": choices}
    made: T = field(default=default, metadata=metadata)
    return made


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog.removeprefix('python -m ')}: {message}")


@dataclass(frozen=True, slots=True)
class Bench:
    """The claims of one ``python -m benchmarks NAME``."""

    name: str
    help: str
    groups: Groups
    #: A dataclass of options.
    effort: Callable[..., Effort]
    #: The bench of real processes whose rows ``--live`` adds to the report.
    live: "Bench | None" = None
    #: Groups that are measured without ``--rows``, by the effort; None: all.
    unasked: Callable[..., Sequence[str]] | None = None

    def main(self, argv: Sequence[str]) -> int:
        """Measure and print the rows.

        Parameters
        ----------
        argv
            Words after ``python -m benchmarks NAME``.

        Returns
        -------
        int
            0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

        Raises
        ------
        ConfigError
            If a word of `argv` is wrong, or the JSON file cannot be written.
        """
        args = self._parser().parse_args(list(argv))
        parts = [(self, _effort(self, args))]
        if self.live is not None and _live_asked(args):
            parts.append((self.live, _effort(self.live, args, "live_")))
        chosen = _chosen(getattr(args, "rows", None), parts)
        report = Report(self.name)
        report.write(args.json)
        write_line(report.header())
        for bench, effort in parts:
            for name in [name for name in bench.groups if name in chosen]:
                began = time.monotonic()
                for row in measure(name, bench.groups[name], effort):
                    report.rows.append(row)
                    write_line("\n".join(row.lines()))
                    report.write(args.json)
                write_line(f"    ({name}: {time.monotonic() - began:.0f} s, load {load():.2f})")
        write_line(report.summary())
        return report.exit_code(strict=args.strict)

    def _parser(self) -> argparse.ArgumentParser:
        parser = _Parser(prog=f"python -m benchmarks {self.name}", description=self.help)
        parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows there, too")
        if len(self.groups) > 1:
            parser.add_argument("--rows", metavar="NAMES", help=f"only these, by comma: {', '.join(self.groups)}")
        parser.add_argument("--strict", action="store_true", help="exit 1 if a binding bar is missed")
        for declared in _options(self):
            _add(parser, declared.name, declared.default, declared.metadata["help"], declared.metadata["choices"])
        if self.live is not None:
            name = self.live.name
            parser.add_argument(
                "--live", action="store_true", help=f"add the rows of {name}: real processes, some minutes"
            )
            for declared in _options(self.live):
                words = f"with --live, {declared.name}: the same of the live rows (default: that of {name})"
                _add(parser, f"live_{declared.name}", None, words)
        return parser


def _options(bench: Bench) -> Iterator[Field[object]]:
    return (declared for declared in fields(bench.effort) if declared.metadata)  # type: ignore[arg-type]


def _add(
    parser: argparse.ArgumentParser, name: str, default: object, help: str, choices: Sequence[str] | None = None
) -> None:
    """Add an option; its limits are checked once all is read: argparse would name the reader, not the limit."""
    flag = f"--{name.replace('_', '-')}"
    if default is False:
        parser.add_argument(flag, action="store_true", help=help)
    elif isinstance(default, str) and choices is None:
        parser.add_argument(flag, metavar="TEXT", default=default, help=help)
    elif choices is not None:
        parser.add_argument(flag, choices=choices, default=default, help=help)
    elif isinstance(default, tuple):
        shown = f"{help} (default {','.join(f'{each:g}' for each in default)})"
        parser.add_argument(flag, metavar="N,N", type=_numbers(type(default[0])), default=default, help=shown)
    else:
        shown = help if default is None else f"{help} (default {default:g})"
        parser.add_argument(
            flag, metavar="N", type=float if isinstance(default, float) else int, default=default, help=shown
        )


def _numbers(kind: Callable[[str], float]) -> Callable[[str], tuple[float, ...]]:
    """Return what reads numbers by comma."""

    def numbers(text: str) -> tuple[float, ...]:
        return tuple([kind(each) for each in text.split(",")])

    return numbers


def _effort(bench: Bench, args: argparse.Namespace, prefix: str = "") -> Effort:
    """Return the options of a bench as its effort.

    Raises
    ------
    ConfigError
        If a number is out of its limits.
    """
    values = {}
    for declared in _options(bench):
        value = getattr(args, prefix + declared.name)
        least, most = declared.metadata["least"], declared.metadata["most"]
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, int | float) and not least <= each <= most:
                limits = f">= {least:g}" if most == math.inf else f"in {least:g}..{most:g}"
                raise ConfigError(f"--{(prefix + declared.name).replace('_', '-')} must be {limits}, got {each:g}")
        if value is not None:
            values[declared.name] = value
    return bench.effort(**values)


def _live_asked(args: argparse.Namespace) -> bool:
    """Return whether the live rows are wanted.

    Raises
    ------
    ConfigError
        If numbers of the live rows were given without ``--live``.
    """
    given = [name for name, value in vars(args).items() if name.startswith("live_") and value is not None]
    if given and not args.live:
        raise ConfigError([f"--{name.replace('_', '-')} needs --live" for name in given])
    return bool(args.live)


def _chosen(text: str | None, parts: Iterable[tuple[Bench, Effort]]) -> list[str]:
    """Return the groups that were asked for; a name that two benches share means both.

    Raises
    ------
    ConfigError
        If a name is unknown, or there is none.
    """
    known = {name: None for bench, _ in parts for name in bench.groups}
    if text is None:
        return [n for bench, effort in parts for n in (bench.unasked(effort) if bench.unasked else bench.groups)]
    names = [name.strip() for name in text.split(",") if name.strip()]
    problems = [] if names else [f"--rows names no row; known: {', '.join(known)}"]
    unknown = [name for name in names if name not in known]
    problems += [f"unknown row {name!r}{nearest(name, known)}; known: {', '.join(known)}" for name in unknown]
    if problems:
        raise ConfigError(problems)
    return names


def measure(name: str, group: Callable[..., Iterable[Row]], effort: Effort) -> Iterator[Row]:
    """Yield a group's rows; one that cannot be measured becomes a row with the reason, and other groups go on."""
    try:
        yield from group(effort)
    except (OSError, RuntimeError, ValueError, TimeoutError) as error:
        text = str(error).strip() or type(error).__name__
        yield Row(name, "could not be measured", not_measured=f"{type(error).__name__}: {text}")


def write_line(text: str) -> None:
    """Print a line now."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
