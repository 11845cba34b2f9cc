"""Name the types of plain data, and check the whole numbers that users give."""

from collections.abc import Mapping
from typing import Any

from drlnb.records.errors import ConfigError

__all__ = ["Plain", "Row", "checked_count", "count_problem"]

#: Values by name as JSON holds them, to be read; whoever reads one checks it.
Plain = Mapping[str, Any]
#: One row of a journal or a table.
Row = dict[str, Any]


def count_problem(name: str, value: object, least: int = 1) -> str:
    """Return why a value is no whole number from `least` on; empty if it is one.

    Examples
    --------
    >>> count_problem("n_envs", 0)
    'n_envs must be a whole number >= 1, got 0'
    """
    good = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return "" if good else f"{name} must be a whole number >= {least}, got {value!r}"


def checked_count(name: str, value: int, least: int = 1) -> int:
    """Return a whole number from `least` on.

    Raises
    ------
    ConfigError
        If it is something else.
    """
    if problem := count_problem(name, value, least):
        raise ConfigError(problem)
    return value
