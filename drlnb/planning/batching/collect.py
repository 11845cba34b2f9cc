"""Describe a round's collectors as members of a split, and keep its samples as many where their environments differ."""

from collections.abc import Sequence

from drlnb.planning.batching.planner import BatchPlan, BatchView
from drlnb.planning.batching.split import Member, real_shares

__all__ = ["collect_members", "collect_steps"]

#: No collector makes less than this part of the algorithm's `n_steps`, nor more than so many times as much, nor less
#: than so many steps: short fragments lean on the value net.
_PART, _LEAST_STEPS = 4, 4


def collect_members(
    collectors: Sequence[int], n_envs: Sequence[int], sample_s: Sequence[float | None], *, n_steps: int
) -> tuple[Member, ...]:
    """Return collectors as members, whose units are steps of all their environments.

    Parameters
    ----------
    collectors, n_envs
        Their numbers, and the environments of each.
    sample_s
        Seconds per sample of each one, as measured lately; None where nothing has been measured: then all are alike.
    n_steps
        Steps per environment that the algorithm asks for.
    """
    low, high = _bounds(n_steps)
    paces = [s * n for s, n in zip(sample_s, n_envs, strict=True) if s is not None and s > 0]
    if len(paces) < len(collectors):
        paces = [1.0] * len(collectors)
    return tuple([
        Member(id=str(i), speed_hz=1 / pace, n_min=low, n_max=high) for i, pace in zip(collectors, paces, strict=True)
    ])


def _bounds(n_steps: int) -> tuple[int, int]:
    return min(n_steps, max(_LEAST_STEPS, -(-n_steps // _PART))), _PART * n_steps


def collect_steps(view: BatchView, plan: BatchPlan) -> tuple[int, ...]:
    """Return the steps per environment of each collector.

    The round has as many samples as the algorithm asks for.  Collectors' environments differ by one at most
    (:func:`~drlnb.planning.batching.shares.env_shares`): where they do, the planned steps are scaled, and rounded by
    largest remainder; where no whole numbers within the bounds do it, all make the algorithm's own `n_steps`.  Steps
    that a planner gives by themselves are taken as they are.
    """
    steps, n_envs = plan.n_steps or plan.sizes, view.n_envs
    n_samples = view.n_steps * sum(n_envs)
    if plan.n_steps or sum(n * k for n, k in zip(n_envs, steps, strict=True)) == n_samples:
        return tuple(steps)
    low, high = _bounds(view.n_steps)
    members = [
        Member(id=str(i), speed_hz=k * n, n_min=low * n, n_max=high * n)
        for i, k, n in zip(view.collectors, steps, n_envs, strict=True)
    ]
    shares = real_shares(n_samples, members, allow_idle=False)
    real = [share / n for share, n in zip(shares, n_envs, strict=True)]
    return _rounded(real, view) or (view.n_steps,) * len(steps)


def _rounded(shares: Sequence[float], view: BatchView) -> tuple[int, ...]:
    """Round real steps so that the samples are as many as they shall be; empty if that cannot be.

    Samples that are left over, too few for a step of any collector, come from trading steps between two sizes.
    """
    low, high = _bounds(view.n_steps)
    steps = [int(share + 1e-9) for share in shares]
    left = view.n_steps * sum(view.n_envs) - sum(n * k for n, k in zip(view.n_envs, steps, strict=True))
    for i in sorted(range(len(steps)), key=lambda i: (steps[i] - shares[i], i)):
        if view.n_envs[i] <= left and steps[i] < high:
            steps[i] += 1
            left -= view.n_envs[i]
    small, large = min(view.n_envs), max(view.n_envs)
    while left > 0:
        givers = [i for i, n in enumerate(view.n_envs) if n == small and steps[i] > low]
        takers = [i for i, n in enumerate(view.n_envs) if n == large and steps[i] < high]
        if not givers or not takers:
            break
        steps[max(givers, key=lambda i: steps[i] - shares[i])] -= 1
        steps[min(takers, key=lambda i: steps[i] - shares[i])] += 1
        left -= large - small
    return tuple(steps) if left == 0 else ()
