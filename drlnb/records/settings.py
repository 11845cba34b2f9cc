"""Declare each setting once, beside the field that holds it: its values, whose it is, and from when a change counts."""

import math
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, TypeVar

from drlnb.records.base import Facts
from drlnb.records.effect import AT_ONCE
from drlnb.records.errors import ConfigError, nearest

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
    "declare",
    "fitting",
    "is_whole",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting can have."""

    #: Returns why a value, under a name, is not one of them; empty if it is.
    problem: Callable[[str, object], str]
    #: All of them, where they are few words.
    values: tuple[str, ...] = ()
    #: What ends the sentence "it must be"; empty where that depends on the value.
    words: str = ""


def fitting(words: str, fits: Callable[[object], bool], values: tuple[str, ...] = ()) -> Kind:
    """Return the kind of the values that fit; the words end the sentence "it must be"."""
    return Kind(lambda name, value: "" if fits(value) else f"{name} must be {words}, got {value!r}", values, words)


def between(least: float, most: float, noun: str = "a number") -> Kind:
    """Return the kind of the numbers within limits that no float or clock stumbles over."""
    number = int | float
    return fitting(
        f"{noun} from {least:g} to {most:g}".replace("e+0", "e").replace("e-0", "e-"),
        lambda value: isinstance(value, number) and not isinstance(value, bool) and least <= value <= most,
    )


def is_whole(value: object, least: int, most: float = math.inf) -> bool:
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
FLAG = fitting("true or false", lambda value: isinstance(value, bool))


def count(least: int, most: int | None = None) -> Kind:
    """Return the kind of whole numbers from `least` on, up to `most` if that is given, else to what 64 bits hold."""
    top = _LARGEST if most is None else most

    def problem(name: str, value: object) -> str:
        if is_whole(value, least, top):
            return ""
        words = f">= {least}" if most is None and not is_whole(value, top) else f"in {least}..{top}"
        return f"{name} must be a whole number {words}, got {value!r}"

    return Kind(problem)


def choice(*values: str) -> Kind:
    """Return the kind of some words."""
    return fitting(f"one of {', '.join(values)}", lambda value: value in values, values)


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


def declare(default: T, kind: Kind, **more: Any) -> T:
    """Return a dataclass field with its default and what else :class:`Setting` says of it."""
    return field(default=default, metadata={"setting": Setting(kind=kind, default=default, **more)})


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
        if problems := self.problems(asdict(self)):  # type: ignore[call-overload]  # each subclass is a dataclass
            raise ConfigError(problems)

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        """Return name -> setting."""
        return {each.name: each.metadata["setting"] for each in fields(cls)}  # type: ignore[arg-type]

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
