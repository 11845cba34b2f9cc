"""Sum each task's part of the slots over the leases of a run, beside what theory expects."""

from dataclasses import dataclass

import numpy as np

from drlnb.views.leasing.lines import LeaseLine, Leases

__all__ = ["Expected", "Sharing", "expected", "n_devices", "sharing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the pool's own estimates say, as means over time; None before the first."""

    d: float | None = None
    bound: float | None = None
    utilisation: float | None = None
    inflation: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """One task's part; seconds."""

    series: int
    #: Slots at the same time.
    n_slots: int
    #: First lease and last return (or open wait), on the common line.
    span: tuple[float, float]
    #: From its first lease to its last return, pauses left out.
    active: float
    #: Of these, waited for slots.
    waited: float
    #: Slot-seconds lent, and computed.
    held: float
    computed: float

    @property
    def alone(self) -> float:
        """What the same rounds take without waiting for slots."""
        return self.active - self.waited

    @property
    def inflation(self) -> float | None:
        """Time with the waits / time without."""
        return self.active / self.alone if self.alone > 0 else None


def expected(line: LeaseLine, low: float, high: float) -> Expected:
    """Return the means over time of what theory expects, each estimate holding until the next one.

    Parameters
    ----------
    line
        A fold's pool.
    low, high
        Seconds since the run's first event.
    """
    grow = line.fold.pool.loads
    if not len(grow):
        return Expected()
    t = grow["t"] + line.offsets[grow["stream"].astype(np.int64)]
    order = np.argsort(t, kind="stable")
    start = np.maximum(t[order], low)
    stop = np.minimum(np.append(t[order][1:], max(high, low)), high)
    weight = np.maximum(0.0, stop - start)
    if weight.sum() <= 0:
        weight = np.zeros(len(t))
        weight[-1] = 1.0
    mean = {
        name: float(np.average(grow[name][order], weights=weight))
        for name in ("d", "bound", "utilisation", "inflation")
    }
    return Expected(**mean)


def sharing(line: LeaseLine, leases: Leases, now: float) -> tuple[Sharing, ...]:
    """Return every task's part from its first lease on, in the order of tasks; who has had none is left out.

    The wait for the first slot of all is the pool's start, or the run's queue, and would count in no round.
    """
    done, going = line.waits(), line.waiting(now)
    parts = []
    for series in range(len(line.tasks)):
        mine = leases.series == series
        if not mine.any():
            continue
        first = float(np.min(leases.start[mine]))
        asked, until = (
            np.concatenate([
                waits[edge][(waits["series"] == series) & (waits["start"] >= first)] for waits in (done, going)
            ])
            for edge in ("start", "stop")
        )
        last = float(np.max(np.concatenate([until, leases.stop[mine]])))
        tokens = leases.token[mine]
        parts.append(
            Sharing(
                series=series,
                n_slots=int(np.max(np.unique(tokens, return_counts=True)[1], initial=1)),
                active=last
                - first
                - sum(stop - start for start, stop in line.pauses(line.tasks[series], (first, last))),
                span=(first, last),
                waited=float(np.sum(until - asked)),
                held=float(np.sum(leases.stop[mine] - leases.start[mine])),
                computed=float(np.nansum(leases.computed[mine])),
            )
        )
    return tuple(parts)


def n_devices(line: LeaseLine) -> int:
    """Return how many devices the slots are on: seats of one device count once."""
    devices = {}
    for life in line.fold.pool.lives.values():
        shared = life.device not in ("", "cpu")
        devices[life.name] = (life.node, life.device) if shared else (life.name, "")
    return len(set(devices.values()))
