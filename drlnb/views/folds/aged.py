"""Keep old time as shares of pixel columns that are the wider the older they are.

A column is a power of two of seconds wide and begins at a multiple of its width.  It is as wide as its age allows,
counted from its end: however long a run is, the newest part of it is known in the finest detail, and of each doubling
of age about as many columns are kept.

Time is counted in whole ticks of a little less than a microsecond: however often columns are merged, none is lost or
made.  What is known of a lane begins and ends where its rows do, not at the edges of columns: what comes after it may
be known in more detail, and stands beside it, not above it.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drlnb.views.folds.grow import Floats

__all__ = ["TICK_S", "Aged", "Ints", "Spread", "aged", "fewer", "packed", "seconds", "ticks"]

#: Seconds of a tick: a power of two, so that ticks and seconds are the same to the last bit.
TICK_S = 2.0**-20


#: Whole numbers in a row.
Ints = NDArray[np.int64]
#: Columns ``low``, ``high`` (ticks), ``lane``, ``series`` and ``held`` (ticks of it); some have ``computed`` (ticks),
#: ``waited`` (ticks, the longest) and ``count``.
Spread = Mapping[str, Ints]
_NAMES = ("low", "high", "lane", "series", "held", "computed", "waited", "count")
#: Columns of a spread that are ticks.
_TIMES = frozenset({"low", "high", "held", "computed", "waited"})

#: Of all that is cut at once no column is narrower than this part.
_CUTS = 2**16
#: Age of a column / its width where there are few; it is so much less where there are too many.
_FINEST, _COARSER = 256.0, 0.75
#: Later than any tick.
_FAR = np.iinfo(np.int64).max
#: Most rows that a stream's old time is kept in.
_MOST = 32_768


def ticks(seconds: ArrayLike) -> Ints:
    """Return seconds as whole ticks."""
    return np.rint(np.divide(seconds, TICK_S)).astype(np.int64)


def seconds(spread: Spread) -> dict[str, Floats | Ints]:
    """Return a spread with seconds in place of ticks."""
    return {
        name: np.multiply(values, TICK_S, dtype=np.float64) if name in _TIMES else values
        for name, values in spread.items()
    }


def aged(spread: Spread, end: int, finest: float) -> Spread:
    """Merge rows into columns.

    Parameters
    ----------
    spread
        In any order; what is held and computed counts as spread evenly from low to high.
    end
        The tick from which age is counted; rows end before it, or soon after.
    finest
        Least age of a column / its width, at least 1; dimensionless.

    Returns
    -------
    Spread
        Ordered by ``low``: a row per column, lane and series; ticks and counts add up to what they were.  The
        first and the last column of a lane are cut where its rows begin and end.
    """
    low, high = spread["low"], spread["high"]
    if not len(low):
        return spread
    of, start, width = _cells(low, high, end, finest)
    length = np.maximum(1, high - low)[of]
    upto = np.maximum(start, low[of]) - low[of], np.minimum(start + width, high[of]) - low[of]
    first, last = (
        np.where(high[of] > low[of], edge / length, whole) for edge, whole in zip(upto, (0.0, 1.0), strict=True)
    )
    lane, series = spread["lane"][of], spread["series"][of]
    order = np.lexsort((series, lane, start))
    apart = np.any([np.diff(column[order]) != 0 for column in (start, lane, series)], axis=0)
    heads = np.flatnonzero(np.append(True, apart))
    begin, made = start[order][heads], {"lane": lane[order][heads], "series": series[order][heads]}
    lanes, at = np.unique(spread["lane"], return_inverse=True)
    edges = np.full((2, len(lanes)), [[_FAR], [-_FAR]])
    np.minimum.at(edges[0], at, low)
    np.maximum.at(edges[1], at, high)
    lows, highs = edges[:, np.searchsorted(lanes, made["lane"])]
    made |= {"low": np.maximum(begin, lows), "high": np.minimum(begin + width[order][heads], highs)}
    for name in spread.keys() - made.keys():
        values = spread[name][of]
        if name == "count":
            values = values * (start <= low[of])
        elif name != "waited":  # what of it lies before a column's end, less what lies before its begin
            values = np.rint(values * last).astype(np.int64) - np.rint(values * first).astype(np.int64)
        made[name] = (np.maximum if name == "waited" else np.add).reduceat(values[order], heads)
    return made


def _cells(low: Ints, high: Ints, end: int, finest: float) -> tuple[Ints, Ints, Ints]:
    """Return row, begin and width of each column that a row lies in: the widest that the column's age allows."""
    newest, span = int(np.max(high)), int(np.max(high) - np.min(low))
    least = _power(np.array([max(1.0, (end - newest) / finest, span / _CUTS)]))[0]
    width = np.maximum(least, _power(np.maximum(1.0, (end - low) / finest)))
    n = np.maximum(1, -(-high // width) - low // width)
    of = np.repeat(np.arange(len(low)), n)
    k = np.arange(len(of)) - np.repeat(np.cumsum(n) - n, n)
    width = width[of]
    start = (low[of] // width + k) * width
    while (young := (width > least) & (end - start - width < width * finest)).any():
        half = width[young] // 2
        of, start, width = (
            np.concatenate([column[~young], twice])
            for column, twice in (
                (of, np.tile(of[young], 2)),
                (start, np.concatenate([start[young], start[young] + half])),
                (width, np.tile(half, 2)),
            )
        )
        inside = (start < np.maximum(high, low + 1)[of]) & (start + width > low[of])
        of, start, width = of[inside], start[inside], width[inside]
    return of, start, width


def _power(values: Floats) -> Ints:
    """Return the greatest powers of two that are not above some numbers, which are at least 1."""
    powers: Ints = 2 ** np.floor(np.log2(values)).astype(np.int64)
    return powers


def fewer(spread: Spread, end: int, most: int, finest: float = _FINEST) -> tuple[Spread, float]:
    """Merge rows into columns, as wide as needed for at most so many of them; return `finest`, too."""
    spread = aged(spread, end, finest)
    while len(spread["low"]) > most and finest > 1:
        # Two steps at once make a column at most twice as wide: half of the rows are left, or more.
        n_halves = ((len(spread["low"]) - 1) // max(1, most)).bit_length() - 1
        finest = max(1.0, finest * _COARSER ** max(1, 2 * n_halves))
        spread = aged(spread, end, finest)
    return spread, finest


def packed(spread: Mapping[str, Floats | Ints]) -> tuple[Floats, Floats]:
    """Return start and stop of what each row holds, side by side at the end of its column."""
    order = np.lexsort((spread["series"], spread["high"], spread["lane"]))[::-1]
    high, lane, held = (spread[name][order] for name in ("high", "lane", "held"))
    before = np.cumsum(held) - held
    opens = np.append(True, (np.diff(high) != 0) | (np.diff(lane) != 0))[: len(held)]
    stop = np.empty(len(held))
    stop[order] = high - (before - np.maximum.accumulate(np.where(opens, before, 0)))
    return stop - spread["held"], stop


class Aged:
    """The old time of one stream, bounded: growing with what it forgets."""

    def __init__(self) -> None:
        self.spread: Spread = dict.fromkeys(_NAMES, np.zeros(0, dtype=np.int64))
        self._finest = _FINEST

    def add(self, spread: Spread, end: int) -> None:
        """Add what is forgotten one by one, as of a tick of the stream."""
        both = {name: np.concatenate([self.spread[name], spread[name]]) for name in _NAMES}
        self.spread, self._finest = fewer(both, end, _MOST, self._finest)
