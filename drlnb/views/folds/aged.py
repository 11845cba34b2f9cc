"""Keep old time as shares of pixel columns that are the wider the older they are.

A column is a power of two of seconds wide and begins at a multiple of its width.  Two become one as soon as their age,
counted from their end, is so many times their common width: however long a run is, the newest part of it is known in
the finest detail, and of each doubling of age about as many columns are kept.
"""

from collections.abc import Mapping

import numpy as np

from drlnb.views.folds.grow import Floats

__all__ = ["Aged", "Spread", "aged", "fewer", "packed"]

#: Columns ``low``, ``high`` (seconds), ``lane``, ``series`` and ``held`` (seconds of it); some have ``computed``
#: (seconds), ``waited`` (seconds, the longest) and ``count``.
Spread = Mapping[str, Floats]
_NAMES = ("low", "high", "lane", "series", "held", "computed", "waited", "count")

#: No column is narrower, in seconds; and one row is cut into no more columns than this, or twice as many.
_LEAST_S, _CUTS = 2.0**-20, 1024
#: Age of a column / its width where there are few; it is so much less where there are too many.
_FINEST, _COARSER = 256.0, 0.75
#: Most rows that a stream's old time is kept in.
_MOST = 32_768


def aged(spread: Spread, end: float, finest: float) -> Spread:
    """Merge spread seconds into columns.

    Parameters
    ----------
    spread
        In any order; seconds held and computed count as spread evenly from low to high.
    end
        The second from which age is counted; columns end before it, or soon after.
    finest
        Least age of a column that is made of two / its width, at least 1.

    Returns
    -------
    Spread
        Ordered by ``low``: a row per column, lane and series; seconds and counts add up to what they were.
    """
    low, high = spread["low"], spread["high"]
    if not len(low):
        return spread
    length = high - low
    fine = np.maximum(np.maximum(length / _CUTS, _LEAST_S), (end - high) / finest)
    width = 2.0 ** (np.floor(np.log2(fine)) - 1)
    n = np.maximum(1, np.ceil(high / width) - np.floor(low / width)).astype(np.int64)
    of = np.repeat(np.arange(len(low)), n)
    k = np.arange(len(of)) - np.repeat(np.cumsum(n) - n, n)
    width = width[of]
    start = (np.floor(low[of] / width) + k) * width
    inside = np.minimum(start + width, high[of]) - np.maximum(start, low[of])
    part = np.divide(inside, length[of], out=np.ones(len(of)), where=length[of] > 0)
    older = np.ones(1, dtype=bool)
    while older.any():
        parent = np.floor(start / (2 * width)) * 2 * width
        older = end - parent - 2 * width >= 2 * width * finest
        start, width = np.where(older, parent, start), np.where(older, 2 * width, width)
    lane, series = spread["lane"][of], spread["series"][of]
    order = np.lexsort((series, lane, start))
    apart = np.any([np.diff(column[order]) != 0 for column in (start, lane, series)], axis=0)
    heads = np.flatnonzero(np.append(True, apart))
    begin = start[order][heads]
    made = {
        "low": begin, "high": begin + np.maximum.reduceat(width[order], heads),
        "lane": lane[order][heads], "series": series[order][heads],
    }  # fmt: skip
    for name in spread.keys() - made.keys():
        values = spread[name][of] * {"count": k == 0, "waited": 1}.get(name, part)
        made[name] = (np.maximum if name == "waited" else np.add).reduceat(values[order], heads)
    return made


def fewer(spread: Spread, end: float, most: int, finest: float = _FINEST) -> tuple[Spread, float]:
    """Merge spread seconds into columns, as wide as needed for at most so many rows; return `finest`, too."""
    spread = aged(spread, end, finest)
    while len(spread["low"]) > most and finest > 1:
        finest = max(1.0, finest * _COARSER)
        spread = aged(spread, end, finest)
    return spread, finest


def packed(spread: Spread) -> tuple[Floats, Floats]:
    """Return start and stop of each row's held seconds, side by side at the end of its column."""
    order = np.lexsort((spread["series"], spread["high"], spread["lane"]))[::-1]
    high, lane, held = (spread[name][order] for name in ("high", "lane", "held"))
    before = np.cumsum(held) - held
    opens = np.append(True, (np.diff(high) != 0) | (np.diff(lane) != 0))[: len(held)]
    stop = np.empty(len(held))
    stop[order] = high - (before - np.maximum.accumulate(np.where(opens, before, 0.0)))
    return stop - spread["held"], stop


class Aged:
    """The old time of one stream, bounded: growing with what it forgets."""

    def __init__(self) -> None:
        self.spread: Spread = dict.fromkeys(_NAMES, np.zeros(0))
        self._finest = _FINEST

    def add(self, spread: Spread, end: float) -> None:
        """Add what is forgotten one by one, as of a second of the stream."""
        both = {name: np.concatenate([self.spread[name], spread[name]]) for name in _NAMES}
        self.spread, self._finest = fewer(both, end, _MOST, self._finest)
