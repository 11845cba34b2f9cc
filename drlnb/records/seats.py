"""Define the records of seats: how many executors share one device (ours, leasing 4.10)."""

from collections.abc import Mapping
from dataclasses import field

from drlnb.records.base import Command, Decision, Event


# ------------------------------------------------------------------ events
class SeatsOpened(Event):
    """A device is in the pool with one seat, and may get more."""

    #: Name of the device: that of its slots without the seat.
    device: str
    node: str
    #: Most seats that it may have.
    n_most: int
    #: Why no more, in words.
    limit: str


class ComputeMeasured(Event):
    """A task's round has been computed on a seat of the device."""

    device: str
    task: str
    #: Seconds that the executor computed.
    compute_s: float


class TaskLeft(Event):
    """A task has ended: it needs no seat any more."""

    task: str


class SeatsUp(Event):
    """So many executors of the device are up, those included that the pool does not lend."""

    device: str
    n_seats: int
    #: Memory of one executor, in bytes: the largest.
    seat_bytes: int
    #: Memory of the device (RAM where it is virtual) in use by anybody, in bytes.
    used_bytes: int
    total_bytes: int


class SeatsMeasured(Event):
    """So many executors have computed recorded rounds together; what they made was thrown away."""

    device: str
    n_seats: int
    #: Seconds that each executor computed; shape ``(n_seats,)``.
    elapsed_s: tuple[float, ...]
    #: Rounds that each executor computed, by task; shape ``(n_seats,)``.
    n_rounds: tuple[Mapping[str, int], ...]
    #: Median seconds of a round by task, over all executors.
    compute_p50_s: Mapping[str, float]
    #: 95th percentile of the seconds of a round by task, over all executors.
    compute_p95_s: Mapping[str, float]


class ProbeFailed(Event):
    """The probe of a device could not be carried through."""

    device: str
    reason: str


class SeatsSet(Event):
    """The device has so many seats in the pool now, and no executor besides."""

    device: str
    n_seats: int


# ------------------------------------------------------------------ decisions
class ProbePlanned(Decision):
    """How many seats pay on a device is going to be measured."""

    device: str
    #: Most seats that will be tried.
    n_most: int
    reason: str


class SeatsPlanned(Decision):
    """A device shall have so many seats."""

    device: str
    n_seats: int
    #: Work per second with 1, 2, ... seats, relative to one seat; empty if nothing was measured.
    rates: tuple[float, ...] = field(default=())
    reason: str


# ------------------------------------------------------------------ commands
class _Seats(Command):
    """A device shall have so many seats."""

    device: str
    n_seats: int


class RaiseSeats(_Seats):
    """See to it that so many executors of the device are up; the pool does not lend the new ones yet."""


class MeasureSeats(_Seats):
    """Measure so many executors that compute recorded rounds together for so long, alone on their device."""

    measure_s: float


class SetSeats(_Seats):
    """End the probe, if there is one; give the pool so many seats, and close the others once nobody holds them."""
