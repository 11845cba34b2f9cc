"""Read a pool's leases from its journal; how much of the slots they used."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from drlnb.records.columns.leasing import LeaseExpired, LeaseGranted, LeaseReleased
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream

__all__ = ["Lease", "SlotUse", "inside", "leases"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """How much of some slots was used, beside what can be."""

    #: Seconds computing / (slots x seconds), dimensionless.
    utilisation_frac: float
    #: The same with the seconds held instead: what is held and not computed is waste.
    held_frac: float
    #: The most that utilisation can be, from each task's duty measured alone on the same seed.
    bound_frac: float
    #: Mean over the tasks of round time / round time alone, dimensionless.
    inflation: float


class Lease(NamedTuple):
    """A lease that has ended: when it was granted on the pool's clock, when it ended, and how."""

    granted_t: float
    grant: LeaseGranted
    ended_t: float
    end: LeaseReleased | LeaseExpired

    @property
    def computed_s(self) -> float:
        """Seconds computed on all of its slots, as its holder reported them; an expired one reports nothing."""
        return sum(self.end.computed_s) if isinstance(self.end, LeaseReleased) else 0.0

    @property
    def held_s(self) -> float:
        """Seconds that it was held, over all of its slots."""
        return self.end.held_s * len(self.end.slots)


def inside(begin_t: float, end_t: float, start: float, stop: float) -> float:
    """Return how much of a span of seconds lies inside a window."""
    return max(0.0, min(end_t, stop) - max(begin_t, start))


def leases(pool: Stream) -> Iterator[Lease]:
    """Yield the leases that were granted and have ended, in the order of their ends."""
    granted: dict[Fence, tuple[float, LeaseGranted]] = {}
    for event, answer in pool.answers():
        for record in answer:
            if isinstance(record, LeaseGranted):
                granted[record.fence] = (event.t, record)
            elif isinstance(record, LeaseReleased | LeaseExpired) and record.fence in granted:
                yield Lease(*granted.pop(record.fence), event.t, record)
