"""What the network of the learned batching planners sees: figures by hand, and what must not matter."""

import math

import numpy as np
import pytest

from drlnb.learned.batching.features import N_FEATURES, WINDOW, features

SLOW = math.log(0.3)
#: Columns: own z, mean z, (foretold, match, newest) of the partners at lags 1 and 2, log N, (match, before, gated).
OWN, ALL, FIRST, SECOND, LOG_N, LAG = slice(0, 16), slice(16, 20), slice(20, 23), slice(23, 26), 26, slice(27, 30)


def _slow(n_splits, *slow):
    """Histories that are 0 but in these splits of each member."""
    z = np.zeros((n_splits, len(slow)))
    for member, splits in enumerate(slow):
        z[list(splits), member] = SLOW
    return z


def test_nothing_has_happened_yet():
    """All members stand at their long-run speeds; there are three of them."""
    seen = features(np.zeros((0, 3)))
    assert seen.shape == (3, N_FEATURES) == (3, 30)
    assert (np.delete(seen, LOG_N, axis=1) == 0).all()
    assert (seen[:, LOG_N] == math.log(3)).all()


def test_own_and_common_history_begin_with_the_newest_split():
    """17 splits: the oldest is out of sight; means are over members."""
    z = np.outer(np.arange(17) / 100, [1.0, 3.0])
    seen = features(z)
    assert seen[1, OWN] == pytest.approx(3 * np.arange(16, 0, -1) / 100)
    assert seen[0, ALL] == pytest.approx(2 * np.array([16, 15, 14, 13]) / 100)


def test_the_partner_is_who_was_slow_so_long_before():
    """Member 1 is slow two splits after member 0, each time; member 0 begins to be slow in the last split but one.

    So in the next split member 1 will be slow: 0's z in the last but one foretells it.  Each match is over all slow
    splits of either: 8 of 8.  At lag 1 half of them match, 4 of 12.
    """
    begins = (4, 20, 36, 52)
    z = _slow(64, [b + k for b in (*begins, 62) for k in (0, 1)], [b + k for b in begins for k in (2, 3)], [])
    seen = features(z)
    foretold, match, newest = seen[1, SECOND]
    assert (foretold, newest) == (SLOW, SLOW)
    assert match == pytest.approx(8 / 8)
    assert seen[1, FIRST][1] == pytest.approx(4 / 13)  # split 62 of the other counts, too: 63 is its successor
    assert (seen[2, SECOND] == 0).all()
    # who never follows anybody has no partner, and nobody is its own
    assert seen[0, SECOND][1] < 0.2


def test_an_own_period_is_found():
    """Slow in 2 of 10 splits, last 62 and 63: the best lag is 10; the split that comes was fast 10 splits ago."""
    slow = [s for s in range(64) if s % 10 in (2, 3)]
    match, before, gated = features(_slow(64, slow, []))[0, LAG]
    assert (match, before, gated) == (1.0, 0.0, 0.0)
    match, before, gated = features(_slow(62, slow[:-2], []))[0, LAG]
    assert (match, before, gated) == (1.0, SLOW, SLOW)
    assert (features(_slow(62, slow[:-2], []))[1, LAG] == 0).all()


def test_three_slow_splits_are_no_pattern():
    """Of fewer than four slow splits of either nothing is said."""
    assert (features(_slow(64, [10, 20], []))[0, LAG] == 0).all()


def _random(rng, n_splits=WINDOW, n=6):
    return np.where(rng.random((n_splits, n)) < 0.25, SLOW, 0.0) + 0.05 * rng.standard_normal((n_splits, n))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_members_does_not_matter(seed):
    """Other members in another order: the same figures; each member's row goes with it."""
    rng = np.random.default_rng(seed)
    z, order = _random(rng), rng.permutation(6)
    np.testing.assert_allclose(features(z[:, order]), features(z)[order], atol=1e-12)
    # two that match equally well, at different depths
    tied = np.column_stack([_slow(64, range(2, 64, 8)), _slow(64, range(0, 64, 8)), 0.8 * _slow(64, range(0, 64, 8))])
    swapped = features(tied[:, [0, 2, 1]])[[0, 2, 1]]
    np.testing.assert_allclose(swapped, features(tied), atol=1e-12)


def test_older_splits_do_not_matter():
    """A history of 64 splits is all that is looked at; shorter ones count as fast before."""
    z = _random(np.random.default_rng(9), n_splits=30)
    padded = np.vstack([np.zeros((34, 6)), z])
    np.testing.assert_array_equal(features(padded), features(z))


def test_own_lags_by_counting():
    """The best of lags 4 to 32 by counting pairs of splits, one by one."""
    z = _random(np.random.default_rng(2))
    slow = z < -0.5
    for member in range(6):
        scores = {}
        for lag in range(4, 33):
            pairs = [(slow[t, member], slow[t - lag, member]) for t in range(lag, 64)]
            either = sum(a or b for a, b in pairs)
            scores[lag] = sum(a and b for a, b in pairs) / either if either >= 4 else 0.0
        best = max(scores, key=lambda lag: (scores[lag], -lag))
        match, before, _ = features(z)[member, LAG]
        assert match == pytest.approx(scores[best])
        assert before == z[-best, member]
