"""Expect how long a gang takes on slots that fail, in closed form, and bound how soon a batch of jobs can be over."""

import math
from collections.abc import Iterable

__all__ = ["best_checkpoint_s", "least_makespan_s", "log_completion", "n_checkpoints"]


def n_checkpoints(work_s: float, checkpoint_s: float | None) -> int:
    """Return the checkpoints that a job makes; none is made at its end.

    Examples
    --------
    >>> n_checkpoints(7200, 3600), n_checkpoints(7201, 3600), n_checkpoints(7200, None)
    (1, 2, 0)
    """
    return 0 if checkpoint_s is None else max(0, math.ceil(work_s / checkpoint_s) - 1)


def log_completion(
    work_s: float,
    rate_hz: float,
    *,
    checkpoint_s: float | None,
    checkpoint_cost_s: float,
    restart_s: float,
    slowdown: float = 1.0,
) -> float:
    """Return the natural logarithm of the seconds from a gang's first start to its end; it never overflows.

    Its slots fail independently of each other, with constant rates; the first failure stops the gang, which goes on
    from its last checkpoint.  With a total rate L, K full intervals and a rest w of the work it takes
    ``1/L exp(L restart) [K (exp(L (checkpoint slowdown + cost)) - 1) + exp(L w slowdown) - 1]``, Daly's exact form
    (Future Generation Computer Systems 22, 2006).

    Parameters
    ----------
    work_s
        Seconds of work without a failure.
    rate_hz
        Failures per second of all slots of the gang.
    checkpoint_s
        Seconds of work between two checkpoints; None: every failure costs all of it.
    checkpoint_cost_s
        Seconds that a checkpoint takes.
    restart_s
        Seconds that every start but the first takes before work goes on.
    slowdown
        Times as long as the work takes on the slots at hand.

    Examples
    --------
    A day's work on 16 slots that each fail once in 20 days:

    >>> log = log_completion(86_400, 16 / (20 * 86_400), checkpoint_s=None, checkpoint_cost_s=10, restart_s=0)
    >>> round(math.exp(log) / 3600, 1)
    36.8
    """
    n_full = n_checkpoints(work_s, checkpoint_s)
    rest_s = (work_s - n_full * (checkpoint_s or 0.0)) * slowdown
    full_s = (checkpoint_s or 0.0) * slowdown + checkpoint_cost_s
    if rate_hz == 0.0:
        return _log(n_full * full_s + rest_s)
    terms = [_log_expm1(rate_hz * rest_s)]
    if n_full:
        terms.append(math.log(n_full) + _log_expm1(rate_hz * full_s))
    top = max(terms)
    total = top if top == -math.inf else top + math.log(sum(math.exp(term - top) for term in terms))
    return math.log(1.0 / rate_hz) + rate_hz * restart_s + total


def best_checkpoint_s(checkpoint_cost_s: float, rate_hz: float) -> float:
    """Return the seconds of work between checkpoints that cost least (Young's formula, CACM 17, 1974).

    Examples
    --------
    >>> best_checkpoint_s(10.0, 1 / 72_000)
    1200.0
    """
    return math.sqrt(2.0 * checkpoint_cost_s / rate_hz) if rate_hz else math.inf


def least_makespan_s(jobs: Iterable[tuple[int, float]], n_slots: int) -> float:
    """Return the seconds before which no plan can have ended a batch of jobs, whatever fails.

    Parameters
    ----------
    jobs
        Slots and seconds of work of each job.
    n_slots
        Slots of the cluster.

    Examples
    --------
    >>> least_makespan_s([(2, 10.0), (1, 4.0)], 2)
    12.0
    """
    rows = list(jobs)
    area = sum(n * work_s for n, work_s in rows) / n_slots
    return max([area, *(work_s for _, work_s in rows)])


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _log_expm1(x: float) -> float:
    """Return ``log(exp(x) - 1)``."""
    return x + _log(-math.expm1(-x))
