"""Read a command line: commands and options as data, and typing errors answered with the nearest name."""

import argparse
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from drlnb.planning.placement.devices import devices_problem, is_device_name
from drlnb.planning.seats.rules import n_seats_problem
from drlnb.records.errors import InputError

__all__ = [
    "Command",
    "Option",
    "Parser",
    "UsageError",
    "at_least",
    "device_choice",
    "either",
    "key_values",
    "option",
    "parse",
    "seat_count",
    "seconds",
    "seed_list",
    "words",
]


class UsageError(InputError, ValueError):
    """The command line cannot be read; the message names the nearest option."""


#: Adds an option, or a word that a command takes, to its parser.
Option: TypeAlias = Callable[[argparse._ActionsContainer], object]


def option(*names: str, **how: Any) -> Option:
    """Return an option, with what ``ArgumentParser.add_argument`` takes."""
    return lambda parser: parser.add_argument(*names, **how)


def words(name: str, metavar: str, help: str) -> Option:
    """Return an option that takes several words, and may be given several times."""
    return option(name, nargs="+", action="extend", default=[], metavar=metavar, help=help)


def either(*others: Option) -> Option:
    """Return options of which one may be given."""

    def add(parser: argparse._ActionsContainer) -> None:
        group = parser.add_mutually_exclusive_group()
        for other in others:
            other(group)

    return add


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what it does, its options, and the function that runs it."""

    help: str
    run: Callable[[argparse.Namespace], int]
    options: Sequence[Option] = ()
    #: What ``--help`` begins with, where that is more than `help`.
    description: str | None = None
    #: Commands below it, by the word that chooses one.
    kinds: Mapping[str, "Command"] = field(default_factory=dict)

    def add_to(self, commands: "argparse._SubParsersAction[Parser]", name: str) -> None:
        """Add it to a parser's commands."""
        parser = commands.add_parser(name, help=self.help, description=self.description)
        for add in (*self.options, _DEBUG):
            add(parser)
        parser.set_defaults(run=self.run, parser=parser)
        if self.kinds:
            kinds = parser.add_subparsers(metavar="WHAT", dest="what", required=True, parser_class=Parser)
            for kind, command in self.kinds.items():
                command.add_to(kinds, kind)


_DEBUG = option("--debug", action="store_true", help="show the traceback of an error")


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations and without its own way to exit on an error."""

    def __init__(self, **how: Any) -> None:
        super().__init__(allow_abbrev=False, **how)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise UsageError(f"{message} (see: {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            name = "command" if action.dest == "command" else _option(action)
            raise UsageError(f"unknown {name} {str(value)!r}{nearest(str(value), known)}")


def _option(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ...?``, or what is known where nothing is near."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def parse(parser: Parser, argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line.

    Words that follow options are taken as environments of ``train`` (argparse itself takes those before options only).

    Raises
    ------
    UsageError
        If an option is unknown; the nearest one of the command is named.
    """
    args, extra = parser.parse_known_args(argv)
    options = [word for word in extra if word.startswith("-")]
    if options:
        command: Parser = getattr(args, "parser", parser)
        word = options[0].partition("=")[0]
        known = [option for action in command._actions for option in action.option_strings if option.startswith("--")]
        raise UsageError(f"unknown option {word}{nearest(word, known)} (see: {command.prog} --help)")
    if extra and isinstance(getattr(args, "envs", None), list):
        args.envs += extra
    elif extra:
        raise UsageError(f"unexpected {extra[0]!r}")
    return args


def at_least(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers not below a limit (``100_000`` and ``1e5`` are read, too)."""

    def read(text: str) -> int:
        number: float
        try:
            number = int(text)
        except ValueError:
            number = _float(text)
        if number != number or number in (float("inf"), float("-inf")) or number != int(number) or number < least:
            raise argparse.ArgumentTypeError(f"must be a whole number >= {least}, got {text!r}")
        return int(number)

    return read


def device_choice(text: str) -> int | list[str]:
    """Read how many devices, or which ones by their names.

    Examples
    --------
    >>> device_choice("2"), device_choice("cuda:0,cuda:2")
    (2, ['cuda:0', 'cuda:2'])
    """
    names = [part.strip() for part in text.split(",")]
    if not any(is_device_name(name) for name in names):
        try:
            return at_least(1)(text)
        except argparse.ArgumentTypeError as error:
            hint = str(error).replace(", got", ", or devices such as cuda:0,cuda:2; got")
            raise argparse.ArgumentTypeError(hint) from None
    if problem := devices_problem(names):
        raise argparse.ArgumentTypeError(problem.replace("slots ", "", 1))
    return names


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def seat_count(text: str) -> int | str:
    """Read a number of seats, or ``auto``.

    Examples
    --------
    >>> seat_count("2"), seat_count("auto")
    (2, 'auto')
    """
    seats: int | str = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text
    if problem := n_seats_problem(seats):
        raise argparse.ArgumentTypeError(problem.removeprefix("seats "))
    return seats


def seconds(text: str) -> float | None:
    """Read a number of seconds above 0; ``none`` is None.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is something else.

    Examples
    --------
    >>> seconds("2.5"), seconds("none")
    (2.5, None)
    """
    if text.lower() == "none":
        return None
    with suppress(ValueError):
        if 0.0 < (number := float(text)) < float("inf"):
            return number
    raise argparse.ArgumentTypeError(f"must be a number of seconds > 0, or none, got {text!r}")


def seed_list(text: str) -> list[int]:
    """Read seeds: ``0-4``, ``1,5,9`` or both.

    Examples
    --------
    >>> seed_list("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(f"must be like 0-4 or 1,5,9, got {text!r}")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if not first <= last < first + 1000:
            raise argparse.ArgumentTypeError(f"must count upwards, by at most 1000 seeds, got {text!r}")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"must name each seed once, got {text!r}")
    return seeds


def key_values(option: str, words: Iterable[str]) -> dict[str, str]:
    """Read ``KEY=VALUE`` words.

    Raises
    ------
    UsageError
        If a word is none (environments must come before the option), or a key comes twice.
    """
    values: dict[str, str] = {}
    for word in words:
        key, mark, value = word.partition("=")
        if not mark or not key:
            raise UsageError(f"{option} takes KEY=VALUE, got {word!r} (name environments before {option})")
        if key in values:
            raise UsageError(f"{option} names {key} twice")
        values[key] = value
    return values
