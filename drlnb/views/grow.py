"""How are columns kept that grow row by row and are read as arrays?  A plain list of numbers per column."""

from array import array
from collections.abc import Sequence

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

    def fill(self, name: str, value: float) -> None:
        """Bring a column to the common length, adding it if it is new: rows that lack it get NaN."""
        column = self._columns.setdefault(name, array("d"))
        n = len(self)
        while len(column) < n - 1:
            column.append(float("nan"))
        if len(column) < n:
            column.append(value)

    def padded(self, name: str) -> NDArray[np.float64]:
        """Return a column that may be missing or short, filled with NaN."""
        column: Sequence[float] = self._columns.get(name, array("d"))
        full = np.full(len(self), np.nan)
        full[: len(column)] = column
        return full
