"""Work out how the same rounds would have gone without leases: exclusive allocation and co-location."""

from dataclasses import dataclass, replace

from drlnb.views.leasing import colocated
from drlnb.views.leasing.lines import LeaseLine, Leases
from drlnb.views.leasing.sharing import Sharing, n_devices

__all__ = ["Ghosts", "ghosts"]


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


def ghosts(line: LeaseLine, leases: Leases, parts: tuple[Sharing, ...], start: float) -> Ghosts:
    """Return both ways to do without leases, on as many devices.

    Parameters
    ----------
    line, leases
        A fold's pool.
    parts
        What each task's rounds came to.
    start
        When all begin, in seconds: at the first lease of all.
    """
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
    most = max(1, colocated.MOST_PIECES // len(parts))
    work = line.work(leases)
    processes, at = [], 0
    for part in parts:
        devices = tuple((at + k) % n for k in range(max(1, min(part.n_slots, n))))
        at += len(devices)
        process = colocated.process(line, work, part.series, part.span, alone=part.alone, most=most)
        processes.append(replace(process, devices=devices))
    ends = colocated.ends(processes)
    last = [
        max((end for process, end in zip(processes, ends, strict=True) if k in process.devices), default=0.0)
        for k in range(n)
    ]
    return Ghosts(
        exclusive=tuple(exclusive),
        colocated=tuple(
            (k, part.series, start, start + end) for k, (part, end) in enumerate(zip(parts, ends, strict=True))
        ),
        occupied=sum(last),
    )
