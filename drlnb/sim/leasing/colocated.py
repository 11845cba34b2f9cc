"""Simulate the same tasks as ordinary processes on the same devices, all at once and without leases.

Time-slicing as processor sharing: the processes that compute on a device at one moment share it evenly, at full speed
together (no context costs anything, and memory never ends: kinder than a real device).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from drlnb.sim.costs import Workload

__all__ = ["colocated_makespan_s", "colocated_rounds_hz"]


@dataclass(slots=True)
class _Process:
    """One task: it computes its batches in the order of their arrival, then its new parameters."""

    durations: Workload
    #: Rounds after which it ends; infinite: never.
    n_rounds: float = math.inf
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
            if len(self.ends) >= self.n_rounds:
                return
            self.round += 1
            self.begin(t + now.publish_s)
        self.arrive(t)


def colocated_rounds_hz(
    tasks: Sequence[Workload], *, n_devices: int, n_rounds: int, warm_up: float, kappa: float = 1.0
) -> float:
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
    kappa
        Processes that a device runs at once without slowing down any of them, at least 1; 1 is time-slicing.
    """
    total = 0.0
    for device in range(n_devices):
        mine = [_Process(task) for task in tasks[device::n_devices]]
        if not mine:
            continue
        _share(mine, partial(_has_window, mine, n_rounds), kappa=kappa)
        stop = min(process.ends[-1] for process in mine)
        start = warm_up * stop
        total += sum(start < t <= stop for process in mine for t in process.ends) / (stop - start)
    return total


def colocated_makespan_s(tasks: Sequence[Workload], *, n_devices: int, n_rounds: int, kappa: float = 1.0) -> float:
    """Return when the last of some tasks has computed its last round, in seconds; all begin together.

    Parameters
    ----------
    tasks
        Durations of each task, at least one.
    n_devices
        Devices, at least 1; task i computes on device i modulo their number.
    n_rounds
        Rounds of each task, at least 1.
    kappa
        As of :func:`colocated_rounds_hz`.
    """
    last_s = 0.0
    for device in range(min(n_devices, len(tasks))):
        mine = [_Process(task, n_rounds) for task in tasks[device::n_devices]]
        _share(mine, partial(_have_ended, mine, n_rounds), kappa=kappa)
        last_s = max(last_s, *(process.ends[-1] for process in mine))
    return last_s


def _has_window(mine: Sequence[_Process], n_rounds: int) -> bool:
    """Whether one process has done its rounds, and every other one at least one."""
    return any(len(process.ends) >= n_rounds for process in mine) and all(process.ends for process in mine)


def _have_ended(mine: Sequence[_Process], n_rounds: int) -> bool:
    """Whether every process has done its rounds."""
    return all(len(process.ends) == n_rounds for process in mine)


def _share(mine: Sequence[_Process], ended: Callable[[], bool], *, kappa: float) -> None:
    """Run the processes of one device until it is enough."""
    t = 0.0
    for process in mine:
        process.begin(0.0)
    while not ended():
        busy = [process for process in mine if process.left_s]
        rate = min(1.0, kappa / len(busy)) if busy else 1.0
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
