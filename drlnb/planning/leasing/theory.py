"""Compute what sharing slots gives at best, and what queueing theory expects."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ExpectedLoad", "bound", "expected_load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLoad:
    """What the machine-repairman model expects of a pool."""

    #: Share of the slots' time in which they compute, dimensionless.
    utilisation_frac: float
    #: The most that this share can be, dimensionless.
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
    Ours; it bounds the gain of seed 000's leases over one slot per task at 1/d.

    Examples
    --------
    >>> bound([0.25, 0.25, 0.25], n_slots=1)
    0.75
    >>> bound([0.5, 0.5, 0.5], n_slots=1)
    1.0
    """
    _count("n_slots", n_slots)
    for i, each in enumerate(d):
        _duty(f"d[{i}]", each)
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
    _count("n_tasks", n_tasks)
    _count("n_slots", n_slots)
    _duty("d", d)
    r = d / (1.0 - d)
    # Logarithms: C(1000, 500) alone is beyond a float.
    logs = [0.0]
    for k in range(1, n_tasks + 1):
        logs.append(logs[-1] + math.log((n_tasks - k + 1) * r / min(k, n_slots)))
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    busy = math.fsum(min(k, n_slots) * weight for k, weight in enumerate(weights)) / math.fsum(weights)
    return ExpectedLoad(
        utilisation_frac=busy / n_slots,
        bound_frac=bound([d] * n_tasks, n_slots),
        inflation=n_tasks * d / busy,
    )


def _count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be >= 1, got {value}")


def _duty(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be in (0, 1), got {value}")
