"""Compute how far ahead to start when the arrival is known: a newsvendor with n newspapers and one customer."""

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["best_lead", "critical_quantile"]

#: Halvings of (0, 1): below the spacing of floats.
_HALVINGS = 60


def critical_quantile(n: int, rho: float) -> float:
    """Return the quantile of start durations that is the best lead: the root of ``q = rho (1 - q^n)``.

    Parameters
    ----------
    n
        Workers at the barrier, at least 1.
    rho
        Cost of one second of a delayed round, relative to one second of all workers idle; dimensionless, above 0.

    Returns
    -------
    float
        Probability that one worker is ready in time, dimensionless, in ``(0, 1)``.

    Raises
    ------
    ValueError
        If `n` < 1, or `rho` is not finite and above 0.

    References
    ----------
    Ours.  With lead L the cost per second is ``rho`` while any of n starts lasts longer than L (probability
    ``1 - q^n``) and 1/n per worker that is ready (probability q each); the best L balances both.

    Examples
    --------
    >>> critical_quantile(1, 1.0)
    0.5
    >>> round(critical_quantile(n=8, rho=1.0), 4)
    0.8117
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, got {n}")
    if not (math.isfinite(rho) and rho > 0):
        raise ValueError(f"rho must be finite and > 0, got {rho}")
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        q = 0.5 * (low + high)
        low, high = (q, high) if q < rho * (1.0 - q**n) else (low, q)
    return round(0.5 * (low + high), 12)


def best_lead(pools_s: Sequence[Sequence[float]], rho: float) -> tuple[float, float]:
    """Return the critical quantile of some workers' starts, and the lead at it: L*.

    Parameters
    ----------
    pools_s
        Start durations that are a guide to each worker's, in seconds; one non-empty sequence per worker.
    rho
        As for :func:`critical_quantile`.

    Returns
    -------
    quantile : float
        Dimensionless, in ``(0, 1)``.
    lead_s : float
        In seconds.

    Raises
    ------
    ValueError
        If there is no worker or no start, or `rho` is not finite and above 0.

    Examples
    --------
    >>> best_lead([[1.0, 2.0, 3.0]], rho=1.0)
    (0.5, 2.0)
    """
    quantile = critical_quantile(len(pools_s), rho)
    known = [value for pool in pools_s for value in pool]
    if not known:
        raise ValueError(f"pools_s must hold at least one start, got none for {len(pools_s)} workers")
    return quantile, float(np.quantile(known, quantile))
