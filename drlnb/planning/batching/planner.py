"""Which rule says how many steps each collector takes, and which environments does each own?"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

__all__ = ["BatchingPlanner", "Equal", "batching_planner", "env_shares"]


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


class BatchingPlanner(Protocol):
    """Observation in, plan out."""

    name: str

    def plan(self, *, collectors: Sequence[int], n_steps: int) -> tuple[int, ...]:
        """Return steps per environment for each collector, in the order of `collectors`."""


class Equal:
    """Each collector takes the algorithm's own `n_steps`: what Stable-Baselines3 does."""

    name = "equal"

    def plan(self, *, collectors: Sequence[int], n_steps: int) -> tuple[int, ...]:
        """Return `n_steps` for everyone."""
        return (n_steps,) * len(collectors)


_PLANNERS: dict[str, type[BatchingPlanner]] = {"equal": Equal}


def batching_planner(name: str) -> BatchingPlanner:
    """Return a batching planner by name.

    Raises
    ------
    ValueError
        If no planner has this name.
    """
    if name not in _PLANNERS:
        raise ValueError(f"batching planner must be one of {', '.join(_PLANNERS)}, got {name!r}")
    return _PLANNERS[name]()
