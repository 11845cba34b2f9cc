"""Keep columns that grow row by row and are read as arrays."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

__all__ = ["Grow"]


class Grow:
    """Rows of float64 columns: appending and changing is cheap, reading copies.

    Parameters
    ----------
    names
        Names of the columns.

    Examples
    --------
    >>> grow = Grow("t", "value")
    >>> grow.append(1.0, 2.0)
    0
    >>> grow.set(0, "value", 3.0)
    >>> grow["value"]
    array([3.])
    """

    def __init__(self, *names: str) -> None:
        self._columns = {name: array("d") for name in names}
        self._own = tuple(names)
        #: Names of the latest row's other values, if all of them were numbers, and their columns.
        self._latest: tuple[tuple[str, ...], list[array[float]]] = ((), [])

    def __len__(self) -> int:
        return len(self._columns[self._own[0]])

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return np.array(self._columns[name], dtype=np.float64)

    def append(self, *values: float) -> int:
        """Add a row; return its number."""
        for name, value in zip(self._own, values, strict=True):
            self._columns[name].append(value)
        return len(self) - 1

    def set(self, row: int, name: str, value: float) -> None:
        """Change one value."""
        self._columns[name][row] = value

    def get(self, row: int, name: str) -> float:
        """Return one value."""
        return self._columns[name][row]

    def fill(self, values: Mapping[str, Any]) -> None:
        """Add the latest row's other values to columns of their names, as far as they are numbers.

        A new name makes a new column; rows that lack a value have NaN.
        """
        names, columns = self._latest
        if names != tuple(values):
            columns = []
        try:  # the rule: the same names as in the row before, so that all of these columns have the same length
            for column, value in zip(columns, values.values(), strict=bool(columns)):
                column.append(value)
        except TypeError:
            columns = []
        if not columns:
            self._fill_each(values)

    def _fill_each(self, values: Mapping[str, object]) -> None:
        n = len(self)
        numbers = {name: v for name, v in values.items() if _is_number(v) and name not in self._own}
        for name, value in numbers.items():
            column = self._columns.setdefault(name, array("d"))
            column.extend([float("nan")] * (n - 1 - len(column)))
            if len(column) < n:
                column.append(value)
        whole = len(numbers) == len(values)
        self._latest = (tuple(values), [self._columns[name] for name in numbers]) if whole else ((), [])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its own columns."""
        return self._own

    @property
    def others(self) -> tuple[str, ...]:
        """Names that rows were filled with, in order of appearance."""
        return tuple(name for name in self._columns if name not in self._own)

    def padded(self, name: str) -> NDArray[np.float64]:
        """Return a column that may be missing or short, filled with NaN."""
        column: Sequence[float] = self._columns.get(name, array("d"))
        full = np.full(len(self), np.nan)
        full[: len(column)] = column
        return full


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
