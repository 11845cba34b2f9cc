"""Size each collector's share by the measured speed of its node, so that all finish at about the same time."""

from collections.abc import Sequence
from dataclasses import replace

from drlnb.planning.batching.planner import BatchPlan, BatchView
from drlnb.planning.batching.split import Member, real_shares

__all__ = ["Proportional", "by_largest_remainder"]

#: No collector makes less than this share of the algorithm's `n_steps` (short fragments lean on the value net), nor
#: more than its inverse.
_LEAST_FRAC = 4
#: Halvings of the level that the shares are cut at: beyond the precision of a float.
_HALVINGS = 64


class Proportional:
    """Steps in inverse proportion to the seconds that a step takes, within bounds; the round's samples stay as many.

    Until every node has been measured, and where no whole numbers within the bounds keep the number of samples, all
    collectors make the algorithm's own `n_steps`.
    """

    name = "proportional"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the steps of each collector."""
        equal = (view.n_steps,) * len(view.collectors)
        paces = [s for s in view.sample_s if s is not None and s > 0]
        if len(paces) < len(view.collectors):
            return BatchPlan(n_steps=equal)
        low, high = max(1, -(-view.n_steps // _LEAST_FRAC)), _LEAST_FRAC * view.n_steps
        step_s = [pace * n for pace, n in zip(paces, view.n_envs, strict=True)]
        steps = _rounded(_level(view, step_s, low, high), view, low, high)
        return BatchPlan(n_steps=steps or equal)


def by_largest_remainder(n_units: int, members: Sequence[Member], *, allow_idle: bool = True) -> tuple[int, ...]:
    """Split units in proportion to the members' speeds; what is left over goes to the largest remainders, ties by id.

    Overheads are not looked at.

    Raises
    ------
    InfeasibleSplit, ValueError
        As of :func:`~drlnb.planning.batching.split.plan_split`.

    Examples
    --------
    >>> by_largest_remainder(10, [Member(id="a", speed_hz=2), Member(id="b", speed_hz=1)])
    (7, 3)
    """
    shares = real_shares(n_units, [replace(each, overhead_s=0.0) for each in members], allow_idle=allow_idle)
    sizes = [int(share) for share in shares]
    order = sorted(range(len(sizes)), key=lambda i: (sizes[i] - shares[i], members[i].id))
    for i in order[: n_units - sum(sizes)]:
        sizes[i] += 1
    return tuple(sizes)


def _level(view: BatchView, step_s: Sequence[float], low: int, high: int) -> list[float]:
    """Return real numbers of steps that take the same time on all nodes but where a bound holds."""
    shortest, longest = 0.0, high * max(step_s)
    for _ in range(_HALVINGS):
        level_s = (shortest + longest) / 2
        shares = [min(max(level_s / each, low), high) for each in step_s]
        if sum(n * share for n, share in zip(view.n_envs, shares, strict=True)) < view.n_samples:
            shortest = level_s
        else:
            longest = level_s
    return shares


def _rounded(shares: Sequence[float], view: BatchView, low: int, high: int) -> tuple[int, ...]:
    """Round shares by largest remainder so that the samples are as many as before; empty if that cannot be.

    Collectors' environments differ by one at most (:func:`~drlnb.planning.batching.shares.env_shares`): samples that
    are left over, too few for a step of any collector, come from trading steps between two sizes.
    """
    steps = [int(share + 1e-9) for share in shares]
    left = view.n_samples - sum(n * k for n, k in zip(view.n_envs, steps, strict=True))
    for i in sorted(range(len(steps)), key=lambda i: (steps[i] - shares[i], i)):
        if view.n_envs[i] <= left and steps[i] < high:
            steps[i] += 1
            left -= view.n_envs[i]
    small, large = min(view.n_envs), max(view.n_envs)
    while left > 0 and large > small:
        givers = [i for i, n in enumerate(view.n_envs) if n == small and steps[i] > low]
        takers = [i for i, n in enumerate(view.n_envs) if n == large and steps[i] < high]
        if not givers or not takers:
            break
        steps[max(givers, key=lambda i: steps[i] - shares[i])] -= 1
        steps[min(takers, key=lambda i: steps[i] - shares[i])] += 1
        left -= large - small
    return tuple(steps) if left == 0 else ()
