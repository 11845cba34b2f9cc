"""Deal a task's environments to its collectors, and what they make to its learners."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

__all__ = ["env_shares", "learner_shares"]


def env_shares(n_envs: int, n_collectors: int) -> tuple[tuple[int, ...], ...]:
    """Deal `n_envs` environment indices to collectors in contiguous runs that differ by at most one.

    Parameters
    ----------
    n_envs
        Environments of the task, at least `n_collectors`.
    n_collectors
        Collectors, at least 1.

    Returns
    -------
    tuple of tuple of int
        One run of indices per collector; the first ``n_envs mod n_collectors`` get one more (largest remainder).

    Raises
    ------
    ValueError
        If a collector would get no environment.

    Examples
    --------
    >>> env_shares(5, 2)
    ((0, 1, 2), (3, 4))
    """
    if not 1 <= n_collectors <= n_envs:
        raise ValueError(f"n_collectors must be in 1..n_envs = {n_envs}, got {n_collectors}")
    q, r = divmod(n_envs, n_collectors)
    starts = [i * q + min(i, r) for i in range(n_collectors + 1)]
    return tuple(tuple(range(a, b)) for a, b in pairwise(starts))


def learner_shares(n_samples: Sequence[int], n_learners: int) -> tuple[int, ...]:
    """Deal whole shares to learners in contiguous runs whose largest one has as few samples as can be.

    Parameters
    ----------
    n_samples
        Samples of each collector's share, each at least 1.
    n_learners
        Learners, at least 1; as many as there are shares are used.

    Returns
    -------
    tuple of int
        Number of the learner of each share, from 0 on.

    Examples
    --------
    >>> learner_shares([32, 32, 32], 2), learner_shares([10, 10, 40], 2)
    ((0, 0, 1), (0, 0, 1))
    """
    n_used = min(n_learners, len(n_samples))
    limits = range(max(n_samples), sum(n_samples) + 1)
    least = bisect_left(limits, True, key=lambda limit: _runs(n_samples, n_used, limit)[-1] < n_used)
    return _runs(n_samples, n_used, limits[least])


def _runs(n_samples: Sequence[int], n_learners: int, limit: int) -> tuple[int, ...]:
    """Fill one learner after the other up to a limit in samples, but leave a share for each that is to come."""
    learners: list[int] = []
    learner = filled = 0
    for i, n in enumerate(n_samples):
        if learners and (filled + n > limit or len(n_samples) - i < n_learners - learner):
            learner, filled = learner + 1, 0
        learners.append(learner)
        filled += n
    return tuple(learners)
