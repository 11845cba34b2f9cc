"""What is known of a device whose number of seats is to be found, and how is it written down?"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from drlnb.records.seats import SeatsMeasured

__all__ = ["PHASES", "Device", "from_plain", "plain_of"]

#: Phases of a device: nothing goes on; executors are being started; they are measured; the pool is being told.
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


def plain_of(device: Device) -> dict[str, Any]:
    """Return a device's state as plain data, fit for JSON."""
    rounds = [{task: list(times) for task, times in of.items()} for of in device.rounds]
    measured = [one.to_row() for one in device.measured]
    return asdict(replace(device, measured=[])) | {
        "measured": measured,
        "rounds": rounds,
        "times": [list(time) for time in device.times],
        "probed": list(device.probed),
    }


def from_plain(plain: Mapping[str, Any]) -> Device:
    """Return the device that :func:`plain_of` told of; fields that it did not know have their defaults."""
    device = Device(**{**plain, "probed": tuple(plain["probed"])})
    device.seen, device.rates = dict(plain["seen"]), list(plain["rates"])
    device.rounds = [{task: (p50, p95) for task, (p50, p95) in of.items()} for of in plain["rounds"]]
    device.times = [(p50, p95) for p50, p95 in plain["times"]]
    device.measured = [SeatsMeasured.from_row(row) for row in plain["measured"]]
    return device
