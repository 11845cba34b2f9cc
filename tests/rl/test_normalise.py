"""Running statistics: hand numbers and exact merges."""

import numpy as np

from drlnb.rl.normalise import Moments, normalise, scale


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
