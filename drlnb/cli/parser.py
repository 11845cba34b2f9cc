"""Read a command line: commands and options as data, and typing errors answered with the nearest name."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from drlnb.fleet.plain import parse_seeds
from drlnb.records.errors import ConfigError, InputError, nearest
from drlnb.records.settings import Kind, fitting

__all__ = [
    "Command",
    "Option",
    "Parser",
    "UsageError",
    "either",
    "option",
    "parse",
    "reading",
    "seed_list",
    "taking",
    "words",
]


#: Most seeds of one command.
_MOST_SEEDS = 1000


class UsageError(InputError, ValueError):
    """The command line cannot be read; the message names the nearest option."""


#: Adds an option, or a word that a command takes, to its parser.
Option: TypeAlias = Callable[[argparse._ActionsContainer], object]


def option(*names: str, **how: Any) -> Option:
    """Return an option, with what ``ArgumentParser.add_argument`` takes."""
    return lambda parser: parser.add_argument(*names, **how)


def taking(name: str, metavar: str, kind: Kind, help: str, default: object = None, none: str = "") -> Option:
    """Return an option that takes a value of a kind; the word `none`, if there is one, is None."""
    return option(name, type=reading(kind, none), default=default, metavar=metavar, help=help)


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
        # What begins as a negative number is a value, of whichever unit, and no option: its check says what is wrong.
        self._negative_number_matcher = re.compile(r"-\.?[0-9].*")

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        raise UsageError(f"{message} (see: {self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            option = [action.metavar or action.dest, *action.option_strings][-1]
            name = "command" if action.dest == "command" else option
            raise UsageError(f"unknown {name} {str(value)!r}{nearest(str(value), known, listed=True)}")


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
        raise UsageError(f"unknown option {word}{nearest(word, known, listed=True)} (see: {command.prog} --help)")
    if extra and isinstance(getattr(args, "envs", None), list):
        args.envs += extra
    elif extra:
        raise UsageError(f"unexpected {extra[0]!r}")
    return args


def reading(kind: Kind, none: str = "") -> Callable[[str], Any]:
    """Return a reader of what an option can be; the word `none`, if there is one, is None.

    Examples
    --------
    >>> from drlnb.records.settings import SECONDS, count
    >>> read = reading(SECONDS, "all")
    >>> read("2.5"), read("all"), reading(count(1))("1e5")
    (2.5, None, 100000)
    """
    offered = fitting(f"{kind.words}, or {none}", lambda value: not kind.problem("", value)) if none else kind

    def read(text: str) -> Any:
        try:
            return None if none and text.lower() == none else offered.read("", text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).strip()) from None

    return read


def seed_list(text: str) -> list[int]:
    """Read seeds: ``0-4``, ``1,5,9`` or both.

    Examples
    --------
    >>> seed_list("0-2,7")
    [0, 1, 2, 7]
    """
    try:
        return list(parse_seeds(text, most=_MOST_SEEDS))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
