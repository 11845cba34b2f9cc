"""Advantages: rows worked by hand."""

import numpy as np
import pytest

from drlnb.rl.objectives.advantages import gae


def column(*values: float) -> np.ndarray:
    return np.array(values, float)[:, None]


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [((0, 0, 0), (0, 1, 0), [1.75, 3.0, 2.0]), ((0, 1, 0), (0, 0, 0), [1.25, 1.0, 2.0])],
)
def test_time_limits_are_bootstrapped_and_true_ends_are_not(terminated, truncated, expected):
    """With r = 1, V = 0, gamma = lambda = .5, V(final) = 4, V(last) = 2: rows by hand for either kind of end."""
    found = gae(
        column(1, 1, 1),
        column(0, 0, 0),
        column(0, 4, 2),
        column(*terminated) > 0,
        column(*truncated) > 0,
        gamma=0.5,
        gae_lambda=0.5,
    )
    assert found[:, 0].tolist() == expected


def test_lambda_one_gives_discounted_sums():
    """With lambda 1 and no end, advantage + value is the discounted sum of rewards plus the last value."""
    rewards, values = column(1, 2, 3), column(7, -1, 4)
    none = np.zeros((3, 1), bool)
    found = gae(rewards, values, column(-1, 4, 8), none, none, gamma=0.5, gae_lambda=1.0) + values
    assert found[:, 0].tolist() == [1 + 1 + 0.75 + 1, 2 + 1.5 + 2, 3 + 4]


def test_agrees_with_a_loop_written_apart():
    """On random ends, every row equals a scalar recursion over plain numbers."""
    rng = np.random.default_rng(0)
    rewards, values, following = (rng.standard_normal((30, 3)) for _ in range(3))
    terminated = rng.random((30, 3)) < 0.1
    truncated = (rng.random((30, 3)) < 0.1) & ~terminated
    found = gae(rewards, values, following, terminated, truncated, gamma=0.9, gae_lambda=0.8)
    for env in range(3):
        later = 0.0
        for t in reversed(range(30)):
            if terminated[t, env]:
                later = rewards[t, env] - values[t, env]
            elif truncated[t, env]:
                later = rewards[t, env] + 0.9 * following[t, env] - values[t, env]
            else:
                later = rewards[t, env] + 0.9 * following[t, env] - values[t, env] + 0.72 * later
            assert found[t, env] == pytest.approx(later, abs=1e-12)
