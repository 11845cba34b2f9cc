"""Every lease of a run on one clock: the pool's columns as arrays, joined with what was computed under each."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drlnb.views.drawing.payload import Array
from drlnb.views.folds.fold import Fold

__all__ = ["LeaseLine", "Leases"]

Floats = NDArray[np.float64]
#: Row of the lease, start and stop of each piece of work.
Pieces = tuple[NDArray[np.int64], Floats, Floats]


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
    #: Its slot held the parameters that the round began with.
    resident: NDArray[np.bool_]
    #: Index into :attr:`reasons`.
    reason: NDArray[np.int64]
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
        self.tasks = fold.task_names()
        self.slots = tuple(fold.pool.slots)
        short = [fold.pool.short(name) for name in fold.pool.tasks]
        #: Number of a task in the pool -> its series.
        self.series = np.array([self.tasks.index(name) for name in short], dtype=np.int64)
        self.offsets = np.array([fold.offset_s(name) for name in fold.pool.streams], dtype=np.float64)

    @property
    def ended(self) -> bool:
        """Whether there were tasks, and all of them are over."""
        tasks = [task.latest for task in self.fold.tasks.values()]
        return bool(tasks) and all(attempt is not None and attempt.ended for attempt in tasks)

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
        return Leases(
            start=start, stop=np.maximum(stop, start), waited=grow["waited"], held=held, computed=grow["computed"],
            token=grow["token"].astype(np.int64), lane=grow["slot"].astype(np.int64),
            series=self.series[task] if len(task) else task, is_open=is_open,
            resident=grow["resident"] > 0,
            reason=grow["reason"].astype(np.int64), reasons=tuple(self.fold.pool.reasons),
        )  # fmt: skip

    def work(self, leases: Leases) -> dict[str, Array]:
        """Return what was computed when, cut to the lease that it was computed under; by lane, in order of time."""
        pieces = self._told(leases)
        row, first, last = (np.concatenate(column) for column in zip(pieces, self._untold(leases), strict=True))
        order = np.lexsort((first, leases.lane[row]))
        row = row[order]
        return {"start": first[order], "stop": last[order], "lane": leases.lane[row], "series": leases.series[row]}

    def _told(self, leases: Leases) -> Pieces:
        """Return what the tasks' own streams say."""
        parts = [
            (attempt.work["stop"] + self.fold.offset_s(attempt.stream), attempt.work["elapsed"], attempt.work["lease"])
            for _, task in sorted(self.fold.tasks.items())
            for attempt in task.in_order
        ]
        if not parts or not len(leases.token):
            return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
        stop, elapsed, lease = (np.concatenate(column) for column in zip(*parts, strict=True))
        with_lease = ~np.isnan(lease)
        row, stop, elapsed = lease[with_lease].astype(np.int64), stop[with_lease], elapsed[with_lease]
        first = np.maximum(stop - elapsed, leases.start[row])
        last = np.minimum(stop, leases.stop[row])
        seen = last > first
        return row[seen], first[seen], last[seen]

    def _untold(self, leases: Leases) -> Pieces:
        """Return, for holders without a stream here, the seconds that the pool was told, at the end of each lease."""
        if not self.strangers:
            return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
        series = np.array([self.tasks.index(name) for name in self.strangers], dtype=np.int64)
        untold = np.isin(leases.series, series) & ~leases.is_open & (leases.computed > 0)
        row = np.flatnonzero(untold).astype(np.int64)
        first = np.maximum(leases.stop[row] - leases.computed[row], leases.start[row])
        return row, first, leases.stop[row]

    @property
    def strangers(self) -> tuple[str, ...]:
        """Names of holders that are no tasks of this run: people's own loops, and other runs' tasks."""
        known = {*self.fold.named, *self.fold.tasks}
        return tuple(name for name in self.tasks if name not in known)

    def alive_s(self, low: float, high: float) -> float:
        """Return slot-seconds that could be lent between two points."""
        gone = sum(stop - start for start, stop, _ in self.absent(low, high))
        return max(0.0, len(self.slots) * max(0.0, high - low) - gone)

    def absent(self, low: float, high: float) -> list[tuple[float, float, int]]:
        """Return (start, stop, lane) of when a slot was not there: before it came up, and after it was lost."""
        absences = []
        for lane, name in enumerate(self.slots):
            at = low
            for up, down in sorted(self._up(name)):
                if up > at:
                    absences.append((at, min(up, high), lane))
                at = max(at, down)
            if at < high:
                absences.append((at, high, lane))
        return [absence for absence in absences if absence[1] > absence[0]]

    def _up(self, name: str) -> list[tuple[float, float]]:
        """Return when a slot was there; what a pool last knew ends with its stream if a later one knows the slot."""
        mine = [life for life in self.fold.pool.lives.values() if life.name == name]
        lives = sorted(mine, key=lambda life: self.fold.offset_s(life.stream))
        times = []
        for life, after in zip(lives, [*lives[1:], None], strict=True):
            shift = self.fold.offset_s(life.stream)
            end = math.inf if after is None else self.fold.latest(life.stream) + shift
            times += [(up + shift, end if math.isnan(down) else down + shift) for up, down in life.up]
        return times

    def n_alive(self) -> int:
        """Return how many slots there are now."""
        newest = self.fold.pool.streams[-1] if self.fold.pool.streams else ""
        lives = [life for life in self.fold.pool.lives.values() if life.stream == newest]
        return sum(bool(life.up) and math.isnan(life.up[-1][1]) for life in lives)

    def waits(self) -> dict[str, Array]:
        """Return the waits that ended."""
        grow = self.fold.pool.waits
        offset = self.offsets[grow["stream"].astype(np.int64)] if len(grow) else np.zeros(0)
        series = self.series[grow["task"].astype(np.int64)] if len(grow) else np.zeros(0, dtype=np.int64)
        return {"start": grow["start"] + offset, "stop": grow["stop"] + offset, "series": series}

    def waiting(self, now: float) -> dict[str, Array]:
        """Return the waits that go on."""
        open_ = list(self.fold.pool.waiting.values())
        start = np.array([t + self.offsets[stream] for stream, _, t in open_], dtype=np.float64)
        asking = np.array([self.series[task] for _, task, _ in open_], dtype=np.int64)
        return {"start": start, "stop": np.full(len(start), now), "series": asking}

    def pauses(self, task: str, span: tuple[float, float]) -> list[tuple[float, float]]:
        """Return (start, stop) of a task's pauses within a span; one that goes on ends with it."""
        known = self.fold.tasks.get(task)
        pauses = []
        for attempt in known.attempts.values() if known is not None else ():
            shift = self.fold.offset_s(attempt.stream)
            for since, until in attempt.pauses:
                stop = span[1] if math.isnan(until) else min(span[1], until + shift)
                pauses.append((max(span[0], since + shift), stop))
        return [pause for pause in pauses if pause[1] > pause[0]]
