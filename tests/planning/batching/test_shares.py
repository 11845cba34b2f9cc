"""Environments are dealt to collectors in contiguous runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.batching import env_shares


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
