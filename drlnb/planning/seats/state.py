"""Hold what is known of the devices whose number of seats is measured."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.seats.rules import SeatsSettings
from drlnb.records.base import Event
from drlnb.records.errors import InvalidTransition
from drlnb.records.seats import ComputeMeasured, ProbeFailed, SeatsMeasured, SeatsSet, SeatsUp

__all__ = ["PHASES", "Device", "SeatsState", "forbidden"]

_OfDevice = ComputeMeasured | ProbeFailed | SeatsMeasured | SeatsSet | SeatsUp

#: Phases of a device: nothing goes on; executors are being started; they are measured; the pool sets their number.
PHASES = ("still", "raising", "measuring", "setting")


@dataclass(slots=True, kw_only=True)
class Device:
    """What is known of one device."""

    name: str
    node: str
    n_most: int
    limit: str
    #: Seats in the pool.
    n_seats: int = 1
    phase: str = "still"
    #: Task -> rounds computed here since a task came newly.
    seen: dict[str, int] = field(default_factory=dict)
    #: Executors that are up for the probe.
    n_up: int = 1
    #: Most seats that this probe tries, and why no more.
    n_try: int = 1
    why: str = ""
    #: What this probe has measured so far.
    measured: list[SeatsMeasured] = field(default_factory=list)
    #: Work per second with 1, 2, ... seats, relative to one.
    rates: list[float] = field(default_factory=list)
    #: By number of seats: task -> (median, 95th percentile) of the seconds of its round in the probe.
    rounds: list[dict[str, tuple[float, float]]] = field(default_factory=list)
    #: Latest rounds / their median and 95th percentile in the probe.
    times: list[tuple[float, float]] = field(default_factory=list)
    #: Tasks when it was probed, time of that, and probes in a row that nothing came of.
    probed: tuple[str, ...] = ()
    probed_t: float | None = None
    n_idle: int = 0
    #: Since when rounds have been counted in training, and how much they were, in seconds that they take one executor
    #: alone in the probe.
    since_t: float | None = None
    work_s: float = 0.0
    #: Work per second that one seat more did in training, while fewer are on trial; 0: none are.
    more_rate: float = 0.0
    #: Why a seat is coming back without a probe; empty: none is.
    back: str = ""
    #: No seat is taken away before.
    keep_until_t: float = 0.0
    #: Seats were taken away because rounds got slow.
    shrunk: bool = False
    #: The probe could have tried more seats than it chose: something else may have used the machine meanwhile.
    doubtful: bool = False

    def forget_training(self) -> None:
        """Begin to count anew: what other tasks do is no measure."""
        self.times, self.since_t, self.more_rate = [], None, 0.0


@dataclass(slots=True)
class SeatsState:
    """State of the seats of one pool."""

    settings: SeatsSettings = field(metadata=TRANSIENT)
    #: Time of the last event, in seconds.
    t: float = 0.0
    devices: dict[str, Device] = field(default_factory=dict)

    def of(self, event: _OfDevice, phases: Iterable[str] = PHASES) -> Device:
        """Return the device of an event.

        Raises
        ------
        InvalidTransition
            If there is none, or it is in no phase in which the event can come.
        """
        device = self.devices.get(event.device)
        if device is None or device.phase not in phases:
            raise forbidden("without it" if device is None else f"{device.name} {device.phase}", event)
        return device

    @property
    def is_still(self) -> bool:
        """Whether nothing goes on at any device."""
        return all(device.phase == "still" for device in self.devices.values())


def forbidden(state: str, event: Event) -> InvalidTransition:
    """Return the error for an event that cannot come in a state."""
    return InvalidTransition("seats", state, event)
