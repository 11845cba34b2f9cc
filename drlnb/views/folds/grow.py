"""Keep columns that grow row by row and are read as arrays."""

import math
from array import array
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Grow", "Plain", "Spans", "begin_span", "end_span", "finite"]

#: Real numbers in a row.
Floats = NDArray[np.float64]
#: Plain data, as JSON holds it: text, numbers, None, lists and mappings of them.
Plain = Mapping[str, Any]
#: Spans of seconds; the end of the last one is NaN while it goes on.
Spans = list[tuple[float, float]]


def finite(values: Floats) -> Floats:
    """Return those values that are known."""
    return values[np.isfinite(values)]


def begin_span(spans: Spans, t: float) -> None:
    """Begin a span of seconds, unless one goes on: its end is NaN."""
    if not spans or not math.isnan(spans[-1][1]):
        spans.append((t, math.nan))


def end_span(spans: Spans, t: float) -> None:
    """End the span that goes on."""
    if spans and math.isnan(spans[-1][1]):
        spans[-1] = (spans[-1][0], t)


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

    def __getitem__(self, name: str) -> Floats:
        return np.array(self._columns[name], dtype=np.float64)

    def append(self, *values: float) -> int:
        """Add a row; return its number."""
        for name, value in zip(self._own, values, strict=True):
            self._columns[name].append(value)
        return len(self) - 1

    def set(self, row: int, name: str, value: float) -> None:
        """Change one value."""
        self._columns[name][row] = value

    def take(self, rows: slice | NDArray[Any]) -> None:
        """Forget all rows but these."""
        self._columns = {name: array("d", self[name][rows].tobytes()) for name in self._own}

    def get(self, row: int, name: str) -> float:
        """Return one value."""
        return self._columns[name][row]

    def fill(self, values: Plain) -> None:
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

    def _fill_each(self, values: Plain) -> None:
        n = len(self)
        numbers = {name: v for name, v in values.items() if _is_number(v) and name not in self._own}
        for name, value in numbers.items():
            column = self._columns.setdefault(name, array("d"))
            column.extend([math.nan] * (n - 1 - len(column)))
            if len(column) < n:
                column.append(value)
        whole = len(numbers) == len(values)
        self._latest = (tuple(values), [self._columns[name] for name in numbers]) if whole else ((), [])

    def thin(self, name: str, most: int) -> None:
        """Keep about half as many once there are more than `most` rows: every 2nd, 4th, ... by the numbers in a column.

        All parts of a long history stay equally dense, and rows that are added later are whole again until then.  The
        newest row stays.
        """
        if len(self) <= most:
            return
        number = self[name]
        step = 2.0 ** math.ceil(math.log2(2 * (number[-1] - number[0] + 1) / most))
        kept = number % step == 0
        kept[-1] = True
        self._columns = {key: array("d", self.padded(key)[kept].tobytes()) for key in self._columns}
        self._latest = ((), [])

    @property
    def others(self) -> tuple[str, ...]:
        """Names that rows were filled with, in order of appearance."""
        return tuple(name for name in self._columns if name not in self._own)

    def padded(self, name: str) -> Floats:
        """Return a column that may be missing or short, filled with NaN."""
        column = self[name] if name in self._columns else np.zeros(0)
        return np.concatenate([column, np.full(len(self) - len(column), np.nan)])


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
