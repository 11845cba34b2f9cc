"""Put the streams' clocks on one line: every stream counts seconds from its own zero.

The pools' streams are the reference: their zeros are known from their epochs (nanoseconds since 1970, in the stream's
name).  A task's stream is placed between bounds, as two clocks are by a round trip: its master received a lease after
the pool granted it (a lower bound of what must be added to its clock), and the pool saw a request or a return after
the master sent it (an upper bound).  About the middle is used: the roundest number in the middle half, which stays the
same while later messages move the bounds a little, so that pictures which are drawn already need not move by a
microsecond each time.  The greater distance to a bound is the error.  A ``ClockRelated`` row of a stream settles it at
once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.records.ids import Fence

__all__ = ["Clock", "Clocks", "pool_epoch", "roundest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What must be added to a stream's seconds, and how well that is known."""

    offset_s: float
    #: Infinite if nothing relates this stream to a pool's.
    error_s: float


def pool_epoch(stream: str) -> int:
    """Return the epoch in a pool's stream name, in nanoseconds; 0 if there is none.

    Examples
    --------
    >>> pool_epoch("broker-e1795267302712571993"), pool_epoch("broker-e1795267302712571993-2"), pool_epoch("task-a-a1")
    (1795267302712571993, 1795267302712571993, 0)
    """
    digits = stream.rpartition("-e")[2].partition("-")[0]  # -2: a second stream of the same pool
    return int(digits) if digits.isdigit() else 0


def roundest(low: float, high: float) -> float:
    """Return the multiple of the greatest power of two between two numbers, both included.

    If `low` is not below `high`, it is their mean.  It depends on nothing but them; while they close in it changes
    only when it is no longer between them.

    Examples
    --------
    >>> roundest(0.3, 0.7), roundest(2.9, 5.1), roundest(-0.2, 7.0), roundest(1.26, 1.37)
    (0.5, 4.0, 0.0, 1.3125)
    """
    if low >= high:
        return (low + high) / 2
    if low <= 0.0 <= high:
        return 0.0
    step = 2.0 ** math.floor(math.log2(high - low))
    while math.ceil(low / (2 * step)) * 2 * step <= high:
        step *= 2
    return min(high, math.ceil(low / step) * step)


def _counts(key: Fence | str) -> bool:
    """Whether a message is asked: the first thousand, then a half, a quarter, ..., the same ones in every order."""
    digits = str(key).rpartition("/")[2].strip("#").partition("-")[0]
    number = int(digits) if digits.isdigit() else 0
    return number % (1 << max(0, number.bit_length() - 10)) == 0


@dataclass(slots=True)
class Clocks:
    """Bounds between streams, growing with the journal."""

    #: Offsets that were settled beforehand and stay as they are.
    fixed: Mapping[str, Clock] = field(default_factory=dict)
    #: (task, pool) -> least and greatest offset.
    _bounds: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _pools: dict[str, int] = field(default_factory=dict)
    #: Stream -> (pool, Clock) from ClockRelated.
    _related: dict[str, tuple[str, Clock]] = field(default_factory=dict)
    #: (kind, key, whether it was sent) -> (stream, t), of what the other side has not told yet.
    _alone: dict[tuple[str, object, bool], tuple[str, float]] = field(default_factory=dict)

    def pool(self, stream: str) -> None:
        """Add a pool's stream."""
        self._pools.setdefault(stream, pool_epoch(stream))

    def related(self, stream: str, pool: str, offset_s: float, error_s: float) -> None:
        """Keep a measured relation: the stream's seconds + `offset_s` are the pool's."""
        self._related[stream] = (pool, Clock(offset_s=offset_s, error_s=error_s))

    def sent(self, kind: str, key: Fence | str, stream: str, t: float) -> None:
        """Bound clocks by what `stream` sent at its `t`; the other side sees it later."""
        self._meet(kind, key, (stream, t), is_sent=True)

    def seen(self, kind: str, key: Fence | str, stream: str, t: float) -> None:
        """Bound clocks by what `stream` saw at its `t` that another had sent."""
        self._meet(kind, key, (stream, t), is_sent=False)

    def _meet(self, kind: str, key: Fence | str, mine: tuple[str, float], *, is_sent: bool) -> None:
        if not _counts(key):
            return
        other = self._alone.pop((kind, key, not is_sent), None)
        if other is None:
            self._alone.setdefault((kind, key, is_sent), mine)
            return
        sent, seen = (mine, other) if is_sent else (other, mine)
        pool_sent = sent[0] in self._pools
        pair = (seen[0], sent[0]) if pool_sent else (sent[0], seen[0])
        low, high = self._bounds.get(pair, (-math.inf, math.inf))
        if pool_sent:  # pool first, task later: offset >= pool - task
            self._bounds[pair] = (max(low, sent[1] - seen[1]), high)
        else:  # task first, pool later: offset <= pool - task
            self._bounds[pair] = (low, min(high, seen[1] - sent[1]))

    def all(self, streams: list[str]) -> dict[str, Clock]:
        """Return the clock of each stream; seconds of the earliest pool are the common line."""
        base = min(self._pools.values(), default=0)
        pools = {name: (epoch - base) / 1e9 if epoch else 0.0 for name, epoch in self._pools.items()}
        return {stream: self._one(stream, pools) for stream in streams}

    def _one(self, stream: str, pools: Mapping[str, float]) -> Clock:
        if stream in self.fixed:
            return self.fixed[stream]
        if stream in pools:
            return Clock(offset_s=pools[stream], error_s=0.0)
        if stream in self._related:
            pool, clock = self._related[stream]
            # A run's own copy of a pool's stream may have a number behind the epoch; the clock is the same.
            zero = pools.get(pool, next((z for name, z in pools.items() if pool_epoch(name) == pool_epoch(pool)), 0.0))
            return Clock(offset_s=zero + clock.offset_s, error_s=clock.error_s)
        bounds = [(b, pools[pool]) for (task, pool), b in self._bounds.items() if task == stream and pool in pools]
        low = max((least + zero for (least, _), zero in bounds), default=-math.inf)
        high = min((most + zero for (_, most), zero in bounds), default=math.inf)
        if math.isinf(high - low):  # one of them, or none, is known
            return Clock(offset_s=next(filter(math.isfinite, (low, high)), 0.0), error_s=math.inf)
        offset_s = roundest(low + (high - low) / 4, high - (high - low) / 4)
        return Clock(offset_s=offset_s, error_s=max(abs(high - offset_s), abs(offset_s - low)))
