"""Environments are dealt to collectors, and their shares to learners, in contiguous runs."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.batching import env_shares, learner_shares


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


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(1, 12))
def test_no_other_runs_have_a_smaller_largest_one(n_samples, n_learners):
    """Against all ways of cutting the shares into as many runs: each learner has work, whole shares, in order."""
    learners = learner_shares(n_samples, n_learners)
    n_used = min(n_learners, len(n_samples))
    assert list(learners) == sorted(learners)
    assert set(learners) == set(range(n_used))
    cuts = ((0, *inner, len(n_samples)) for inner in combinations(range(1, len(n_samples)), n_used - 1))
    best = min(max(sum(n_samples[a:b]) for a, b in pairwise(cut)) for cut in cuts)
    taken = [sum(n for n, each in zip(n_samples, learners, strict=True) if each == k) for k in range(n_used)]
    assert max(taken) == best


def test_equal_shares_are_dealt_evenly():
    """By hand: 2 and 2 of 4, 3 and 2 of 5, and no learner without work where there are few shares."""
    assert learner_shares([32] * 4, 2) == (0, 0, 1, 1)
    assert learner_shares([32] * 5, 2) == (0, 0, 0, 1, 1)
    assert learner_shares([32] * 4, 3) == (0, 0, 1, 2)
    assert learner_shares([32] * 2, 64) == (0, 1)
