"""Simulate the same tasks as ordinary processes on the same devices, all at once and without leases.

Time-slicing as processor sharing: the processes that compute on a device at one moment share it evenly, at full speed
together (no context costs anything, and memory never ends: kinder than a real device).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from drlnb.sim.costs import Durations

__all__ = ["colocated_rounds_hz"]


@dataclass(slots=True)
class _Process:
    """One task: it computes its batches in the order of their arrival, then its new parameters."""

    durations: Durations
    round: int = 1
    #: Arrivals still to come, soonest last: (time, batch).
    coming: list[tuple[float, int]] = field(default_factory=list)
    #: Work that is here and not begun, in seconds.
    waiting: list[float] = field(default_factory=list)
    #: Seconds of work left of what is being computed; 0: nothing is.
    left_s: float = 0.0
    n_left: int = 0
    ends: list[float] = field(default_factory=list)

    def begin(self, t: float) -> None:
        """Begin a round: the collectors act."""
        now = self.durations.round(self.round)
        self.coming = sorted(((t + s, i) for i, s in enumerate(now.collect_s)), reverse=True)
        self.n_left = len(now.collect_s)

    def arrive(self, t: float) -> None:
        """Queue the batches that are here by now, and compute if nothing is being computed."""
        now = self.durations.round(self.round)
        while self.coming and self.coming[-1][0] <= t:
            self.waiting.append(now.stage_s[self.coming.pop()[1]])
        if not self.left_s and self.waiting:
            self.left_s = self.waiting.pop(0)

    def done(self, t: float) -> None:
        """End a piece of work; after the last one of a round begin the next round."""
        self.left_s, self.n_left = 0.0, self.n_left - 1
        now = self.durations.round(self.round)
        if self.n_left == 0:
            self.waiting.append(now.finish_s)
        elif self.n_left < 0:
            self.ends.append(t)
            self.round += 1
            self.begin(t + now.publish_s)
        self.arrive(t)


def colocated_rounds_hz(tasks: Sequence[Durations], *, n_devices: int, n_rounds: int, warm_up: float) -> float:
    """Return the rounds per second of all tasks together, dealt over the devices.

    Parameters
    ----------
    tasks
        Durations of each task.
    n_devices
        Devices, at least 1; task i computes on device i modulo their number.
    n_rounds
        Rounds until the first task of a device ends its window.
    warm_up
        Share of the window that is discarded.
    """
    total = 0.0
    for device in range(min(n_devices, len(tasks))):
        mine = [_Process(task) for task in tasks[device::n_devices]]
        _share(mine, n_rounds)
        stop = min(process.ends[-1] for process in mine)
        start = warm_up * stop
        total += sum(start < t <= stop for process in mine for t in process.ends) / (stop - start)
    return total


def _share(mine: Sequence[_Process], n_rounds: int) -> None:
    """Run the processes of one device until one has done its rounds, and every other one at least one."""
    t = 0.0
    for process in mine:
        process.begin(0.0)
    while not (any(len(process.ends) >= n_rounds for process in mine) and all(process.ends for process in mine)):
        busy = [process for process in mine if process.left_s]
        rate = 1.0 / max(1, len(busy))
        next_t = min((process.coming[-1][0] for process in mine if process.coming), default=math.inf)
        end_t = min((t + process.left_s / rate for process in busy), default=math.inf)
        step_s = min(next_t, end_t) - t
        t = min(next_t, end_t)
        for process in busy:
            process.left_s = max(0.0, process.left_s - step_s * rate)
            if process.left_s < 1e-12:
                process.done(t)
        for process in mine:
            process.arrive(t)
