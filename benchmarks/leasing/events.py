"""Time the lease table: events per second, and how an event's cost grows with the tasks that wait."""

import gc
import math
import time
from collections import Counter, deque
from collections.abc import Iterator

from benchmarks.efforts import SimulatedLeasing
from benchmarks.frame.rows import Bar, Row
from drlnb.planning.leasing import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.records.base import Event
from drlnb.records.columns.leasing import LeaseGranted, LeaseRenewed, LeaseReturned, SlotAdded, SlotRequested

__all__ = ["WAITING", "cost_s", "events"]

#: Tasks that wait; the bar is about a thousand.
WAITING = (10, 30, 100, 300, 1000, 3000, 10_000)
_AT, _LEAST_HZ = 1000, 10_000
_N_SLOTS = 8
#: Events of a measurement, and how often each number is measured; the fastest counts: slower is the machine's doing.
_N_EVENTS, _REPEATS = 20_000, 3


def events(effort: SimulatedLeasing) -> Iterator[Row]:
    """Time the table with more and more tasks waiting, and how the cost of an event grows with them."""
    del effort
    costs = {n: min(cost_s(n, _N_EVENTS) for _ in range(_REPEATS)) for n in WAITING}
    for n, cost in costs.items():
        title = f"events/s of PoolMachine.handle on one core, {n} tasks waiting for {_N_SLOTS} slots"
        bar = Bar("value", at_least=_LEAST_HZ) if n == _AT else None
        yield Row(f"events-{n}", title, (1.0 / cost,), "/s", bar=bar)
    first, last = WAITING[0], WAITING[-1]
    title, growth = f"cost of an event with {last} waiting over that with {first}", costs[last] / costs[first]
    against, base = "log2(n) over the same range", (math.log2(last) / math.log2(first),)
    yield Row("events-growth", title, (growth,), "", against, base, bar=Bar("ratio", at_most=1.0))


def cost_s(n_waiting: int, n_events: int) -> float:
    """Return the mean seconds of an event while `n_waiting` tasks wait."""
    table, holders = PoolMachine(LeasingSettings(), epoch=1), deque[LeaseGranted]()
    traffic = _traffic(n_waiting, holders)
    spent_s = 0.0
    was_on = gc.isenabled()
    gc.disable()
    try:
        for number in range(-n_waiting - 2 * _N_SLOTS, n_events):  # first the slots, and who holds and waits for them
            event = next(traffic)
            began = time.thread_time()
            answer = table.handle(event)
            if number >= 0:
                spent_s += time.thread_time() - began
            holders.extend(record for record in answer if isinstance(record, LeaseGranted))
    finally:
        if was_on:
            gc.enable()
    return spent_s / n_events


def _traffic(n_waiting: int, holders: deque[LeaseGranted]) -> Iterator[Event]:
    """Yield slots and requests, then for ever a renewal, a return, and the next request of who returned."""
    t, rounds = 0.0, Counter[str]()

    def request(task: str) -> SlotRequested:
        rounds[task] += 1
        k = rounds[task]
        return SlotRequested(t=t, request_id=f"{task}/{k}", task=task, attempt=1, round=k, node="n0", yields=True)

    for k in range(_N_SLOTS):
        yield SlotAdded(t=t, slot=f"n0/s{k}", node="n0", device="cpu", executor_epoch=1)
    for k in range(n_waiting + _N_SLOTS):
        yield request(f"t{k}")
    while True:
        t += 0.01
        yield LeaseRenewed(t=t, fence=holders[-1].fence)
        holder = holders.popleft()
        t += 0.01
        yield LeaseReturned(t=t, fence=holder.fence, clean=True, computed_s=(0.01,))
        t += 0.01
        yield request(holder.task)
