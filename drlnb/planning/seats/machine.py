"""Find how many executors should share one device (ours, leasing 4.10).

What a lab does without leases is to start N processes on one device.  Where kernels are small the device runs several
at once, and one executor alone would waste it; where they are large the processes take turns, and more of them only
cost memory.  Which it is, is measured: a *probe* lets 1, 2, 3 ... executors compute recorded rounds of the resident
tasks together.  If rounds are slow afterwards, fewer are tried while tasks train, for some seconds, and what does more
stays.  One event, one answer; no clock, no I/O.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Self

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.seats import probing, training
from drlnb.planning.seats.rules import SeatsSettings
from drlnb.planning.seats.state import PHASES, SeatsState, forbidden
from drlnb.records import seats as records
from drlnb.records.base import Event, Record

__all__ = ["SeatsMachine"]

#: The rule for each kind of event: state, event (of that kind) and the answer so far.
RULES: Mapping[type[Event], Callable[[SeatsState, Any, list[Record]], None]] = {
    records.SeatsOpened: probing.opened,
    records.ComputeMeasured: training.compute_measured,
    records.TaskLeft: training.task_left,
    records.SeatsUp: probing.seats_up,
    records.SeatsMeasured: probing.seats_measured,
    records.ProbeFailed: probing.probe_failed,
    records.SeatsSet: probing.seats_set,
}


class SeatsMachine:
    """The seats of every device of a pool whose number is to be found.

    Parameters
    ----------
    settings
        Limits and times.
    """

    def __init__(self, settings: SeatsSettings) -> None:
        self.settings = settings
        self._state = SeatsState(settings)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Build the machine that a journal's header describes by :attr:`config`.

        Raises
        ------
        ConfigError
            If a key is unknown or a value wrong.
        """
        return cls(SeatsSettings.from_mapping(config))

    @property
    def config(self) -> dict[str, object]:
        """The constructor's arguments as plain data."""
        return asdict(self.settings)

    @property
    def seats(self) -> Mapping[str, int]:
        """Seats in the pool, by device."""
        return {name: device.n_seats for name, device in self._state.devices.items()}

    def n_tasks(self, device: str) -> int:
        """Return how many tasks compute on a device."""
        return len(self._state.devices[device].seen)

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Apply an event and return what follows from it, in its order.

        Raises
        ------
        InvalidTransition
            If the event is older than the last one, of an unknown kind or device, or not to be expected now.
        """
        rule = RULES.get(type(event))
        # "not >=" also catches nan
        if rule is None or not event.t >= self._state.t:
            raise forbidden(f"at t={self._state.t:g} s", event)
        self._state.t = event.t
        out: list[Record] = []
        rule(self._state, event, out)
        return tuple(out)

    def check(self) -> None:
        """Check what must hold after each event.

        Raises
        ------
        AssertionError
            If something does not; the message lists all of it.
        """
        devices = self._state.devices.values()
        laws = {
            "a phase is one of the known": all(device.phase in PHASES for device in devices),
            "seats are from 1 to the most": all(1 <= device.n_seats <= device.n_most for device in devices),
            "one device is probed at a time": sum(device.phase in {"raising", "measuring"} for device in devices) <= 1,
            "what is tried fits": all(device.n_try <= device.n_most for device in devices),
            "each rate has its rounds": all(len(device.rates) == len(device.rounds) for device in devices),
        }
        broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise AssertionError("seats: not true: " + "; ".join(broken))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, fit for JSON."""
        plain: dict[str, Any] = to_plain(self._state)
        return plain

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the state of :meth:`snapshot`."""
        self._state = from_plain(SeatsState, snapshot, settings=self.settings)
