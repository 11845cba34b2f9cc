"""Probe a device: let 1, 2, 3 ... executors compute recorded rounds together, and keep the number that does most."""

from drlnb.planning.seats.rules import aggregate, choose, levels, wait_s
from drlnb.planning.seats.state import Device, SeatsState, forbidden
from drlnb.records import seats as records
from drlnb.records.base import Record


def opened(state: SeatsState, event: records.SeatsOpened, out: list[Record]) -> None:
    """Enter a device."""
    if event.device in state.devices or event.n_most < 1:
        raise forbidden(f"with devices {sorted(state.devices)}", event)
    state.devices[event.device] = Device(name=event.device, node=event.node, n_most=event.n_most, limit=event.limit)
    if event.n_most == 1:
        out.append(records.SeatsPlanned(device=event.device, n_seats=1, reason=f"one seat: {event.limit}"))


def probe(state: SeatsState, device: Device, out: list[Record]) -> None:
    """Begin a probe, if one is due."""
    reason = _due(state, device)
    if not reason:
        return
    n_tasks = len(device.seen)
    device.n_try, device.why = device.n_most, device.limit
    if n_tasks < device.n_most:
        device.n_try, device.why = n_tasks, f"{n_tasks} tasks compute here"
    device.probed, device.probed_t = tuple(sorted(device.seen)), state.t
    device.shrunk = device.doubtful = False
    if device.n_try == 1:
        plan(device, 1, "one seat: one task computes here", out)
        return
    device.phase, device.measured, device.rates, device.rounds = "raising", [], [], []
    out.append(records.ProbePlanned(device=device.name, n_most=device.n_try, reason=reason))
    out.append(records.RaiseSeats(device=device.name, n_seats=device.n_seats))


def _due(state: SeatsState, device: Device) -> str:
    """Return why the device is to be probed now; empty if it is not."""
    if not state.is_still or device.n_most == 1:
        return ""
    if not all(n >= state.settings.first_rounds for n in device.seen.values()):
        return ""
    if device.probed_t is None:
        return "the first tasks are resident" if len(device.seen) > 1 else ""
    if state.t - device.probed_t < wait_s(device.n_idle, state.settings):
        return ""
    if device.shrunk:
        return "rounds were slow when it was probed last"
    if max(len(device.seen), device.n_seats) == 1:
        return ""
    if tuple(sorted(device.seen)) != device.probed:
        return "other tasks are resident"
    return "more seats did not pay when it was probed last" if device.doubtful else ""


def seats_up(state: SeatsState, event: records.SeatsUp, out: list[Record]) -> None:
    """Start one executor more while it fits and is to be tried; then measure."""
    device = state.of(event, {"raising"})
    device.n_up = event.n_seats
    if device.back:
        plan(device, device.n_up, device.back, out)
        return
    if device.n_up < device.n_try:
        needed = event.used_bytes + event.seat_bytes
        if needed <= state.settings.memory_frac * event.total_bytes:
            out.append(records.RaiseSeats(device=device.name, n_seats=device.n_up + 1))
            return
        device.n_try = max(1, device.n_up)
        device.why = f"one more would use {_gib(needed)} of {_gib(event.total_bytes)}"
    if device.n_try == 1:
        plan(device, 1, f"one seat: {device.why}", out)
    else:
        device.phase = "measuring"
        out.append(_next_measurement(state, device))


def _next_measurement(state: SeatsState, device: Device) -> records.MeasureSeats:
    order = levels(device.n_try)
    return records.MeasureSeats(
        device=device.name, n_seats=order[len(device.measured)], measure_s=state.settings.probe_s / len(order)
    )


def seats_measured(state: SeatsState, event: records.SeatsMeasured, out: list[Record]) -> None:
    """Record one measurement; after the last one choose the number of seats."""
    device = state.of(event, {"measuring"})
    order = levels(device.n_try)
    if event.n_seats != order[len(device.measured)]:
        raise forbidden(f"{device.name} after {len(device.measured)} of {order}", event)
    device.measured.append(event)
    if len(device.measured) < len(order):
        out.append(_next_measurement(state, device))
        return
    device.rates, device.rounds = _rates_and_rounds(device)
    device.measured = []
    n_seats, reason = choose(device.rates, state.settings.margin_frac)
    device.n_idle = device.n_idle + 1 if n_seats == device.n_seats else 0
    device.doubtful = n_seats < device.n_try
    most = f"; no more were tried: {device.why}" if n_seats == device.n_try else ""
    plan(device, n_seats, reason + most, out)


def _rates_and_rounds(device: Device) -> tuple[list[float], list[dict[str, tuple[float, float]]]]:
    """Return work per second with 1, 2, ... seats, relative to one, and the times of rounds; each comes twice."""
    alone = [each.compute_p50_s for each in device.measured if each.n_seats == 1]
    alone_s = {task: sum(of.get(task, p50) for of in alone) / len(alone) for task, p50 in alone[0].items()}
    rates, rounds = [], []
    for n_seats in range(1, device.n_try + 1):
        twice = [each for each in device.measured if each.n_seats == n_seats]
        rates.append(sum(aggregate(alone_s, each.n_rounds, each.elapsed_s) for each in twice) / len(twice))
        known: dict[str, tuple[float, float]] = {}
        for task in {task: None for each in twice for task in each.compute_p50_s}:
            p50 = [each.compute_p50_s[task] for each in twice if task in each.compute_p50_s]
            p95 = [each.compute_p95_s[task] for each in twice if task in each.compute_p95_s]
            if min(p50) > 0:
                known[task] = (sum(p50) / len(p50), max(p95))
        rounds.append(known)
    base = rates[0] or 1.0
    return [rate / base for rate in rates], rounds


def probe_failed(state: SeatsState, event: records.ProbeFailed, out: list[Record]) -> None:
    """Go back to the seats of before the probe."""
    device = state.of(event)
    if device.phase in {"raising", "measuring"}:
        device.measured, device.rates, device.rounds = [], [], []
        device.n_idle += 1
        plan(device, device.n_seats, f"as before: the probe failed ({event.reason})", out)


def plan(device: Device, n_seats: int, reason: str, out: list[Record]) -> None:
    """Decide on a number of seats and command it."""
    device.phase, device.n_seats, device.back = "setting", n_seats, ""
    device.times = []
    out.append(records.SeatsPlanned(device=device.name, n_seats=n_seats, rates=tuple(device.rates), reason=reason))
    out.append(records.SetSeats(device=device.name, n_seats=n_seats))


def seats_set(state: SeatsState, event: records.SeatsSet, out: list[Record]) -> None:
    """Count the seats that the pool has now; training goes on with them."""
    device = state.of(event, {"setting"})
    device.phase, device.times, device.since_t = "still", [], None
    device.n_seats = device.n_up = min(event.n_seats, device.n_most)


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB"
