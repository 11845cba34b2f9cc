"""How long do tasks hold slots, how busy do they keep them, and what does theory expect of that?

All of it is measured by the lease table from its own events: a hold is the time from grant to release, the duty of a
round is its slot compute over its time less the waiting for slots (leasing 4.6).
"""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from drlnb.planning.leasing.life import Lease, TaskBook
from drlnb.planning.leasing.theory import expected_load
from drlnb.records.columns.leasing import LoadEstimated

__all__ = ["LoadBook"]

#: Holds of all tasks that the quantum of the queue ``drr`` is the median of.
_HOLDS = 64
#: Least seconds of event time between two estimates.
_EVERY_S = 1.0
#: Digits of a mean duty that make an estimate another one.
_DIGITS = 2


class LoadBook:
    """Holds and duties of one pool."""

    def __init__(self) -> None:
        #: Median of the latest holds of all tasks, in seconds; 0 before the first.
        self.quantum_s = 0.0
        #: Turn of the round robin (queue ``drr``): that of the latest grant.
        self.turn = 0.0
        self._holds: deque[float] = deque(maxlen=_HOLDS)
        #: Task -> mean duty of its latest rounds.
        self._duty: dict[str, float] = {}
        self._duty_sum = 0.0
        self._said: tuple[int, int, float] | None = None
        self._said_t = -math.inf

    # -------------------------------------------------------------- measuring
    def asked(self, task: str, book: TaskBook, lease: Lease) -> None:
        """Note a request: the first one of another round closes the round before it."""
        if lease.round == book.round:
            return
        span_s = lease.asked_t - book.round_t - book.waited_s
        if book.round > 0 and lease.round == book.round + 1 and 0.0 < book.computed_s < span_s:
            book.duties.append(book.computed_s / span_s)
            duty = sum(book.duties) / len(book.duties)
            self._duty_sum += duty - self._duty.get(task, 0.0)
            self._duty[task] = duty
        book.round, book.round_t, book.computed_s, book.waited_s = lease.round, lease.asked_t, 0.0, 0.0

    def ended(self, book: TaskBook, lease: Lease, held_s: float, computed_s: float) -> None:
        """Note the end of a lease."""
        if lease.round == book.round:
            book.computed_s += computed_s
            book.waited_s += lease.granted_t - lease.asked_t
        book.holds.append(held_s)
        ordered = sorted(book.holds)
        book.hold_p95_s = ordered[math.ceil(0.95 * len(ordered)) - 1]
        self._holds.append(held_s)
        median = sorted(self._holds)
        self.quantum_s = median[len(median) // 2]
        if self.quantum_s > 0.0:
            book.turn = lease.turn + held_s * lease.n_slots / self.quantum_s

    def gone(self, task: str) -> None:
        """Forget the duty of a task that has ended."""
        self._duty_sum -= self._duty.pop(task, 0.0)

    # -------------------------------------------------------------- saying
    def estimate(self, t: float, n_slots: int) -> LoadEstimated | None:
        """Return what theory expects, if the load is another one than was said last, at most once per second."""
        n_tasks = len(self._duty)
        if t < self._said_t + _EVERY_S or not n_tasks or not n_slots:
            return None
        d = self._duty_sum / n_tasks
        now = (n_tasks, n_slots, round(d, _DIGITS))
        if now == self._said or not 0.0 < d < 1.0:
            return None
        self._said, self._said_t = now, t
        load = expected_load(n_tasks, n_slots, d)
        return LoadEstimated(
            n_tasks=n_tasks,
            n_slots=n_slots,
            d_mean=d,
            bound_frac=load.bound_frac,
            expected_utilisation_frac=load.utilisation_frac,
            expected_inflation=load.inflation,
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "quantum_s": self.quantum_s,
            "turn": self.turn,
            "holds": list(self._holds),
            "duty": dict(self._duty),
            "duty_sum": self._duty_sum,
            "said": None if self._said is None else list(self._said),
            "said_t": self._said_t if self._said is not None else None,
        }

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Take on the state of :meth:`snapshot`."""
        self.quantum_s, self.turn = plain["quantum_s"], plain["turn"]
        self._holds = deque(plain["holds"], maxlen=_HOLDS)
        self._duty, self._duty_sum = dict(plain["duty"]), plain["duty_sum"]
        if plain["said"] is not None:
            n_tasks, n_slots, d = plain["said"]
            self._said, self._said_t = (n_tasks, n_slots, d), plain["said_t"]
