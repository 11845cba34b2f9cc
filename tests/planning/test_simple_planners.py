"""The plainest planner of batching and swapping, and how planners are named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.batching import batching_planner, env_shares
from drlnb.planning.swapping import swap_planner
from drlnb.planning.warmup import planner_named


def test_equal_gives_everyone_the_algorithms_steps():
    """As Stable-Baselines3: `n_steps` per environment."""
    planner = batching_planner("equal")
    assert planner.name == "equal"
    assert planner.plan(collectors=(0, 2), n_steps=128) == (128, 128)


def test_nothing_is_swapped():
    """No plan rides in the compute command."""
    planner = swap_planner("none")
    assert planner.name == "none"
    assert planner.plan_key(round=1) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (planner_named, "warmup planner must be one of cold, keep, seed, mean, quantile, saa, progress, got 'x'"),
        (batching_planner, "batching planner must be one of equal, got 'x'"),
        (swap_planner, "swapping planner must be one of none, got 'x'"),
    ],
)
def test_an_unknown_planner_is_refused_with_the_known_ones(make, message):
    """The message lists what there is."""
    with pytest.raises(ValueError, match=message):
        make("x")


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_every_environment_has_one_owner(sizes):
    """Shares are contiguous, in order, and differ by at most one."""
    n_envs, n_collectors = sizes
    shares = env_shares(n_envs, n_collectors)
    assert [i for share in shares for i in share] == list(range(n_envs))
    assert len(shares) == n_collectors
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("n_collectors", [0, 3])
def test_a_collector_without_an_environment_is_refused(n_collectors):
    """The message holds both numbers."""
    with pytest.raises(ValueError, match=rf"n_collectors must be in 1..n_envs = 2, got {n_collectors}"):
        env_shares(2, n_collectors)
