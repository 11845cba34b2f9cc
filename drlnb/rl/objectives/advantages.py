"""Estimate how good each action was: generalised advantages that distinguish time limits from true ends.

An episode that *terminated* is worth nothing afterwards; one that was *truncated* (time limit) goes on in principle,
so its end is bootstrapped with the value of the observation that the reset threw away.  The recursion stops at both.
"""

import numpy as np

__all__ = ["discounted", "gae"]


def gae(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Return the advantages of a fragment.

    ``delta_t = r_t + gamma next_t - V_t`` with ``next_t = 0`` where terminated;
    ``A_t = delta_t + gamma lambda (1 - done_t) A_{t+1}``, done = terminated or truncated.

    Parameters
    ----------
    rewards
        Scaled rewards; shape ``(T, n)``.
    values
        ``V(obs_t)``; shape ``(T, n)``.
    next_values
        ``V(final observation)`` where truncated, else ``V(obs_{t+1})``, in the last row ``V(last_obs)``;
        shape ``(T, n)``.  Ignored where terminated.
    terminated, truncated
        How a step ended its episode; shape ``(T, n)``, bool.
    gamma, gae_lambda
        Discount and trace decay, dimensionless, in ``[0, 1]``.

    Returns
    -------
    ndarray
        float64, shape ``(T, n)``; the return is advantage + value.

    References
    ----------
    Schulman et al. 2016, arXiv 1506.02438, equation 16; Pardo et al. 2018, arXiv 1712.00378 (time limits).

    Examples
    --------
    >>> column = lambda *x: np.array(x, dtype=float)[:, None]
    >>> cut = column(0, 1, 0) > 0
    >>> rewards, values, following = column(1, 1, 1), column(0, 0, 0), column(0, 4, 2)
    >>> gae(rewards, values, following, cut & False, cut, gamma=0.5, gae_lambda=0.5)[:, 0].tolist()
    [1.75, 3.0, 2.0]
    """
    delta = rewards + gamma * np.where(terminated, 0.0, next_values) - values
    decay = gamma * gae_lambda * ~(terminated | truncated)
    return discounted(delta, decay)


def discounted(delta: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """Return ``S_t = delta_t + decay_t S_{t+1}`` along the first axis, float64, of the shape of `delta`; 0 follows."""
    sums = np.empty(delta.shape, np.float64)
    running = np.zeros(delta.shape[1:], np.float64)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + decay[t] * running
        sums[t] = running
    return sums
