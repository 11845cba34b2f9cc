"""Model the same rounds as ordinary processes, all at once on the devices and without leases.

A model, made of what the journal has measured: each task is a process that rests and computes in turn, as it did less
its waits for slots.  Processes that compute on a device at the same moment share it evenly, and together they are as
fast as one (processor sharing, which is what time-slicing comes to).  Contexts and memory cost nothing, which is kinder
than a real device; small kernels that a device could run side by side are not, which is harsher.

Very long runs are coarsened: so many pieces of one task in a row become one, with their rests.  The long-run rates of
rests and processor sharing depend on the durations by their means alone (Baskett, Chandy, Muntz and Palacios, 1975).
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drlnb.views.drawing.payload import Table
from drlnb.views.leasing.lines import LeaseLine

__all__ = ["MOST_PIECES", "Process", "ends", "process"]

Floats = NDArray[np.float64]

#: Most pieces of computing of all tasks together; so many take some 50 ms.
MOST_PIECES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One task as an ordinary process: it rests and computes in turn, and rests at its end; seconds."""

    #: Rest before each piece of computing, and the piece alone on a device; equal lengths.
    rests: tuple[float, ...]
    computes: tuple[float, ...]
    last_rest: float = 0.0
    #: Devices on which it computes at once.
    devices: tuple[int, ...] = (0,)


def ends(processes: Sequence[Process]) -> tuple[float, ...]:
    """Return when each process ends, if all begin at 0 and those that compute share their devices evenly; seconds.

    A process on several devices is as slow as on the busiest of them.

    Examples
    --------
    >>> a = Process(rests=(0.0,), computes=(2.0,), last_rest=1.0)
    >>> ends([a]), ends([a, Process(rests=(1.0,), computes=(2.0,))])
    ((3.0,), (4.0, 4.0))
    """
    ended = [0.0] * len(processes)
    at = [-1] * len(processes)  # piece that is computed or comes next, once the process has begun
    left: dict[int, float] = {}  # process -> seconds of its piece that are left, alone
    rests: list[tuple[float, int]] = []  # (end of the rest, process)

    def rest(i: int, t: float) -> None:
        at[i] += 1
        resting = processes[i]
        if at[i] < len(resting.computes):
            heapq.heappush(rests, (t + resting.rests[at[i]], i))
        else:
            ended[i] = t + resting.last_rest

    for i in range(len(processes)):
        rest(i, 0.0)
    t = 0.0
    while left or rests:
        slow = _slowness(processes, left)
        first = min(left, key=lambda i: left[i] * slow[i], default=None)
        done_t = t + left[first] * slow[first] if first is not None else math.inf
        if rests and rests[0][0] <= done_t:
            next_t, who = heapq.heappop(rests)
            _go_on(left, slow, next_t - t)
            t = next_t
            left[who] = processes[who].computes[at[who]]
        else:
            assert first is not None  # whoever has begun rests or computes
            _go_on(left, slow, done_t - t)
            t = done_t
            del left[first]
            rest(first, t)
    return tuple(ended)


def _slowness(processes: Sequence[Process], computing: dict[int, float]) -> dict[int, int]:
    """Return by how much each computing process is slower than alone: those that compute on its busiest device."""
    n: dict[int, int] = {}
    for i in computing:
        for device in processes[i].devices:
            n[device] = n.get(device, 0) + 1
    return {i: max(n[device] for device in processes[i].devices) for i in computing}


def _go_on(left: dict[int, float], slow: dict[int, int], seconds: float) -> None:
    for i in left:
        left[i] = max(0.0, left[i] - seconds / slow[i])


def process(
    line: LeaseLine,
    work: Table,
    series: int,
    span: tuple[float, float],
    *,
    alone: float,
    most: int,
) -> Process:
    """Return a task as it worked between two seconds, less its waits for slots and its pauses, on device 0.

    Parameters
    ----------
    line
        A fold's pool.
    work
        What was computed when, as :meth:`~drlnb.views.leasing.lines.LeaseLine.work` says.
    series
        Number of the task.
    span
        From its first lease to its last return or open wait.
    alone
        Seconds that it takes alone; what its pieces do not fill is rest.
    most
        Most pieces; above, pieces in a row become one.
    """
    mine = work["series"] == series
    start, stop = (np.sort(work[edge][mine]) for edge in ("start", "stop"))  # two slots' pieces may overlap
    stop = np.minimum(stop, np.append(start[1:], math.inf))
    gone = _blocked(line, series, span)
    first, last = (_alone(edge, gone) - span[0] for edge in (start, stop))
    rests = np.maximum(0.0, first - np.concatenate([[0.0], last[:-1]]))
    computes = np.maximum(0.0, last - first)
    left = max(0.0, alone - float(rests.sum() + computes.sum()))
    k = max(1, math.ceil(len(rests) / max(1, most)))
    return Process(rests=tuple(_sums(rests, k).tolist()), computes=tuple(_sums(computes, k).tolist()), last_rest=left)


def _sums(values: Floats, k: int) -> Floats:
    """Return the sums of `k` values each, the last one of what is left."""
    return np.add.reduceat(values, np.arange(0, len(values), k)) if k > 1 and len(values) else values


def _blocked(line: LeaseLine, series: int, span: tuple[float, float]) -> Floats:
    """Return when the task waited for a slot or was paused: rows of (start, stop) that do not overlap, in order."""
    blocked = [np.array(line.pauses(line.tasks[series], span), dtype=np.float64).reshape(-1, 2)]
    for waits in (line.waits(), line.waiting(span[1])):
        mine = (waits["series"] == series) & (waits["start"] >= span[0])
        blocked.append(np.stack([waits["start"][mine], waits["stop"][mine]], axis=1))
    rows = np.concatenate(blocked)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    if len(rows):
        latest = np.maximum.accumulate(rows[:, 1])
        rows[1:, 0] = np.maximum(rows[1:, 0], latest[:-1])
        rows[:, 1] = latest
        rows[:, 0] = np.minimum(rows[:, 0], rows[:, 1])
    return rows


def _alone(t: Floats, blocked: Floats) -> Floats:
    """Return seconds less what had been blocked by then."""
    if not len(blocked):
        return t
    lost = np.concatenate([[0.0], np.cumsum(blocked[:, 1] - blocked[:, 0])])
    by_edge = np.stack([lost[:-1], lost[1:]], axis=1).ravel()
    shifted: Floats = t - np.interp(t, blocked.ravel(), by_edge)
    return shifted
