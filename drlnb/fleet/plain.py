"""Name the types of plain data, and check the values that users give."""

import json
import re
from collections.abc import Mapping
from typing import Any

from drlnb.records.errors import ConfigError
from drlnb.records.settings import count

__all__ = ["COUNT", "Plain", "Row", "by_name", "checked_plain", "first_line", "parse_seeds", "quoted"]

#: Values by name as JSON holds them, to be read; whoever reads one checks it.
Plain = Mapping[str, Any]
#: One row of a journal or a table.
Row = dict[str, Any]

#: Whole numbers from 1 on.
COUNT = count(1)
#: Largest seed that every random generator takes.
_MOST_SEED = 2**32 - 1
_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")


def checked_plain(key: str, value: object) -> object:
    """Return a value that journals and messages can hold, else raise ConfigError; whoever reads it judges further."""
    try:
        json.loads(json.dumps(value, default=dict), parse_int=_travels)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{key} must be words, numbers (whole ones of 64 bits), true or false, or lists and mappings of them, "
            f"got {value!r}"
        ) from None
    return value


def _travels(text: str) -> None:
    if not -(2**63) <= int(text) < 2**63:
        raise ValueError("it is sent with 64 bits")


def by_name(key: str, value: object) -> Plain:
    """Return a mapping of names to plain data, None as an empty one; raise ConfigError for anything else."""
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
        raise ConfigError(f"{key} must be a mapping whose keys are words, got {value!r}")
    return value or {}


def parse_seeds(text: str, most: int) -> tuple[int, ...]:
    """Return the seeds that a text lists, each once.

    Parameters
    ----------
    text
        Seeds and ranges of them, by comma.
    most
        How many there may be.

    Raises
    ------
    ConfigError
        If it lists none, too many, or something else.

    Examples
    --------
    >>> parse_seeds("0-2, 7", most=4)
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in filter(None, map(str.strip, text.split(","))):
        bounds = _RANGE.fullmatch(part)
        if bounds is None:
            raise ConfigError(f"seeds must be whole numbers >= 0, as 0 or 0-4 or 0, 3, got {quoted(part)}")
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if last < first or last > _MOST_SEED:
            raise ConfigError(f"seeds must go up, to at most {_MOST_SEED}, got {quoted(part)}")
        if last - first >= most or len(seeds) + last - first >= most:
            raise ConfigError(f"at most {most} seeds at once, got {quoted(text)}")
        seeds += [seed for seed in range(first, last + 1) if seed not in seeds]
    if not seeds:
        raise ConfigError("seeds are missing: write 0, or 0-4 for five tasks")
    return tuple(seeds)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, its class where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def quoted(text: str) -> str:
    """Quote what was typed, shortened."""
    word = text.strip()
    return repr(word if len(word) <= 40 else f"{word[:40]}...")
