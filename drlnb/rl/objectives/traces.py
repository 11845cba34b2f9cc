"""Compute what a state or an action is worth when another policy acted: V-trace and Retrace.

Both correct for the difference between the policy that acted, mu, and the one that is judged, pi, by ratios cut at 1:
late fragments, or members of a family judged for another member.  As in :mod:`drlnb.rl.objectives.advantages`, nothing
follows a *terminated* step, a *truncated* one is bootstrapped with the value of its last observation, and no trace
crosses either.
"""

import numpy as np

from drlnb.rl.objectives.advantages import discounted

__all__ = ["retrace", "vtrace"]


def vtrace(
    rewards: np.ndarray,
    values: np.ndarray,
    next_values: np.ndarray,
    ratios: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return V-trace's value targets and advantages.

    With ``rho = min(1, pi/mu)``, ``c = lambda min(1, pi/mu)`` and ``d_t = r_t + gamma next_t - V_t``::

        v_t = V_t + rho_t d_t + gamma c_t (1 - done_t) (v_{t+1} - V_{t+1})
        A_t = rho_t (r_t + gamma v'_{t+1} - V_t),   v' = next_t at ends and at the fragment's end, else v_{t+1}

    Parameters
    ----------
    rewards, values, next_values
        Scaled rewards, ``V(obs_t)``, what follows as :func:`.gae` takes it; shape ``(T, n)``.
    ratios
        ``pi(a_t|s_t) / mu(a_t|s_t)``, at least 0; shape ``(T, n)``.
    terminated, truncated, gamma, gae_lambda
        As :func:`.gae` takes them.

    Returns
    -------
    tuple of ndarray
        ``v`` and ``A``, float64, shape ``(T, n)``; for pi = mu and lambda = 1 :func:`.gae`'s.

    References
    ----------
    Espeholt et al. 2018, arXiv 1802.01561, equations 1 and 4 (rho-bar = c-bar = 1).

    Examples
    --------
    >>> column = lambda *x: np.array(x, dtype=float)[:, None]
    >>> none = np.zeros((2, 1), bool)
    >>> v, a = vtrace(column(1, 1), column(0, 0), column(0, 2), column(0.5, 4), none, none, gamma=0.5, gae_lambda=1.0)
    >>> v[:, 0].tolist(), a[:, 0].tolist()
    ([1.0, 2.0], [1.0, 2.0])
    """
    rho = np.minimum(1.0, ratios)
    goes_on = ~(terminated | truncated)
    following = np.where(terminated, 0.0, next_values).astype(np.float64)
    delta = rho * (rewards + gamma * following - values)
    targets = values + discounted(delta, gamma * gae_lambda * rho * goes_on)
    following[:-1] = np.where(goes_on[:-1], targets[1:], following[:-1])
    return targets, rho * (rewards + gamma * following - values)


def retrace(
    rewards: np.ndarray,
    next_values: np.ndarray,
    action_values: np.ndarray,
    ratios: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    *,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Return Retrace's action-value targets.

    ``Qhat_t = r_t + gamma (next_t + c_{t+1} (Qhat_{t+1} - Q_{t+1}))`` with ``c = lambda min(1, pi/mu)``; the trace
    ends where an episode does and where the fragment does.

    Parameters
    ----------
    rewards
        Scaled rewards; shape ``(T, n)``.
    next_values
        ``E_pi Q`` of what follows each step, which is its V, as :func:`drlnb.rl.objectives.advantages.gae` takes it;
        ``(T, n)``.
    action_values
        ``Q(s_t, a_t)`` of the model; shape ``(T, n)``.
    ratios, terminated, truncated, gamma, gae_lambda
        As of :func:`vtrace`.

    Returns
    -------
    ndarray
        float64, shape ``(T, n)``.

    References
    ----------
    Munos et al. 2016, arXiv 1606.02647, equation 4; used for the action value by ACER (Wang et al. 2017,
    arXiv 1611.01224, equation 5).

    Examples
    --------
    >>> column = lambda *x: np.array(x, dtype=float)[:, None]
    >>> none = np.zeros((2, 1), bool)
    >>> q, ratios = column(0, 1), column(4, 0.5)
    >>> retrace(column(1, 1), column(0, 2), q, ratios, none, none, gamma=0.5, gae_lambda=1.0)[:, 0].tolist()
    [1.25, 2.0]
    """
    goes_on = ~(terminated | truncated)
    base = rewards + gamma * np.where(terminated, 0.0, next_values)
    trace = gamma * gae_lambda * np.minimum(1.0, ratios)
    targets = np.empty(base.shape, np.float64)
    surprise = np.zeros(base.shape[1:], np.float64)  # c_{t+1} gamma (Qhat_{t+1} - Q_{t+1})
    for t in range(len(base) - 1, -1, -1):
        targets[t] = base[t] + surprise * goes_on[t]
        surprise = trace[t] * (targets[t] - action_values[t])
    return targets
