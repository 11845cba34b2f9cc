"""Thin out more marks than there are pixels: lines keep extremes per column, bars their total width."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drlnb.views.drawing.payload import Array, Floats, Table

__all__ = ["Merged", "column_s", "merge_bars", "merge_table", "min_max"]

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Bars of one lane after merging; all arrays have shape ``(k,)``."""

    #: Seconds.
    start: Floats
    stop: Floats
    series: Index
    #: Bars that are in it.
    n: Index
    #: The one bar of the input that it is, -1 if it is several.
    index: Index


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


def merge_bars(start: Floats, stop: Floats, series: Index, column_s: float) -> Merged:
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
    Merged
        Bars in order of their start; the sum of widths of each series is that of the input.

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
    breaks = ~narrow[1:] | ~narrow[:-1] | (column[1:] != column[:-1])
    first = np.flatnonzero(np.concatenate([[True], breaks])[: len(start)])
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(start))))
    if not len(start):
        return Merged(start=start, stop=stop, series=series, n=first, index=first)
    return _packed(start, stop, series, group)


def _packed(start: Floats, stop: Floats, series: Index, group: Index) -> Merged:
    """Make one bar per group and series, packed side by side from where the group begins."""
    order = np.lexsort((series, group))
    apart = (np.diff(group[order]) != 0) | (np.diff(series[order]) != 0)
    heads = np.flatnonzero(np.concatenate([[True], apart]))
    rank = np.argsort(order[heads])
    index = order[heads][rank]
    n = np.diff(np.append(heads, len(start)))[rank]
    width = np.add.reduceat((stop - start)[order], heads)[rank]
    before = np.cumsum(width) - width
    opens = np.concatenate([[True], np.diff(group[index]) != 0])
    base = np.maximum.accumulate(np.where(opens, before, 0.0))
    begin = start[np.maximum.accumulate(np.where(opens, index, 0))] + (before - base)
    alone = np.bincount(group)[group[index]] == 1
    return Merged(
        start=begin,
        stop=np.where(alone, stop[index], begin + width),
        series=series[index].astype(np.int64),
        n=n.astype(np.int64),
        index=np.where(n == 1, index, -1).astype(np.int64),
    )


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


def merge_table(columns: Table, column_s: float) -> dict[str, Array]:
    """Merge the narrow bars of a whole drawn table, lane by lane.

    Parameters
    ----------
    columns
        ``start``, ``stop``, ``lane`` and, where bars have one, ``series``; others are left out.
    column_s
        Seconds per pixel column, above 0.
    """
    whole = {"series": np.zeros(len(columns["start"]), dtype=np.int64), **columns}
    names = ("start", "stop", "series")
    parts: list[Array] = [np.zeros((4, 0))]
    for lane in np.unique(whole["lane"]).tolist():
        mine = np.flatnonzero(whole["lane"] == lane)
        mine = mine[np.argsort(whole["start"][mine], kind="stable")]
        merged = merge_bars(whole["start"][mine], whole["stop"][mine], whole["series"][mine], column_s)
        parts.append(np.stack([*(getattr(merged, name) for name in names), np.full(len(merged.n), lane)]))
    table = dict(zip((*names, "lane"), np.concatenate(parts, axis=1), strict=True))
    return {name: values for name, values in table.items() if name in columns}
