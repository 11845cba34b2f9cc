"""Check a panel's settings: wrong ones are refused with the nearest name and all that there are."""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping

from drlnb.records.errors import InputError
from drlnb.views.drawing.payload import Content

__all__ = ["Checks", "UnknownSetting", "WrongSetting", "checked", "choice", "nearest", "number", "seconds", "text"]

#: Setting -> what returns its value, or raises WrongSetting.
Checks = Mapping[str, Callable[[str, object], object]]


class UnknownSetting(InputError, TypeError):
    """A panel was asked for a setting that it does not have."""


class WrongSetting(InputError, ValueError):
    """A setting's value is out of range; the message holds the limit and the value."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about a wrong word: the nearest right one, and all of them.

    Examples
    --------
    >>> nearest("leases", ["fleet", "leasing"])
    '; did you mean leasing? There are fleet, leasing'
    """
    names = list(known)
    near = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    return (f"; did you mean {near[0]}? There are " if near else "; there are ") + (", ".join(names) or "none")


def checked(panel: str, checks: Checks, settings: Mapping[str, object]) -> Content:
    """Return the settings with their values checked.

    Raises
    ------
    UnknownSetting
        If the panel has no such setting.
    WrongSetting
        If a value is wrong.
    """
    for name in settings:
        if name not in checks:
            raise UnknownSetting(f"panel {panel} has no setting {name!r}{nearest(name, checks)}")
    return {name: checks[name](name, value) for name, value in settings.items()}


def seconds(name: str, value: object) -> float | None:
    """Check a span of time above 0, None for all of it."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise WrongSetting(f"{name} must be a number > 0 s, or None for all, got {value!r}")
    return float(value)


def text(name: str, value: object) -> str:
    """Check a text of one line."""
    if not isinstance(value, str) or len(value) > 200 or "\n" in value:
        raise WrongSetting(f"{name} must be a text of one line, at most 200 letters, got {value!r}")
    return value


def choice(*values: object) -> Callable[[str, object], object]:
    """Return a check that a value is one of some."""

    def check(name: str, value: object) -> object:
        if value not in values:
            raise WrongSetting(f"{name} must be one of {', '.join(map(repr, values))}, got {value!r}")
        return value

    return check


def number(low: float, high: float, *, whole: bool = False) -> Callable[[str, object], object]:
    """Return a check that a value is a number within limits."""

    def check(name: str, value: object) -> object:
        kinds = int if whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            kind = "whole number" if whole else "number"
            raise WrongSetting(f"{name} must be a {kind} from {low:g} to {high:g}, got {value!r}")
        return value

    return check
