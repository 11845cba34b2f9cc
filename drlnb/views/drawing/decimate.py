"""Thin out more marks than there are pixels: lines keep extremes per column, bars their total width."""

import math

import numpy as np
from numpy.typing import NDArray

from drlnb.views.drawing.payload import Floats, Table
from drlnb.views.folds.aged import fewer, packed, seconds, ticks

__all__ = ["column_s", "heights", "min_max", "thinned"]

Index = NDArray[np.int64]


def min_max(x: Floats, y: Floats, n_columns: int) -> Index:
    """Return which points of a line to draw: the least and the greatest `y` of each pixel column.

    Parameters
    ----------
    x
        Positions, ascending; shape ``(n,)``.
    y
        Values, NaN where there is none; shape ``(n,)``.
    n_columns
        Pixel columns, at least 1.

    Returns
    -------
    ndarray of int
        Ascending indices into `x`, at most 2 per column; all of them if there are not more points than that.

    Raises
    ------
    ValueError
        If `n_columns` < 1.
    """
    if n_columns < 1:
        raise ValueError(f"n_columns must be >= 1, got {n_columns}")
    n = len(x)
    if n <= 2 * n_columns:
        return np.arange(n)
    span = float(x[-1] - x[0])
    if span <= 0:
        return np.unique([int(np.nanargmin(y)), int(np.nanargmax(y))]) if np.isfinite(y).any() else np.arange(1)
    column = np.minimum(((x - x[0]) / span * n_columns).astype(np.int64), n_columns - 1)
    edges = np.flatnonzero(np.diff(column, prepend=-1))
    low = np.where(np.isnan(y), np.inf, y)
    high = np.where(np.isnan(y), -np.inf, y)
    keep = []
    for first, last in zip(edges, np.append(edges[1:], n), strict=True):
        keep += [first + int(np.argmin(low[first:last])), first + int(np.argmax(high[first:last]))]
    return np.unique(keep)


def column_s(span_s: float, n_columns: int) -> float:
    """Return a column width that fits `span_s` seconds into at most `n_columns` columns: a power of two seconds.

    A growing span changes the width seldom, and then by a factor of two: columns stay where they are.

    Examples
    --------
    >>> column_s(1000.0, 1000), column_s(1001.0, 1000)
    (1.0, 2.0)
    """
    if span_s / n_columns <= 0.0:  # also a span so short that its part of a column is nothing
        return 2.0**-10
    return float(2.0 ** math.ceil(math.log2(span_s / n_columns)))


def thinned(bars: Table, most: int) -> Table:
    """Merge bars where there are more than so many, older ones into wider columns.

    Parameters
    ----------
    bars
        ``start``, ``stop``, ``lane`` and, where bars have one, ``series``; ``computed`` is summed, others are left
        out.  Those with ``low`` and ``high`` are several already, side by side in such a column.
    most
        Most bars, at least 1 for each lane and series.

    Returns
    -------
    Table
        All of them if there are not more; else each lane's and series' seconds in each column from ``low`` to
        ``high``, side by side from ``start`` to ``stop``: their sum is as it was, and they overlap nothing.
    """
    start, stop = (bars.get(name, np.zeros(0)) for name in ("start", "stop"))
    if len(start) <= most:
        return bars
    spread = {"low": bars.get("low", start), "high": bars.get("high", stop), "held": stop - start}
    spread |= {name: bars[name] for name in ("lane", "computed") if name in bars}
    spread = {name: ticks(values) if name != "lane" else values for name, values in spread.items()}
    spread["series"] = bars.get("series", np.zeros(len(start), dtype=np.int64))
    first, last = int(np.min(spread["low"])), int(np.max(spread["high"]))
    # As if it were seen a little later: the newest columns need not be narrower than those a few pixels before.
    columns = seconds(fewer(spread, last + (last - first) // 64, most)[0])
    start, stop = packed(columns)
    names = bars.keys() & {"lane", "series", "computed"}
    return {**{name: columns[name] for name in ("low", "high", *sorted(names))}, "start": start, "stop": stop}


def heights(bars: Table) -> tuple[Floats, Floats, Floats]:
    """Return how much of a lane's height lies below each bar, how much it takes, and how much of that is computed."""
    width = bars["high"] - bars["low"]
    known = (bars["high"] - bars["stop"], bars["stop"] - bars["start"], bars.get("computed", np.zeros(len(width))))
    there = width > 0  # a wait of no length takes no place
    below, held, computed = (np.divide(s, width, out=np.zeros(len(width)), where=there) for s in known)
    return below, held, computed
