"""Expect how long a gang takes on slots that fail, in closed form, and bound how soon a batch of jobs can be over."""

import math
from collections.abc import Iterable, Sequence

from drlnb.records.errors import ConfigError

__all__ = ["best_checkpoint_s", "expected_completion_s", "least_makespan_s", "log_completion", "n_checkpoints"]

#: Beyond it ``exp`` overflows.
_MOST_LOG = 709.0


def n_checkpoints(work_s: float, checkpoint_s: float | None) -> int:
    """Return the checkpoints that a job makes; none is made at its end.

    Examples
    --------
    >>> n_checkpoints(7200, 3600), n_checkpoints(7201, 3600), n_checkpoints(7200, None)
    (1, 2, 0)
    """
    return 0 if checkpoint_s is None else max(0, math.ceil(work_s / checkpoint_s) - 1)


def expected_completion_s(
    work_s: float,
    rates_hz: Sequence[float],
    *,
    checkpoint_s: float | None = 3600.0,
    checkpoint_cost_s: float = 10.0,
    restart_s: float = 600.0,
    downtime_s: float = 0.0,
    slowdown: float = 1.0,
) -> float:
    """Expect the seconds from a gang's first start to its end.

    Its slots fail independently of each other, with constant rates; the first failure stops the gang, which goes on
    from its last checkpoint.  With a total rate L, K full intervals and a rest w of the work it is
    ``(1/L + downtime) exp(L restart) [K (exp(L (checkpoint slowdown + cost)) - 1) + exp(L w slowdown) - 1]``, Daly's
    exact form (Future Generation Computer Systems 22, 2006) with a downtime.

    Parameters
    ----------
    work_s
        Seconds of work without a failure.
    rates_hz
        Failures per second of each slot of the gang; shape ``(n_slots,)``.
    checkpoint_s
        Seconds of work between two checkpoints; None: every failure costs all of it.
    checkpoint_cost_s
        Seconds that a checkpoint takes.
    restart_s
        Seconds that every start but the first takes before work goes on.
    downtime_s
        Seconds that a slot which failed is missing; 0 where another one takes its place.
    slowdown
        Times as long as the work takes on the slots at hand.

    Returns
    -------
    float
        Seconds; infinite where they are more than a float holds.

    Raises
    ------
    ConfigError
        If a number is negative or not finite, or an interval between checkpoints is 0.

    Examples
    --------
    A day's work on 16 slots that each fail once in 20 days:

    >>> rates = [1 / (20 * 86_400)] * 16
    >>> round(expected_completion_s(86_400, rates, checkpoint_s=None, restart_s=0) / 3600, 1)
    36.8
    """
    numbers = {"work_s": work_s, "checkpoint_cost_s": checkpoint_cost_s, "restart_s": restart_s}
    numbers |= {"downtime_s": downtime_s, "slowdown": slowdown}
    numbers |= {f"rates_hz[{i}]": rate for i, rate in enumerate(rates_hz)}
    for name, number in numbers.items():
        if not 0 <= number < math.inf:
            raise ConfigError(f"{name} must be a finite number >= 0, got {number!r}")
    if checkpoint_s is not None and not 0 < checkpoint_s < math.inf:
        raise ConfigError(f"checkpoint_s must be seconds above 0, or None for no checkpoints, got {checkpoint_s!r}")
    log = log_completion(
        work_s,
        sum(rates_hz),
        checkpoint_s=checkpoint_s,
        checkpoint_cost_s=checkpoint_cost_s,
        restart_s=restart_s,
        downtime_s=downtime_s,
        slowdown=slowdown,
    )
    return math.exp(log) if log < _MOST_LOG else math.inf


def log_completion(
    work_s: float,
    rate_hz: float,
    *,
    checkpoint_s: float | None,
    checkpoint_cost_s: float,
    restart_s: float,
    downtime_s: float = 0.0,
    slowdown: float = 1.0,
) -> float:
    """Return the natural logarithm of :func:`expected_completion_s` for a gang's total rate; it never overflows."""
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
    return math.log(1.0 / rate_hz + downtime_s) + rate_hz * restart_s + total


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
