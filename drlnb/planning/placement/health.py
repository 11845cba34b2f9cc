"""Estimate how often slots fail from what was seen of them, and how long one that failed is out of use (ours)."""

from collections.abc import Sequence

__all__ = ["DAY_S", "hold_s", "n_since", "rates_hz"]

#: Seconds of a day.
DAY_S = 86_400.0
#: Failures that the belief before any is worth: slots' rates then vary by 1.12 times their mean, as published ones do.
_K = 0.8
#: Failures per second that a slot is expected to have before anything was seen: once in 337 days, as published.
_BEFORE_HZ = 1.0 / (337 * DAY_S)
#: Share of its node's rate in a slot's: failures of a node's slots have causes in common.
_NODE = 0.7
_MOST_HOLD_S = 7200.0


def rates_hz(n_failures: Sequence[int], seen_s: Sequence[float], node_of: Sequence[int]) -> tuple[float, ...]:
    """Return the failures per second that each slot is expected to have.

    Parameters
    ----------
    n_failures
        Failures of each slot that were seen; shape ``(n_slots,)``.
    seen_s
        Seconds in which one would have been seen; shape ``(n_slots,)``.  Where a slot is watched only while it is busy,
        that is its busy time: else those that idle would look healthy.
    node_of
        Number of each slot's node; shape ``(n_slots,)``.

    Returns
    -------
    tuple of float
        Mean of a gamma posterior around the mean of all slots; most of it is the node's.
    """
    mean_hz = (_K + sum(n_failures)) / (_K / _BEFORE_HZ + sum(seen_s))
    nodes = {node: [0.0, 0.0] for node in node_of}
    for node, n, s in zip(node_of, n_failures, seen_s, strict=True):
        nodes[node][0] += n
        nodes[node][1] += s

    def posterior(n: float, s: float) -> float:
        return (_K + n) / (_K / mean_hz + s)

    return tuple([
        _NODE * posterior(*nodes[node]) + (1 - _NODE) * posterior(n, s)
        for node, n, s in zip(node_of, n_failures, seen_s, strict=True)
    ])


def n_since(failed_t: Sequence[float], t: float) -> int:
    """Return the failures at or after a time."""
    return sum(failed >= t for failed in failed_t)


def hold_s(first_s: float, n_failures: int) -> float:
    """Return how long a slot stays out of use after its n-th failure of a day: each doubles it, up to two hours.

    Examples
    --------
    >>> hold_s(30.0, 1), hold_s(30.0, 3), hold_s(30.0, 9)
    (30.0, 120.0, 7200.0)
    """
    return float(min(_MOST_HOLD_S, first_s * 2 ** (n_failures - 1)))
