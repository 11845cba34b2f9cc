"""V-trace and Retrace: hand-worked rows, and what they become on policy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.rl.objectives.traces import retrace, vtrace


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=float)[:, None]


def flags(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=bool)[:, None]


NONE = flags(0, 0, 0)


def test_vtrace_by_hand():
    """Rewards 1 2 3, V 1 1 1, next 1 1 5, pi/mu .5 2 1, gamma .5, lambda .5: v = 1.578125 3.625 5.5.

    d = .5(1 + .5 - 1), 2 + .5 - 1, 3 + 2.5 - 1 = .25, 1.5, 4.5; v_2 - V = 4.5; v_1 - V = 1.5 + .25 * 4.5 = 2.625;
    v_0 - V = .25 + .125 * 2.625 = .578125.
    """
    v, a = vtrace(
        column(1, 2, 3), column(1, 1, 1), column(1, 1, 5), column(0.5, 2, 1), NONE, NONE, gamma=0.5, gae_lambda=0.5
    )
    assert v[:, 0].tolist() == [1.578125, 3.625, 5.5]
    # A = rho (r + gamma v' - V): .5 (1 + 1.8125 - 1), 2 + 2.75 - 1, 3 + 2.5 - 1
    assert a[:, 0].tolist() == [0.90625, 3.75, 4.5]


@pytest.mark.parametrize(
    ("terminated", "truncated", "targets", "advantages"),
    [
        (NONE, flags(0, 1, 0), [2.5, 3.0, 2.0], [2.5, 3.0, 2.0]),
        (flags(0, 1, 0), NONE, [1.5, 1.0, 2.0], [1.5, 1.0, 2.0]),
        (flags(0, 1, 0), flags(0, 1, 0), [1.5, 1.0, 2.0], [1.5, 1.0, 2.0]),
    ],
    ids=["time limit", "true end", "both: the true end wins"],
)
def test_vtrace_stops_at_ends_and_bootstraps_only_time_limits(terminated, truncated, targets, advantages):
    """Rewards 1, V 0, V(final) 4, V(last) 2, gamma .5, lambda 1, pi = mu; no trace crosses step 1."""
    v, a = vtrace(
        column(1, 1, 1),
        column(0, 0, 0),
        column(0, 4, 2),
        column(1, 1, 1),
        terminated,
        truncated,
        gamma=0.5,
        gae_lambda=1.0,
    )
    assert v[:, 0].tolist() == targets
    assert a[:, 0].tolist() == advantages


def loop_gae(rewards, values, following, ends, done, gamma, lam):
    """Sum the discounted deltas directly, from each start on, in plain Python."""
    found = []
    for start in range(len(rewards)):
        total, weight = 0.0, 1.0
        for t in range(start, len(rewards)):
            after = 0.0 if ends[t] else following[t]
            total += weight * (rewards[t] + gamma * after - values[t])
            weight *= gamma * lam
            if done[t]:
                break
        found.append(total)
    return found


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0, 1))
def test_vtrace_on_policy_is_the_return_of_gae(seed, gamma, lam):
    """Where pi = mu: v - V = the sum of (gamma lambda)^k delta up to the episode's end, written as a plain loop."""
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, 9))
    how = rng.integers(0, 6, 9)
    ends, cuts = how == 0, how == 1
    following = np.where(cuts, rng.normal(size=9), np.append(values[1:], rng.normal()))
    arrays = [a[:, None] for a in (rewards, values, following, np.ones(9), ends, cuts)]
    v, _ = vtrace(*arrays, gamma=gamma, gae_lambda=lam)
    expected = loop_gae(rewards, values, following, ends, ends | cuts, gamma, lam)
    np.testing.assert_allclose(v[:, 0] - values, expected, atol=1e-9)
    _, at_one = vtrace(*arrays, gamma=gamma, gae_lambda=1.0)
    full = loop_gae(rewards, values, following, ends, ends | cuts, gamma, 1.0)
    np.testing.assert_allclose(at_one[:, 0], full, atol=1e-9)


def test_retrace_by_hand():
    """Rewards 1 2 3, next 1 1 5, Q 0 2 4, pi/mu 9 .5 2, gamma .5, lambda .5: Qhat = 1.609375 2.875 5.5.

    Qhat_2 = 3 + 2.5; Qhat_1 = 2 + .5 (1 + .5 (5.5 - 4)) = 2.875; Qhat_0 = 1 + .5 (1 + .25 (2.875 - 2)) = 1.609375.
    """
    found = retrace(
        column(1, 2, 3), column(1, 1, 5), column(0, 2, 4), column(9, 0.5, 2), NONE, NONE, gamma=0.5, gae_lambda=0.5
    )
    assert found[:, 0].tolist() == [1.609375, 2.875, 5.5]


def test_retrace_stops_at_ends_and_bootstraps_only_time_limits():
    """Rewards 1, Q 7, V(final) 4, V(last) 2, gamma .5, pi = mu: cut at 1 the end is 3, 2; ended there it is 1, 2."""
    rest = column(7, 7, 7), column(1, 1, 1)
    cut = retrace(column(1, 1, 1), column(0, 4, 2), *rest, NONE, flags(0, 1, 0), gamma=0.5, gae_lambda=1.0)
    assert cut[:, 0].tolist() == [-1.0, 3.0, 2.0]
    end = retrace(column(1, 1, 1), column(0, 4, 2), *rest, flags(0, 1, 0), NONE, gamma=0.5, gae_lambda=1.0)
    assert end[:, 0].tolist() == [-2.0, 1.0, 2.0]


def test_retrace_finds_the_action_values_of_the_judged_policy():
    """Two states in a ring, mu uniform, pi always action 1, exact next values: repeated Retrace approaches Q_pi.

    Action 1 pays 1, action 0 pays 0, both lead on; gamma .5: V_pi = 2, Q_pi(1) = 2, Q_pi(0) = 1.
    """
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (200, 1))
    rewards, ratios = actions.astype(float), 2.0 * actions  # pi/mu = 1/.5 or 0
    none = np.zeros(actions.shape, bool)
    q = np.zeros(2)
    for _ in range(30):
        following = np.full(actions.shape, q[1])
        targets = retrace(rewards, following, q[actions], ratios, none, none, gamma=0.5, gae_lambda=1.0)
        q = np.array([targets[actions == action].mean() for action in (0, 1)])
    np.testing.assert_allclose(q, [1.0, 2.0], atol=1e-3)
