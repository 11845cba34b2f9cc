"""Every lease of a run on one clock: the pool's columns as arrays, joined with what was computed under each."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.views.clocks import pool_epoch
from drlnb.views.fold import Fold

__all__ = ["LeaseLine", "Leases"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """Every lease as arrays on the common line, an open one ending now; shape ``(n,)``."""

    start: Floats
    stop: Floats
    waited: Floats
    held: Floats
    computed: Floats
    token: NDArray[np.int64]
    lane: NDArray[np.int64]
    series: NDArray[np.int64]
    is_open: NDArray[np.bool_]
    epoch: NDArray[np.float64]
    reasons: tuple[str, ...]


class LeaseLine:
    """A fold's pool, with every time in seconds since the run's first event.

    Parameters
    ----------
    fold
        A run's columns.
    """

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.clocks = fold.clock_of()
        self.zero = fold.zero_s
        self.tasks = fold.task_names()
        self.slots = tuple(fold.pool.slots)
        short = [fold.pool.short(name) for name in fold.pool.tasks]
        #: Number of a task in the pool -> its series.
        self.series = np.array([self.tasks.index(name) for name in short], dtype=np.int64)
        self.offsets = np.array([self.offset(name) for name in fold.pool.streams], dtype=np.float64)

    @property
    def ended(self) -> bool:
        """Whether there were tasks, and all of them are over."""
        tasks = [task.latest for task in self.fold.tasks.values()]
        return bool(tasks) and all(one is not None and one.ended for one in tasks)

    def offset(self, stream: str) -> float:
        """Return what turns a stream's seconds into seconds since the run's first event."""
        clock = self.clocks.get(stream)
        return (clock.offset_s if clock else 0.0) - self.zero

    def leases(self, now: float) -> Leases:
        """Return all leases; one that goes on is drawn until `now`."""
        grow = self.fold.pool.leases
        stream = grow["stream"].astype(np.int64)
        offset = self.offsets[stream] if len(stream) else np.zeros(0)
        start, ended = grow["granted"] + offset, grow["ended"] + offset
        is_open = np.isnan(ended)
        stop = np.where(is_open, max(now, 0.0), ended)
        held = np.where(np.isnan(grow["held"]), stop - start, grow["held"])
        task = grow["task"].astype(np.int64)
        epochs = np.array([float(pool_epoch(name)) for name in self.fold.pool.streams], dtype=np.float64)
        return Leases(
            start=start, stop=np.maximum(stop, start), waited=grow["waited"], held=held, computed=grow["computed"],
            token=grow["token"].astype(np.int64), lane=grow["slot"].astype(np.int64),
            series=self.series[task] if len(task) else task, is_open=is_open,
            epoch=epochs[stream] if len(stream) else np.zeros(0), reasons=tuple(self.fold.pool.reasons),
        )  # fmt: skip

    def work(self, leases: Leases) -> dict[str, NDArray[Any]]:
        """Return what was computed when, cut to the lease that it was computed under."""
        parts = [
            (one.work["stop"] + self.offset(one.stream), one.work["elapsed"], one.work["token"], one.work["epoch"])
            for _, task in sorted(self.fold.tasks.items())
            for _, one in sorted(task.attempts.items())
        ]
        if not parts or not len(leases.token):
            return {name: np.zeros(0) for name in ("start", "stop", "lane", "series")}
        stop, elapsed, token, epoch = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((leases.token, leases.epoch))
        keys, wanted = _keys(leases.epoch, leases.token, epoch, token)
        at = np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)
        row = order[at]
        found = keys[row] == wanted
        row, stop, elapsed = row[found], stop[found], elapsed[found]
        first = np.maximum(stop - elapsed, leases.start[row])
        last = np.minimum(stop, leases.stop[row])
        seen = last > first
        row, first, last = row[seen], first[seen], last[seen]
        order = np.lexsort((first, leases.lane[row]))
        row = row[order]
        return {"start": first[order], "stop": last[order], "lane": leases.lane[row], "series": leases.series[row]}

    def alive_s(self, low: float, high: float) -> float:
        """Return slot-seconds that could be lent between two points."""
        total = 0.0
        for life in self.fold.pool.lives.values():
            shift = self.offset(life.stream)
            for up, down in life.up:
                total += max(0.0, min(high, high if math.isnan(down) else down + shift) - max(low, up + shift))
        return total

    def n_alive(self) -> int:
        """Return how many slots there are now."""
        newest = self.fold.pool.streams[-1] if self.fold.pool.streams else ""
        lives = [life for life in self.fold.pool.lives.values() if life.stream == newest]
        return sum(bool(life.up) and math.isnan(life.up[-1][1]) for life in lives)

    def waits(self, now: float) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """Return the waits that ended, and those that go on."""
        grow = self.fold.pool.waits
        offset = self.offsets[grow["stream"].astype(np.int64)] if len(grow) else np.zeros(0)
        series = self.series[grow["task"].astype(np.int64)] if len(grow) else np.zeros(0, dtype=np.int64)
        done = {"start": grow["start"] + offset, "stop": grow["stop"] + offset, "series": series}
        open_ = list(self.fold.pool.waiting.values())
        start = np.array([t + self.offsets[stream] for stream, _, t in open_], dtype=np.float64)
        asking = np.array([self.series[task] for _, task, _ in open_], dtype=np.int64)
        going = {"start": start, "stop": np.full(len(start), now), "series": asking}
        return done, going


def _keys(epoch_a: Floats, token_a: NDArray[Any], epoch_b: Floats, token_b: Floats) -> tuple[Floats, Floats]:
    """Return one number per fence for two lists of fences: equal fences have equal numbers.

    Epochs in nanoseconds lose their last digits as floats; those of one run are hours or at least milliseconds apart.
    """
    epochs, index = np.unique(np.concatenate([epoch_a, epoch_b]), return_inverse=True)
    del epochs
    both = index.astype(np.float64) * 2.0**40 + np.concatenate([token_a, token_b]).astype(np.float64)
    return both[: len(epoch_a)], both[len(epoch_a) :]
