"""Running statistics: hand numbers and exact merges."""

import numpy as np
import pytest

from drlnb.rl.normalise import Moments, Running, continued_var, normalise, scale


def test_merge_by_hand():
    """(2, 1, 2) and (2, 5, 2) merge to (4, 3, 20)."""
    both = Moments(2.0, np.array([1.0]), np.array([2.0])).merge(Moments(2.0, np.array([5.0]), np.array([2.0])))
    assert (both.n, both.mean.tolist(), both.m2.tolist()) == (4.0, [3.0], [20.0])


def test_any_split_merges_to_the_whole():
    """Moments of parts of unequal length merge to numpy's mean and variance of all rows, to 1e-12."""
    rows = np.random.default_rng(1).standard_normal((100, 3)) * 7 + 3
    parts = [Moments.of(part) for part in np.split(rows, [1, 30, 64])]
    merged = parts[2].merge(parts[0]).merge(parts[3]).merge(parts[1])
    np.testing.assert_allclose(merged.mean, np.mean(rows, axis=0), rtol=1e-12)
    np.testing.assert_allclose(merged.var, np.var(rows, axis=0), rtol=1e-12)


def test_start_is_neutral_and_soon_forgotten():
    """Before any data mean is 0 and variance 1; after one merge the data rule to 1e-4 of their weight."""
    start = Moments.start(1)
    assert (start.mean.item(), start.var.item()) == (0.0, 1.0)
    assert abs(start.merge(Moments.of(np.full((10, 1), 4.0))).mean.item() - 4.0) < 1e-3


def test_normalised_values_are_clipped_to_ten():
    """A value 50 deviations off becomes 10, in float32; rewards keep their mean."""
    found = normalise(np.array([[50.0], [1.0]]), np.array([1.0]), np.array([1.0]))
    assert found.dtype == np.float32
    assert found[:, 0].tolist() == [10.0, 0.0]
    assert scale(np.array([3.0, -200.0], np.float32), 9.0).tolist() == [1.0, -10.0]


def test_streams_go_on_by_hand():
    """From (2, 1, 2), stream a gets 5, then 1, stream b 1, then 1: variances 38/9 and 7/2, then 2/3 and 1/2."""
    running, rows = Running(Moments(2.0, np.array([1.0]), np.array([2.0])), 2), np.array([[5.0, 1.0], [1.0, 1.0]])
    found = []
    for row in rows:
        running.count(row[:, None])
        found.append(running.var[:, 0].tolist())
    np.testing.assert_allclose(found, [[38 / 9, 2 / 3], [7 / 2, 1 / 2]], rtol=1e-12)
    np.testing.assert_allclose(running.mean[:, 0], [2.0, 1.0], rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_streams_equal_numpys_moments_of_what_they_have_seen(offset):
    """Row by row, and all at once, also far from 0, where sums of squares would cancel; the start is soon forgotten."""
    rows = np.random.default_rng(0).standard_normal((50, 3)) * [1.0, 2.0, 3.0] + offset
    running, found = Running(Moments(0.0, np.zeros(1), np.zeros(1)), 3), []
    for row in rows:
        running.count(row[:, None])
        found.append(running.var[:, 0])
    expected = [rows[: n + 1].var(axis=0) for n in range(50)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(continued_var(Moments(0.0, np.zeros(1), np.zeros(1)), rows), expected, rtol=1e-6)
    begun = Moments(1000.0, np.array([offset]), np.array([4000.0]))
    going_on, (last, *_) = Running(begun, 3), continued_var(begun, rows)[::-1]
    for row in rows:
        going_on.count(row[:, None])
    np.testing.assert_allclose(last, going_on.var[:, 0], rtol=1e-6)


def test_features_that_are_not_counted_pass_as_they_are():
    """A choice keeps mean 0 and variance 1 exactly, whatever it shows; the feature beside it is counted."""
    running = Running(Moments.start(2), 1, np.array([False, True]))
    for value in (3.0, 7.0, 5.0):
        running.count(np.array([[value, value]]))
    assert (running.mean[0, 0], running.var[0, 0]) == (0.0, 1.0)
    np.testing.assert_allclose((running.mean[0, 1], running.var[0, 1]), (5.0, 8 / 3), rtol=1e-3)
