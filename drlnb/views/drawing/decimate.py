"""Thin out more marks than there are pixels: lines keep extremes per column, bars their total width."""

import math

import numpy as np
from numpy.typing import NDArray

from drlnb.views.drawing.payload import Floats, Table

__all__ = ["column_s", "merge_bars", "merge_table", "min_max"]

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


def merge_bars(start: Floats, stop: Floats, series: Index, column_s: float) -> Table:
    """Merge the bars of one lane that are narrower than a pixel column, keeping the width of each series.

    Columns begin at whole multiples of `column_s`, so appending bars changes no earlier column.  The narrow bars that
    begin in one column become at most one per series, packed side by side from where the first of them begins: their
    widths are shares of the column, and they still overlap nothing.

    Parameters
    ----------
    start, stop
        Seconds, ascending, bars apart from each other; shape ``(n,)``.
    series
        Series of each bar; shape ``(n,)``.
    column_s
        Seconds per pixel column, above 0.

    Returns
    -------
    Table
        ``start``, ``stop`` and ``series``, in order of their start, the sum of widths of each series as it was;
        ``count`` of the bars that are in each, and ``index`` of the one bar that it is, -1 if it is several.

    Raises
    ------
    ValueError
        If `column_s` is not above 0.
    """
    if not column_s > 0:
        raise ValueError(f"column_s must be > 0, got {column_s}")
    column = np.floor(start / column_s).astype(np.int64)
    narrow = (stop - start) < column_s
    # One group per wide bar, one per run of narrow bars that begin in the same column.
    apart = ~narrow[1:] | ~narrow[:-1] | (column[1:] != column[:-1])
    return _packed(start, stop, series, np.cumsum(np.append(0, apart)[: len(start)]))


def _packed(start: Floats, stop: Floats, series: Index, group: Index) -> Table:
    """Make one bar per group and series, packed side by side from where the group begins."""
    order = np.lexsort((series, group))
    apart = (np.diff(group[order]) != 0) | (np.diff(series[order]) != 0)
    heads = np.flatnonzero(np.append(True, apart)[: len(start)])
    rank = np.argsort(order[heads])
    index = order[heads][rank]
    n = np.diff(np.append(heads, len(start)))[rank]
    width = np.add.reduceat((stop - start)[order], heads)[rank] if len(start) else start
    before = np.cumsum(width) - width
    opens = np.append(True, np.diff(group[index]) != 0)[: len(index)]
    base = np.maximum.accumulate(np.where(opens, before, 0.0))
    begin = start[np.maximum.accumulate(np.where(opens, index, 0))] + (before - base)
    alone = np.bincount(group)[group[index]] == 1
    return {
        "start": begin, "stop": np.where(alone, stop[index], begin + width), "series": series[index],
        "count": n, "index": np.where(n == 1, index, -1),
    }  # fmt: skip


def column_s(span_s: float, n_columns: int) -> float:
    """Return a column width that fits `span_s` seconds into at most `n_columns` columns: a power of two seconds.

    A growing span changes the width seldom, and then by a factor of two: columns stay where they are.

    Examples
    --------
    >>> column_s(1000.0, 1000), column_s(1001.0, 1000)
    (1.0, 2.0)
    """
    if span_s <= 0:
        return 2.0**-10
    return float(2.0 ** math.ceil(math.log2(span_s / n_columns)))


def merge_table(columns: Table, column_s: float) -> Table:
    """Merge the narrow bars of a whole drawn table, lane by lane.

    Parameters
    ----------
    columns
        ``start``, ``stop``, ``lane`` and, where bars have one, ``series``; others are left out.
    column_s
        Seconds per pixel column, above 0.

    Returns
    -------
    Table
        As :func:`merge_bars` gives it, and ``lane``.
    """
    series = columns.get("series", np.zeros(len(columns["start"]), dtype=np.int64))
    parts: list[Table] = []
    lanes = np.unique(columns["lane"])
    for lane in lanes if len(lanes) else (0,):
        mine = np.flatnonzero(columns["lane"] == lane)
        mine = mine[np.argsort(columns["start"][mine], kind="stable")]
        merged = merge_bars(columns["start"][mine], columns["stop"][mine], series[mine], column_s)
        index = np.where(merged["index"] < 0, -1, mine[merged["index"]])
        parts.append({**merged, "index": index, "lane": np.full(len(index), lane)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
