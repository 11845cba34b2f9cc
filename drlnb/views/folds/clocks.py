"""Put the streams' clocks on one line: every stream counts seconds from its own zero.

The pools' streams are the reference: their zeros are known from their epochs (nanoseconds since 1970, in the stream's
name).  How a task's clock stands to a pool's its master has measured (``ClockRelated``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Clock", "Clocks", "pool_epoch", "pool_order"]


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


def pool_order(stream: str) -> tuple[int, int]:
    """Return what sorts the pools' streams of a run by when they began: the epoch, and the number behind it.

    Examples
    --------
    >>> pool_order("broker-e17-10") > pool_order("broker-e17-2") > pool_order("broker-e17")
    True
    """
    behind = stream.rpartition("-e")[2].partition("-")[2]
    return pool_epoch(stream), int(behind) if behind.isdigit() else 1


@dataclass(slots=True)
class Clocks:
    """What the streams of a journal say of their clocks."""

    _pools: dict[str, int] = field(default_factory=dict)
    #: Stream -> (pool, Clock) from ClockRelated.
    _related: dict[str, tuple[str, Clock]] = field(default_factory=dict)

    def pool(self, stream: str) -> None:
        """Add a pool's stream."""
        self._pools.setdefault(stream, pool_epoch(stream))

    def related(self, stream: str, pool: str, offset_s: float, error_s: float) -> None:
        """Keep a measured relation: the stream's seconds + `offset_s` are the pool's."""
        self._related[stream] = (pool, Clock(offset_s=offset_s, error_s=error_s))

    def all(self, streams: list[str]) -> dict[str, Clock]:
        """Return the clock of each stream; seconds of the earliest pool are the common line."""
        base = min(self._pools.values(), default=0)
        pools = {name: (epoch - base) / 1e9 if epoch else 0.0 for name, epoch in self._pools.items()}
        return {stream: self._one(stream, pools) for stream in streams}

    def _one(self, stream: str, pools: Mapping[str, float]) -> Clock:
        if stream in pools:
            return Clock(offset_s=pools[stream], error_s=0.0)
        if stream not in self._related:
            return Clock(offset_s=0.0, error_s=math.inf)
        pool, clock = self._related[stream]
        # A run's own copy of a pool's stream may have a number behind the epoch; the clock is the same.
        zero = pools.get(pool, next((z for name, z in pools.items() if pool_epoch(name) == pool_epoch(pool)), 0.0))
        return Clock(offset_s=zero + clock.offset_s, error_s=clock.error_s)
