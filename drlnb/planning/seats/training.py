"""Compare rounds of training with the probe's: try fewer seats where rounds are slow, and keep what does more."""

from drlnb.planning.seats.probing import plan, probe
from drlnb.planning.seats.rules import percentile, slowed, wait_s
from drlnb.planning.seats.state import Device, SeatsState
from drlnb.records.base import Record
from drlnb.records.seats import ComputeMeasured, RaiseSeats, TaskLeft


def task_left(state: SeatsState, event: TaskLeft, out: list[Record]) -> None:
    """Forget a task wherever it computed."""
    for device in state.devices.values():
        if device.seen.pop(event.task, None) is not None:
            device.forget_training()


def compute_measured(state: SeatsState, event: ComputeMeasured, out: list[Record]) -> None:
    """Count a round of a task; change the seats, or begin a probe, if that is due."""
    device = state.of(event)
    if event.task not in device.seen:
        device.seen = dict.fromkeys((*device.seen, event.task), 0)
        device.forget_training()
    device.seen[event.task] += 1
    if device.phase != "still":
        return
    known = device.rounds[device.n_seats - 1].get(event.task) if len(device.rounds) >= device.n_seats else None
    if known is not None:
        device.times.append((event.compute_s / known[0], event.compute_s / known[1]))
    n_before = len(out)
    _settle(state, device, event.task, out)
    if len(out) == n_before:
        probe(state, device, out)


def _settle(state: SeatsState, device: Device, task: str, out: list[Record]) -> None:
    """Count the work of a round; compare once enough rounds have been counted."""
    if device.since_t is None:
        device.since_t, device.times, device.work_s = state.t, [], 0.0  # this round began before
        return
    alone = device.rounds[0].get(task) if device.rounds else None
    device.work_s += 0.0 if alone is None else alone[0]
    elapsed_s = state.t - device.since_t
    if elapsed_s < state.settings.settle_s or len(device.times) < state.settings.fewest:
        return
    rate = device.work_s / elapsed_s
    if device.more_rate:
        _judge(state, device, rate, out)
    elif state.t >= device.keep_until_t and _shrink(state, device, out):
        device.more_rate = rate
    device.since_t, device.times, device.work_s = state.t, [], 0.0


def _judge(state: SeatsState, device: Device, rate: float, out: list[Record]) -> None:
    """Add the seat again if fewer do less than it did."""
    more = device.more_rate
    if rate >= (1 - state.settings.margin_frac) * more:
        device.more_rate = 0.0
    elif state.is_still:  # else one device at a time; it is judged again
        device.more_rate, device.shrunk = 0.0, False
        device.keep_until_t = state.t + wait_s(device.n_idle, state.settings)
        n_seats = device.n_seats + 1
        device.back = f"in training {device.n_seats} did {rate / more:.2f} x the work of {n_seats}"
        device.phase, device.n_try = "raising", n_seats
        out.append(RaiseSeats(device=device.name, n_seats=n_seats))


def _shrink(state: SeatsState, device: Device, out: list[Record]) -> bool:
    """Remove a seat if rounds have become slow beside the probe's; return whether it was."""
    if device.n_seats == 1 or len(device.times) < state.settings.fewest:
        return False
    p50 = percentile([time[0] for time in device.times], 0.5)
    p95 = percentile([time[1] for time in device.times], 0.95)
    reason = slowed(p50, p95, device.rates, device.n_seats, state.settings)
    if not reason:
        return False
    device.shrunk = True
    device.n_idle += 1
    device.probed_t = state.t
    plan(device, device.n_seats - 1, reason, out)
    return True
