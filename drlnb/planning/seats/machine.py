"""How many executors shall share one device (ours, leasing 4.10)?

What a lab does without leases is to start N processes on one device.  Where kernels are small the device runs several
at once, and one executor alone would waste it; where they are large the processes take turns, and more of them only
cost memory.  Which it is, is measured: a *probe* lets 1, 2, 3 ... executors compute recorded rounds of the resident
tasks together.  If rounds are slow afterwards, fewer are tried while tasks train, for some seconds, and what does more
stays.  One event, one answer; no clock, no I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Self

from drlnb.planning.seats.rules import SeatsSettings, aggregate, choose, levels, percentile, slowed, wait_s
from drlnb.planning.seats.state import PHASES, Device, from_plain, plain_of
from drlnb.records.base import Event, Record
from drlnb.records.errors import ConfigError, InvalidTransition
from drlnb.records.seats import (
    ComputeMeasured,
    MeasureSeats,
    ProbeFailed,
    ProbePlanned,
    RaiseSeats,
    SeatsMeasured,
    SeatsOpened,
    SeatsPlanned,
    SeatsSet,
    SeatsUp,
    SetSeats,
    TaskLeft,
)

__all__ = ["SeatsMachine"]


class SeatsMachine:
    """The seats of every device of a pool whose number is to be found.

    Parameters
    ----------
    settings
        Limits and times.
    """

    def __init__(self, settings: SeatsSettings) -> None:
        self.settings = settings
        self._t = 0.0
        self._devices: dict[str, Device] = {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Build the machine that a journal's header describes by :attr:`config`.

        Raises
        ------
        ConfigError
            If a key is unknown or a value wrong.
        """
        known = {one.name for one in fields(SeatsSettings)}
        unknown = sorted(config.keys() - known)
        if unknown:
            raise ConfigError([f"seats has unknown key {key!r}" for key in unknown])
        # Journals of before fewer seats were tried say nothing of it.
        return cls(SeatsSettings(**{"settle_s": 0.0, **config}))

    @property
    def config(self) -> dict[str, Any]:
        """The constructor's arguments as plain data."""
        return asdict(self.settings)

    @property
    def seats(self) -> Mapping[str, int]:
        """Seats in the pool, by device."""
        return {name: device.n_seats for name, device in self._devices.items()}

    def n_tasks(self, device: str) -> int:
        """Return how many tasks compute on a device."""
        return len(self._devices[device].seen)

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Take in an event and return what follows from it, in its order.

        Raises
        ------
        InvalidTransition
            If the event is older than the last one, of an unknown kind or device, or not to be expected now.
        """
        rule = _HANDLERS.get(type(event))
        # "not >=" also catches nan
        if rule is None or not event.t >= self._t:
            raise InvalidTransition("seats", f"at t={self._t:g} s", event)
        self._t = event.t
        return tuple(rule(self, event))

    def check(self) -> None:
        """Check what must hold after each event.

        Raises
        ------
        AssertionError
            If something does not; the message lists all of it.
        """
        devices = self._devices.values()
        laws = {
            "a phase is one of the known": all(one.phase in PHASES for one in devices),
            "seats are from 1 to the most": all(1 <= one.n_seats <= one.n_most for one in devices),
            "one device is probed at a time": sum(one.phase in {"raising", "measuring"} for one in devices) <= 1,
            "what is tried fits": all(one.n_try <= one.n_most for one in devices),
            "each rate has its rounds": all(len(one.rates) == len(one.rounds) for one in devices),
        }
        broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise AssertionError("seats: not true: " + "; ".join(broken))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, fit for JSON."""
        return {"t": self._t, "devices": [plain_of(device) for device in self._devices.values()]}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take on the state of :meth:`snapshot`."""
        self._t = snapshot["t"]
        devices = [from_plain(plain) for plain in snapshot["devices"]]
        self._devices = {device.name: device for device in devices}

    # -------------------------------------------------------------- what is heard
    def _of(self, event: Any, *phases: str) -> Device:
        device = self._devices.get(event.device)
        if device is None or (phases and device.phase not in phases):
            state = "without it" if device is None else f"{device.name} {device.phase}"
            raise InvalidTransition("seats", state, event)
        return device

    def _opened(self, event: SeatsOpened) -> Iterable[Record]:
        if event.device in self._devices or event.n_most < 1:
            raise InvalidTransition("seats", f"with devices {sorted(self._devices)}", event)
        self._devices[event.device] = Device(name=event.device, node=event.node, n_most=event.n_most, limit=event.limit)
        if event.n_most == 1:
            yield SeatsPlanned(device=event.device, n_seats=1, reason=f"one seat: {event.limit}")

    def _left(self, event: TaskLeft) -> Iterable[Record]:
        for device in self._devices.values():
            if device.seen.pop(event.task, None) is not None:
                device.forget_training()
        return ()

    def _computed(self, event: ComputeMeasured) -> Iterable[Record]:
        device = self._of(event)
        if event.task not in device.seen:
            device.seen = dict.fromkeys((*device.seen, event.task), 0)
            device.forget_training()
        device.seen[event.task] += 1
        if device.phase != "still":
            return []
        known = device.rounds[device.n_seats - 1].get(event.task) if len(device.rounds) >= device.n_seats else None
        if known is not None:
            device.times.append((event.compute_s / known[0], event.compute_s / known[1]))
        if self.settings.settle_s > 0:
            return self._settled(device, event.task) or self._probe(device)
        del device.times[: -self.settings.window]
        return self._shrink(device) or self._probe(device)

    def _settled(self, device: Device, task: str) -> list[Record]:
        """Count a round of training; compare once enough of them have been counted."""
        if device.since_t is None:
            device.since_t, device.times, device.work_s = self._t, [], 0.0  # this round began before
            return []
        alone = device.rounds[0].get(task) if device.rounds else None
        device.work_s += 0.0 if alone is None else alone[0]
        elapsed_s = self._t - device.since_t
        if elapsed_s < self.settings.settle_s or len(device.times) < self.settings.fewest:
            return []
        rate = device.work_s / elapsed_s
        answer = self._judged(device, rate) if device.more_rate else self._tried(device, rate)
        device.since_t, device.times, device.work_s = self._t, [], 0.0
        return answer

    def _tried(self, device: Device, rate: float) -> list[Record]:
        """Try fewer seats if rounds are slow."""
        if self._t < device.keep_until_t:
            return []
        answer = self._shrink(device)
        if answer:
            device.more_rate = rate
        return answer

    def _judged(self, device: Device, rate: float) -> list[Record]:
        """Take the seat back if fewer do less than it did."""
        more = device.more_rate
        if rate >= (1 - self.settings.margin_frac) * more:
            device.more_rate = 0.0
            return []
        if any(other.phase != "still" for other in self._devices.values()):
            return []  # one device at a time; it is judged again
        device.more_rate, device.shrunk = 0.0, False
        device.keep_until_t = self._t + wait_s(device.n_idle, self.settings)
        n_seats = device.n_seats + 1
        device.back = f"in training {device.n_seats} did {rate / more:.2f} x the work of {n_seats}"
        device.phase, device.n_try = "raising", n_seats
        return [RaiseSeats(device=device.name, n_seats=n_seats)]

    def _shrink(self, device: Device) -> list[Record]:
        """Take a seat away if rounds have become slow beside the probe's."""
        if device.n_seats == 1 or len(device.times) < self.settings.fewest:
            return []
        p50 = percentile([time[0] for time in device.times], 0.5)
        p95 = percentile([time[1] for time in device.times], 0.95)
        reason = slowed(p50, p95, device.rates, device.n_seats, self.settings)
        if not reason:
            return []
        device.shrunk = True
        device.n_idle += 1
        device.probed_t = self._t
        return self._plan(device, device.n_seats - 1, reason)

    def _probe(self, device: Device) -> list[Record]:
        """Begin a probe, if one is due."""
        reason = self._due(device)
        if not reason:
            return []
        n_tasks = len(device.seen)
        device.n_try, device.why = device.n_most, device.limit
        if n_tasks < device.n_most:
            device.n_try, device.why = n_tasks, f"{n_tasks} tasks compute here"
        device.probed, device.probed_t = tuple(sorted(device.seen)), self._t
        device.shrunk = device.doubtful = False
        if device.n_try == 1:
            return self._plan(device, 1, "one seat: one task computes here")
        device.phase, device.measured, device.rates, device.rounds = "raising", [], [], []
        return [
            ProbePlanned(device=device.name, n_most=device.n_try, reason=reason),
            RaiseSeats(device=device.name, n_seats=device.n_seats),
        ]

    def _due(self, device: Device) -> str:
        """Return why the device is to be probed now; empty if it is not."""
        if any(other.phase != "still" for other in self._devices.values()) or device.n_most == 1:
            return ""
        if not all(n >= self.settings.first_rounds for n in device.seen.values()):
            return ""
        if device.probed_t is None:
            return "the first tasks are resident" if len(device.seen) > 1 else ""
        if self._t - device.probed_t < wait_s(device.n_idle, self.settings):
            return ""
        if device.shrunk:
            return "rounds were slow when it was probed last"
        if max(len(device.seen), device.n_seats) == 1:
            return ""
        if tuple(sorted(device.seen)) != device.probed:
            return "other tasks are resident"
        return "more seats did not pay when it was probed last" if device.doubtful else ""

    def _up(self, event: SeatsUp) -> Iterable[Record]:
        device = self._of(event, "raising")
        device.n_up = event.n_seats
        if device.back:
            return self._plan(device, device.n_up, device.back)
        if device.n_up < device.n_try:
            needed = event.used_bytes + event.seat_bytes
            most = self.settings.memory_frac * event.total_bytes
            if needed <= most:
                return [RaiseSeats(device=device.name, n_seats=device.n_up + 1)]
            device.n_try = max(1, device.n_up)
            device.why = f"one more would use {_gib(needed)} of {_gib(event.total_bytes)}"
        if device.n_try == 1:
            return self._plan(device, 1, f"one seat: {device.why}")
        device.phase = "measuring"
        return [self._measure(device)]

    def _measure(self, device: Device) -> Record:
        return MeasureSeats(
            device=device.name,
            n_seats=levels(device.n_try)[len(device.measured)],
            measure_s=self.settings.probe_s / len(levels(device.n_try)),
        )

    def _measured(self, event: SeatsMeasured) -> Iterable[Record]:
        device = self._of(event, "measuring")
        order = levels(device.n_try)
        if event.n_seats != order[len(device.measured)]:
            raise InvalidTransition("seats", f"{device.name} after {len(device.measured)} of {order}", event)
        device.measured.append(event)
        if len(device.measured) < len(order):
            return [self._measure(device)]
        device.rates, device.rounds = self._found(device)
        device.measured = []
        n_seats, reason = choose(device.rates, self.settings.margin_frac)
        device.n_idle = device.n_idle + 1 if n_seats == device.n_seats else 0
        device.doubtful = n_seats < device.n_try
        most = f"; no more were tried: {device.why}" if n_seats == device.n_try else ""
        return self._plan(device, n_seats, reason + most)

    def _found(self, device: Device) -> tuple[list[float], list[dict[str, tuple[float, float]]]]:
        """Return work per second with 1, 2, ... seats, relative to one, and the times of rounds; each comes twice."""
        alone = [one.compute_p50_s for one in device.measured if one.n_seats == 1]
        alone_s = {task: sum(of.get(task, p50) for of in alone) / len(alone) for task, p50 in alone[0].items()}
        rates, rounds = [], []
        for n_seats in range(1, device.n_try + 1):
            twice = [one for one in device.measured if one.n_seats == n_seats]
            rates.append(sum(aggregate(alone_s, one.n_rounds, one.elapsed_s) for one in twice) / len(twice))
            known: dict[str, tuple[float, float]] = {}
            for task in {task: None for one in twice for task in one.compute_p50_s}:
                p50 = [one.compute_p50_s[task] for one in twice if task in one.compute_p50_s]
                p95 = [one.compute_p95_s[task] for one in twice if task in one.compute_p95_s]
                if min(p50) > 0:
                    known[task] = (sum(p50) / len(p50), max(p95))
            rounds.append(known)
        base = rates[0] or 1.0
        return [rate / base for rate in rates], rounds

    def _failed(self, event: ProbeFailed) -> Iterable[Record]:
        device = self._of(event)
        if device.phase not in {"raising", "measuring"}:
            return []
        device.measured, device.rates, device.rounds = [], [], []
        device.n_idle += 1
        return self._plan(device, device.n_seats, f"as before: the probe failed ({event.reason})")

    def _plan(self, device: Device, n_seats: int, reason: str) -> list[Record]:
        device.phase, device.n_seats, device.back = "setting", n_seats, ""
        device.times = []
        return [
            SeatsPlanned(device=device.name, n_seats=n_seats, rates=tuple(device.rates), reason=reason),
            SetSeats(device=device.name, n_seats=n_seats),
        ]

    def _set(self, event: SeatsSet) -> Iterable[Record]:
        device = self._of(event, "setting")
        device.phase, device.times, device.since_t = "still", [], None
        device.n_seats = device.n_up = min(event.n_seats, device.n_most)
        return ()


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB"


#: The rule for each kind of event.
_HANDLERS: Mapping[type[Event], Callable[[SeatsMachine, Any], Iterable[Record]]] = {
    SeatsOpened: SeatsMachine._opened,
    ComputeMeasured: SeatsMachine._computed,
    TaskLeft: SeatsMachine._left,
    SeatsUp: SeatsMachine._up,
    SeatsMeasured: SeatsMachine._measured,
    ProbeFailed: SeatsMachine._failed,
    SeatsSet: SeatsMachine._set,
}
