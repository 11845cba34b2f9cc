"""Declare each setting once, beside the field that holds it: its values, whose it is, and from when a change counts.

A wrong value is told as ``NAME must be ..., got ...``, wherever it comes from: an argument, a file, a command line, a
panel.  :meth:`Kind.read` is the one reader of text.
"""

import json
import math
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, fields
from sys import float_info
from typing import Any, ClassVar, Literal, Self, TypeGuard, TypeVar, cast

from drlnb.records.base import Facts
from drlnb.records.effect import AT_ONCE
from drlnb.records.errors import ConfigError, nearest
from drlnb.records.units import read_bytes

__all__ = [
    "ANYTHING",
    "FLAG",
    "NOT_NEGATIVE",
    "POSITIVE",
    "SECONDS",
    "SHARE",
    "Declared",
    "Kind",
    "Setting",
    "between",
    "choice",
    "count",
    "fitting",
    "is_number",
    "is_whole",
    "optional",
    "parse_text",
    "quoted",
    "setting",
    "size",
]

T = TypeVar("T")

#: Most letters of a value in a message.
_LONGEST = 200


def parse_text(text: object) -> object:
    """Turn a command line's text into a value: none, true, false, a number, JSON, else the text itself.

    What is no text stays as it is.

    Examples
    --------
    >>> [parse_text(text) for text in ("1e-3", "32", "true", "none", "lin_0.001", '{"net_arch": [8]}')]
    [0.001, 32, True, None, 'lin_0.001', {'net_arch': [8]}]
    """
    if not isinstance(text, str):
        return text
    word = text.strip()
    constants = {"none": None, "null": None, "true": True, "false": False}
    if word.lower() in constants:
        return constants[word.lower()]
    for read in (int, float, json.loads):
        with suppress(ValueError):
            return read(word)
    return word


def quoted(value: object) -> str:
    """Quote a value for a message, in one line and not a whole pickle.

    Examples
    --------
    >>> quoted("11GiB"), len(quoted("x" * 1000))
    ("'11GiB'", 203)
    """
    text = re.sub(r"\s*\n\s*", " ", repr(value))
    return text if len(text) <= _LONGEST else re.sub(r"\s+", " ", text[:_LONGEST]) + "..."


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting can have."""

    #: Returns why a value, under a name, is not one of them; empty if it is.
    problem: Callable[[str, object], str]
    #: All of them, where they are few words.
    values: tuple[Any, ...] = ()
    #: What ends the sentence "it must be"; empty where there are several such sentences.
    words: str = ""

    def wanted(self, value: object) -> Any:
        """Return the value that is meant, right or wrong: text that is none itself is read."""
        return self.taken(parse_text(value)) if self.problem("", value) else value

    def taken(self, value: object) -> Any:
        """Return a value, 3.0 as 3 where only whole numbers are good; a number of numpy's as Python's."""
        if getattr(value, "shape", None) == () and hasattr(value, "item"):
            value = value.item()
        if isinstance(value, float) and value.is_integer() and self.problem("", value):
            return value if self.problem("", int(value)) else int(value)
        return value

    def read(self, name: str, value: object) -> Any:
        """Return a value as the setting holds it: text that is none yet is read by :func:`parse_text`.

        Raises
        ------
        ConfigError
            If it is not of this kind; the message holds what was given.

        Examples
        --------
        >>> count(1).read("n_steps", "1e6"), FLAG.read("quarantine", "false"), choice("none", "all").read("x", "none")
        (1000000, False, 'none')
        """
        wanted = self.wanted(value)
        if self.problem(name, wanted):
            raise ConfigError(self.problem(name, value))
        return wanted


def fitting(words: str, fits: Callable[[object], bool], values: tuple[Any, ...] = ()) -> Kind:
    """Return the kind of the values that fit; the words end the sentence "it must be"."""
    return Kind(
        lambda name, value: "" if fits(value) else f"{name} must be {words}, got {quoted(value)}", values, words
    )


def optional(kind: Kind) -> Kind:
    """Return the kind of a kind's values and None."""
    if kind.words:
        values = (None, *kind.values) if kind.values else ()
        return fitting(f"{kind.words}, or none", lambda value: value is None or not kind.problem("", value), values)
    return Kind(lambda name, value: "" if value is None else kind.problem(name, value))


def between(least: float, most: float, noun: str = "a number") -> Kind:
    """Return the kind of the numbers within limits that no float or clock stumbles over."""
    words = f"{noun} from {least:g} to {most:g}".replace("e+0", "e").replace("e-0", "e-")
    return fitting(words, lambda value: is_number(value) and least <= value <= most)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def is_whole(value: object, least: int, most: float = math.inf) -> TypeGuard[int]:
    """Return whether a value is a whole number within limits."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


#: Durations: a timer of a millisecond is the shortest that a loop can keep, and none is longer than a third of a year.
SECONDS = between(0.001, 1e7, "a number of seconds")
#: Numbers above 0.
POSITIVE = between(1e-9, 1e9)
#: Numbers from 0 on.
NOT_NEGATIVE = between(0, 1e9)
#: Shares of a whole.
SHARE = between(0, 1)
#: Largest whole number that travels between processes: they are sent with 64 bits.
_LARGEST = 2**63 - 1
#: Values that are checked beside others, or by whoever reads them.
ANYTHING = Kind(lambda name, value: "")
#: Yes or no.
FLAG = fitting("true or false", lambda value: isinstance(value, bool), (True, False))


def count(least: int, most: int | None = None) -> Kind:
    """Return the kind of whole numbers from `least` on, up to `most` if that is given, else to what 64 bits hold."""
    top = _LARGEST if most is None else most

    def problem(name: str, value: object) -> str:
        if is_whole(value, least, top):
            return ""
        words = f">= {least}" if most is None and not is_whole(value, top) else f"in {least}..{top}"
        return f"{name} must be a whole number {words}, got {quoted(value)}"

    return Kind(problem, words=f"a whole number {f'>= {least}' if most is None else f'in {least}..{most}'}")


def choice(*values: object) -> Kind:
    """Return the kind of some values."""
    return fitting(f"one of {', '.join(map(str, values))}", lambda value: value in values, values)


def size(least: str = "1B", most: str = "8388607TiB") -> Kind:
    """Return the kind of sizes within limits: texts such as ``11GiB``, or numbers of bytes."""

    def fits(value: Any) -> bool:
        try:
            return read_bytes(least) <= read_bytes(value) <= read_bytes(most)
        except ValueError:
            return False

    return fitting(f"a size from {least} to {most}", fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known of one setting beside its value."""

    kind: Kind
    default: object
    #: Each task's own, or one for all who share the pool.
    owner: Literal["task", "pool"] = "pool"
    #: From when on a change counts.
    counts: str = AT_ONCE
    #: Why a preview cannot feel a change; empty if it can.
    unfelt: str = ""
    #: The decision whose planner it names; empty if it names none.
    decision: str = ""
    #: An algorithm's: it may change while a task trains, from the next round on.
    live: bool = False


def setting(default: T, kind: Kind, **more: Any) -> T:
    """Return a dataclass field with its default and what else :class:`Setting` says of it; mappings are copied."""
    metadata = {"setting": Setting(kind=kind, default=default, **more)}
    if isinstance(default, dict):
        return field(default_factory=lambda: cast("T", dict(default)), metadata=metadata)
    return field(default=default, metadata=metadata)


class Declared:
    """Base of a room's settings: a frozen dataclass whose fields are all declared.

    Raises
    ------
    ConfigError
        If any value is wrong; the message lists all of it.
    """

    __slots__ = ()
    #: What the keys of its settings begin with.
    ROOM: ClassVar[str]

    def __post_init__(self) -> None:
        if problems := self.problems({name: getattr(self, name) for name in self.declared()}):
            raise ConfigError(problems)

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        """Return name -> setting."""
        return {each.name: each.metadata["setting"] for each in fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings, in the order of their definition."""
        return tuple(cls.declared())

    @classmethod
    def from_mapping(cls, mapping: Facts) -> Self:
        """Build settings from the keys given; the others keep their defaults.

        Raises
        ------
        ConfigError
            If a key is unknown or a value wrong; the message lists all of them.
        """
        known = cls.declared()
        problems = [f"unknown key {key!r}{nearest(key, known)}" for key in mapping if key not in known]
        given = {key: value for key, value in mapping.items() if key in known}
        if problems := problems + cls.problems(given):
            raise ConfigError(problems)
        return cls(**given)

    @classmethod
    def problems(cls, values: Facts) -> list[str]:
        """Return what is wrong with some values, in words; the others are the defaults."""
        known = cls.declared()
        problems = {name: text for name, value in values.items() if (text := known[name].kind.problem(name, value))}
        complete = {name: setting.default for name, setting in known.items()} | dict(values)
        return [*problems.values(), *cls.together(complete, problems.keys())]

    @classmethod
    def together(cls, values: Facts, wrong: Collection[str]) -> list[str]:
        """Return what is wrong with values beside each other; `wrong` are those that are so by themselves."""
        return []
