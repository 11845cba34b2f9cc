"""How many events per second does the lease table take, and how does an event's cost grow with those who wait?"""

import gc
import time
from collections import Counter, deque
from collections.abc import Iterator

import numpy as np

from drlnb.bench.leasing import Effort
from drlnb.bench.report import Bar, Row
from drlnb.planning.leasing import LeaseTable, LeasingSettings
from drlnb.records.base import Event, Record
from drlnb.records.columns.leasing import LeaseGranted, LeaseRenewed, LeaseReturned, SlotAdded, SlotRequested

__all__ = ["cost_s", "events"]

#: Tasks that wait; the bar is about a thousand.
WAITING = (10, 30, 100, 300, 1000, 3000, 10_000)
_AT, _LEAST_HZ = 1000, 10_000
_N_SLOTS = 8
#: Times that each number is measured; the fastest counts: what is slower is the machine's doing.
_REPEATS = 3


def events(effort: Effort) -> tuple[Row, ...]:
    """Time the table with more and more tasks waiting; fit the growth of an event's cost."""
    costs = {n: min(cost_s(n, effort.events) for _ in range(_REPEATS)) for n in WAITING}
    logs = np.log2(np.array(list(costs)))
    seconds = np.array(list(costs.values()))
    slope_s, base_s = np.polyfit(logs, seconds, 1)
    power = float(np.polyfit(np.log(np.array(list(costs))), np.log(seconds), 1)[0])
    first, last = WAITING[0], WAITING[-1]
    points = tuple(
        Row(
            id=f"events-{n}",
            what=f"events/s of LeaseTable.handle on one core, {n} tasks waiting for {_N_SLOTS} slots",
            unit="/s",
            samples=(1.0 / cost,),
            bar=Bar("value", at_least=_LEAST_HZ) if n == _AT else None,
        )
        for n, cost in costs.items()
    )
    growth = Row(
        id="events-growth",
        what=f"cost of an event with {last} waiting over that with {first}; fit: {base_s * 1e6:.1f} us + "
        f"{slope_s * 1e6:.2f} us x log2(n), as a power n^{power:.3f}",
        unit="",
        samples=(costs[last] / costs[first],),
        baseline_samples=(float(np.log2(last) / np.log2(first)),),
        against="log2(n) over the same range",
        bar=Bar("ratio", at_most=1.0),
    )
    return (*points, growth)


def cost_s(n_waiting: int, n_events: int) -> float:
    """Return the mean seconds of an event while `n_waiting` tasks wait."""
    table, traffic = LeaseTable(LeasingSettings(), epoch=1), _Traffic()
    for event in traffic.opening(n_waiting):
        traffic.hear(table.handle(event))
    was_on = gc.isenabled()
    gc.disable()
    try:
        spent_s = 0.0
        for _ in range(n_events):
            event = traffic.next()
            began = time.thread_time()
            answer = table.handle(event)
            spent_s += time.thread_time() - began
            traffic.hear(answer)
    finally:
        if was_on:
            gc.enable()
    return spent_s / n_events


class _Traffic:
    """Tasks that hold in turn: a renewal, a return that lets the next one in, and a request for another round."""

    def __init__(self) -> None:
        self._t = 0.0
        self._rounds: Counter[str] = Counter()
        self._holders: deque[LeaseGranted] = deque()
        self._step = 0
        self._returned = ""

    def opening(self, n_waiting: int) -> Iterator[Event]:
        """Yield what fills the slots and the queue."""
        for k in range(_N_SLOTS):
            yield SlotAdded(t=0.0, slot=f"n0/s{k}", node="n0", device="cpu", executor_epoch=1)
        for k in range(n_waiting + _N_SLOTS):
            yield self._request(f"t{k}")

    def hear(self, answer: tuple[Record, ...]) -> None:
        """Note who was granted a slot."""
        self._holders.extend(record for record in answer if isinstance(record, LeaseGranted))

    def next(self) -> Event:
        """Return the next event, 10 ms after the last one."""
        self._t += 0.01
        self._step += 1
        if self._step % 3 == 0:
            return self._request(self._returned)
        if self._step % 3 == 1:
            return LeaseRenewed(t=self._t, fence=self._holders[-1].fence, n_progress=1)
        holder = self._holders.popleft()
        self._returned = holder.task
        return LeaseReturned(t=self._t, fence=holder.fence, clean=True, computed_s=0.01)

    def _request(self, task: str) -> SlotRequested:
        self._rounds[task] += 1
        k = self._rounds[task]
        return SlotRequested(t=self._t, request_id=f"{task}/{k}", task=task, attempt=1, round=k, node="n0", yields=True)
