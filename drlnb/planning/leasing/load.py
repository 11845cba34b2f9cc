"""Measure how long tasks hold slots and how busy they keep them, and estimate what theory expects of that.

All of it is measured by the lease table from its own events: a hold is the time from grant to release, the duty of a
round is its slot compute over its time less the waiting for slots (leasing 4.6).
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from drlnb.planning.leasing.life import Lease, TaskBook
from drlnb.records.columns.leasing import LoadEstimated

__all__ = ["ExpectedLoad", "LoadBook", "bound", "expected_load"]

#: Holds of all tasks that the quantum of the queue ``drr`` is the median of.
_HOLDS = 64
#: Least seconds of event time between two estimates.
_EVERY_S = 1.0
#: Digits of a mean duty that make an estimate another one.
_DIGITS = 2


@dataclass(slots=True)
class LoadBook:
    """Holds and duties of one pool."""

    #: Median of the latest holds of all tasks, in seconds; 0 before the first.
    quantum_s: float = 0.0
    #: Turn of the round robin (queue ``drr``): that of the latest grant, in slot seconds.
    turn: float = 0.0
    #: Latest holds of all tasks, in seconds.
    holds: deque[float] = field(default_factory=lambda: deque(maxlen=_HOLDS))
    #: Task -> mean duty of its latest rounds, and the sum of these.
    duty: dict[str, float] = field(default_factory=dict)
    duty_sum: float = 0.0
    #: Tasks whose latest round asked for several slots, and how many: theory knows no such ones, and says nothing.
    gangs: dict[str, int] = field(default_factory=dict)
    #: The latest estimate's tasks, slots and duty, and its event time.
    estimated: tuple[int, int, float] | None = None
    estimated_t: float = 0.0

    def asked(self, task: str, book: TaskBook, lease: Lease) -> None:
        """Count a request: the first one of another round closes the round before it."""
        if lease.round == book.round:
            return
        span_s = lease.asked_t - book.round_t - book.waited_s
        book.round_s = lease.asked_t - book.round_t if 0 <= book.round == lease.round - 1 else 0.0
        if lease.n_slots > 1:
            self.gone(task)
            self.gangs[task] = lease.n_slots
        elif task in self.gangs:
            del self.gangs[task]  # the round that ends was of several slots
        elif book.round > 0 and lease.round == book.round + 1 and 0.0 < book.computed_s < span_s:
            book.duties.append(book.computed_s / span_s)
            duty = sum(book.duties) / len(book.duties)
            self.duty_sum += duty - self.duty.get(task, 0.0)
            self.duty[task] = duty
        book.round, book.round_t, book.computed_s, book.waited_s = lease.round, lease.asked_t, 0.0, 0.0

    def ended(self, book: TaskBook, lease: Lease, held_s: float, computed_s: float) -> None:
        """Count a hold that has ended."""
        if lease.round == book.round:
            book.computed_s += computed_s
            book.waited_s += lease.waited_s
        book.holds.append(held_s)
        ordered = sorted(book.holds)
        book.hold_p95_s = ordered[math.ceil(0.95 * len(ordered)) - 1]
        self.holds.append(held_s)
        median = sorted(self.holds)
        self.quantum_s = median[len(median) // 2]
        book.turn = lease.turn + held_s * len(lease.slots)

    def gone(self, task: str) -> None:
        """Forget the duty of a task that has ended."""
        self.duty_sum -= self.duty.pop(task, 0.0)
        self.gangs.pop(task, None)

    def estimate(self, t: float, n_slots: int) -> LoadEstimated | None:
        """Return what theory expects, if the load is not that of the last estimate, at most once per second."""
        n_tasks = len(self.duty)
        too_soon = self.estimated is not None and t < self.estimated_t + _EVERY_S
        if too_soon or not n_tasks or not n_slots or self.gangs:
            return None
        d = self.duty_sum / n_tasks
        now = (n_tasks, n_slots, round(d, _DIGITS))
        if now == self.estimated or not 0.0 < d < 1.0:
            return None
        self.estimated, self.estimated_t = now, t
        load = expected_load(n_tasks, n_slots, d)
        return LoadEstimated(
            n_tasks=n_tasks,
            n_slots=n_slots,
            d_mean=d,
            bound_frac=load.bound_frac,
            expected_utilisation_frac=load.utilisation_frac,
            expected_inflation=load.inflation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLoad:
    """What the machine-repairman model expects of a pool."""

    #: Share of the slots' time in which they compute, dimensionless.
    utilisation_frac: float
    #: The most that this share can be, ``min(1, T d / K)``, dimensionless (ours): it bounds the gain of the leasing
    #: patent's leases over one slot per task at 1/d.
    bound_frac: float
    #: Round time relative to that of a task alone, dimensionless, at least 1.
    inflation: float


def bound(d: Sequence[float], n_slots: int) -> float:
    """Return the highest possible utilisation of the slots, ``min(1, sum(d) / n_slots)``.

    Parameters
    ----------
    d
        Duty of each task: slot compute per round over round time when it runs alone, dimensionless, each in
        ``(0, 1)``; shape ``(n,)``.
    n_slots
        Number of slots, at least 1.

    Returns
    -------
    float
        Utilisation, dimensionless, in ``[0, 1]``.

    Raises
    ------
    ValueError
        If a duty is outside ``(0, 1)`` or `n_slots` < 1.

    References
    ----------
    Ours; it bounds the gain of the leasing patent's leases over one slot per task at 1/d.

    Examples
    --------
    >>> bound([0.25, 0.25, 0.25], n_slots=1)
    0.75
    >>> bound([0.5, 0.5, 0.5], n_slots=1)
    1.0
    """
    if n_slots < 1:
        raise ValueError(f"n_slots must be >= 1, got {n_slots}")
    for i, each in enumerate(d):
        if not 0.0 < each < 1.0:
            raise ValueError(f"d[{i}] must be in (0, 1), got {each}")
    return min(1.0, math.fsum(d) / n_slots)


def expected_load(n_tasks: int, n_slots: int, d: float) -> ExpectedLoad:
    """Return what the machine-repairman model expects: exponential times, so pessimistic.

    With ``r = d / (1 - d)`` the weight of k tasks at the slots is ``C(T, k) r^k`` for ``k <= K``, times
    ``k! / (K! K^(k-K))`` beyond.  Utilisation is ``E[min(k, K)] / K``, inflation ``T d / (K U)``.

    Parameters
    ----------
    n_tasks
        Number of tasks T, at least 1.
    n_slots
        Number of slots K, at least 1.
    d
        Duty of every task, dimensionless, in ``(0, 1)``.

    Raises
    ------
    ValueError
        If a count is below 1 or `d` outside ``(0, 1)``.

    References
    ----------
    Machine repairman with K servers (Palm 1947).

    Examples
    --------
    Two tasks, one slot, d = 0.5: weights 1, 2, 2, so the slot works 4/5 of the time.

    >>> load = expected_load(n_tasks=2, n_slots=1, d=0.5)
    >>> round(load.utilisation_frac, 6), round(load.inflation, 6)
    (0.8, 1.25)
    """
    if n_tasks < 1:
        raise ValueError(f"n_tasks must be >= 1, got {n_tasks}")
    bound_frac = bound([d] * n_tasks, n_slots)
    r = d / (1.0 - d)
    # Logarithms: C(1000, 500) alone is beyond a float.
    logs = [0.0]
    for k in range(1, n_tasks + 1):
        logs.append(logs[-1] + math.log((n_tasks - k + 1) * r / min(k, n_slots)))
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    busy = math.fsum(min(k, n_slots) * weight for k, weight in enumerate(weights)) / math.fsum(weights)
    return ExpectedLoad(utilisation_frac=busy / n_slots, bound_frac=bound_frac, inflation=n_tasks * d / busy)
