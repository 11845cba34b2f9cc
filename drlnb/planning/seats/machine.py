"""Find how many executors should share one device (ours, leasing 4.10).

What a lab does without leases is to start N processes on one device.  Where kernels are small the device runs several
at once, and one executor alone would waste it; where they are large the processes take turns, and more of them only
cost memory.  Which it is, is measured: a *probe* lets 1, 2, 3 ... executors compute recorded rounds of the resident
tasks together.  If rounds are slow afterwards, fewer are tried while tasks train, for some seconds, and what does more
stays.  One event, one answer; no clock, no I/O.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from drlnb.planning.machine import Machine, Rules
from drlnb.planning.seats import probing, training
from drlnb.planning.seats.rules import SeatsSettings
from drlnb.planning.seats.state import PHASES, SeatsState
from drlnb.records import seats as records

__all__ = ["SeatsMachine"]

#: The rule for each kind of event.
RULES: Rules[SeatsState] = {
    records.SeatsOpened: probing.opened,
    records.ComputeMeasured: training.compute_measured,
    records.TaskLeft: training.task_left,
    records.SeatsUp: probing.seats_up,
    records.SeatsMeasured: probing.seats_measured,
    records.ProbeFailed: probing.probe_failed,
    records.SeatsSet: probing.seats_set,
}


class SeatsMachine(Machine[SeatsState]):
    """The seats of every device of a pool whose number is to be found.

    Parameters
    ----------
    settings
        Limits and times.
    """

    def __init__(self, settings: SeatsSettings) -> None:
        super().__init__("seats", SeatsState(settings), RULES)

    @property
    def config(self) -> dict[str, object]:
        """The constructor's arguments as plain data."""
        return asdict(self.settings)

    @property
    def settings(self) -> SeatsSettings:
        """Limits and times."""
        return self.state.settings

    @property
    def seats(self) -> Mapping[str, int]:
        """Seats in the pool, by device."""
        return {name: device.n_seats for name, device in self.state.devices.items()}

    def n_tasks(self, device: str) -> int:
        """Return how many tasks compute on a device."""
        return len(self.state.devices[device].seen)

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        devices = self.state.devices.values()
        yield all(device.phase in PHASES for device in devices), "a phase is one of the known"
        yield all(1 <= device.n_seats <= device.n_most for device in devices), "seats are from 1 to the most"
        busy = [device for device in devices if device.phase in {"raising", "measuring"}]
        yield len(busy) <= 1, "one device is probed at a time"
        yield all(device.n_try <= device.n_most for device in devices), "what is tried fits"
        yield all(len(device.rates) == len(device.rounds) for device in devices), "each rate has its rounds"
