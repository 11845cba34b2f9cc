"""Work out how the same rounds would have gone without leases: exclusive allocation and co-location.

Co-location is a model, made of what the journal has measured: each task is a process that rests and computes in turn,
as it did less its waits for slots.  Processes that compute on a device at the same moment share it evenly, and together
they are as fast as one (processor sharing, which is what time-slicing comes to).  Contexts and memory cost nothing,
which is kinder than a real device; small kernels that a device could run side by side are not, which is harsher.

Very long runs are coarsened: so many pieces of one task in a row become one, with their rests.  The long-run rates of
rests and processor sharing depend on the durations by their means alone (Baskett, Chandy, Muntz and Palacios, 1975).
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from drlnb.views.drawing.payload import Floats
from drlnb.views.leasing.lines import LeaseLine, Sharing, n_devices

__all__ = ["Ghosts", "Process", "ends", "ghosts"]

#: Most pieces of computing of all tasks together; so many take some 50 ms.
MOST_PIECES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ghosts:
    """What the same rounds come to without leases; bars are (lane, series, start, stop), in seconds."""

    #: A lane per device, one task after the other.
    exclusive: tuple[tuple[int, int, float, float], ...] = ()
    #: A lane per task, all at once.
    colocated: tuple[tuple[int, int, float, float], ...] = ()
    #: Device-seconds from the start until the last process of each device ends.
    occupied: float = 0.0

    @property
    def n_exclusive(self) -> int:
        """Lanes of exclusive allocation."""
        return len({lane for lane, *_ in self.exclusive})

    def last(self, start: float) -> tuple[float, float]:
        """Return when the last one of each way ends."""
        ends = [max((bar[3] for bar in bars), default=start) for bars in (self.exclusive, self.colocated)]
        return ends[0], ends[1]


def ghosts(line: LeaseLine, parts: tuple[Sharing, ...], start: float) -> Ghosts:
    """Return both ways to do the tasks' parts without leases, on as many devices; all begin at the first lease."""
    if not parts:
        return Ghosts()
    n = max(1, n_devices(line))
    free = [start] * n
    exclusive = []
    for part in parts:
        rows = sorted(range(n), key=lambda row: (free[row], row))[: max(1, min(part.n_slots, n))]
        begin = max(free[row] for row in rows)
        for row in rows:
            exclusive.append((row, part.series, begin, begin + part.alone))
            free[row] = begin + part.alone
    most = max(1, MOST_PIECES // len(parts))
    processes, at = [], 0
    for part in parts:
        devices = tuple((at + k) % n for k in range(max(1, min(part.n_slots, n))))
        at += len(devices)
        processes.append(replace(_process(line, part, most), devices=devices))
    stops = ends(processes)
    last = [
        max((end for process, end in zip(processes, stops, strict=True) if k in process.devices), default=0.0)
        for k in range(n)
    ]
    return Ghosts(
        exclusive=tuple(exclusive),
        colocated=tuple(
            (k, part.series, start, start + end) for k, (part, end) in enumerate(zip(parts, stops, strict=True))
        ),
        occupied=sum(last),
    )


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


def _process(line: LeaseLine, part: Sharing, most: int) -> Process:
    """Return a task as it worked from its first lease on, less its waits and pauses, on device 0.

    What its pieces do not fill of the seconds that it takes alone is rest; above so many pieces, some in a row are one.
    """
    mine = line.work["series"] == part.series
    start, stop = (np.sort(line.work[edge][mine]) for edge in ("start", "stop"))  # two slots' pieces may overlap
    stop = np.minimum(stop, np.append(start[1:], math.inf))
    gone = _blocked(line, part.series, part.span)
    first, last = (_alone(edge, gone) - part.span[0] for edge in (start, stop))
    rests = np.maximum(0.0, first - np.concatenate([[0.0], last[:-1]]))
    computes = np.maximum(0.0, last - first)
    left = max(0.0, part.alone - float(rests.sum() + computes.sum()))
    k = max(1, math.ceil(len(rests) / max(1, most)))
    return Process(rests=tuple(_sums(rests, k).tolist()), computes=tuple(_sums(computes, k).tolist()), last_rest=left)


def _sums(values: Floats, k: int) -> Floats:
    """Return the sums of `k` values each, the last one of what is left."""
    return np.add.reduceat(values, np.arange(0, len(values), k)) if k > 1 and len(values) else values


def _blocked(line: LeaseLine, series: int, span: tuple[float, float]) -> Floats:
    """Return when the task waited for a slot or was paused: rows of (start, stop) that do not overlap, in order."""
    blocked = [np.array(line.pauses(line.tasks[series], span), dtype=np.float64).reshape(-1, 2)]
    for waits in (line.waits, line.waiting):
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
