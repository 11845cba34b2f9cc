"""Deal a task's environments to its collectors."""

from itertools import pairwise

__all__ = ["env_shares"]


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
