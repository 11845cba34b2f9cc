"""Fewer marks, no lie: extremes stay, widths stay, nothing overlaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.views.drawing import decimate

WIDTHS = st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 2), st.integers(0, 2)), max_size=40)


@given(y=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), n=st.integers(1, 20))
def test_extremes_of_every_column_stay(y, n):
    """At most two points per column, and the least and greatest of all among them."""
    values, x = np.array(y), np.arange(len(y), dtype=np.float64)
    keep = decimate.min_max(x, values, n)
    assert len(keep) <= max(2 * n, 1)
    assert np.all(np.diff(keep) > 0)
    assert (values[keep].min(), values[keep].max()) == (values.min(), values.max())


def test_a_peak_by_hand():
    """Of 8 points in 2 columns, the least and greatest of each stay."""
    y = np.array([1.0, 9.0, 2.0, 3.0, 5.0, 4.0, -7.0, 6.0])
    assert decimate.min_max(np.arange(8.0), y, 2).tolist() == [0, 1, 6, 7]


@given(bars=WIDTHS, width=st.sampled_from([0.01, 0.5, 4.0]))
def test_widths_of_every_series_stay(bars, width):
    """Merged bars keep each series' total width, overlap nothing and count their parts."""
    gaps, sizes, series = (np.array([bar[k] for bar in bars], dtype=np.float64) for k in (1, 0, 2))
    start = np.cumsum(gaps + sizes) - sizes
    merged = decimate.merge_bars(start, start + sizes, series.astype(np.int64), width)
    for one in range(3):
        mine = merged["series"] == one
        assert (merged["stop"] - merged["start"])[mine].sum() == pytest.approx(sizes[series == one].sum())
    assert np.all(merged["start"][1:] >= merged["stop"][:-1] - 1e-9)
    assert merged["count"].sum() == len(bars)


def test_merging_by_hand():
    """Three narrow bars of two series in one column of 1 s become two, side by side; the wide one stays."""
    start, stop = np.array([0.1, 0.3, 0.5, 2.0]), np.array([0.2, 0.4, 0.6, 3.5])
    merged = decimate.merge_bars(start, stop, np.array([7, 8, 7, 8]), 1.0)
    assert merged["start"] == pytest.approx([0.1, 0.3, 2.0])
    assert merged["stop"] == pytest.approx([0.3, 0.4, 3.5])
    assert merged["count"].tolist() == [2, 1, 1]
    assert merged["index"].tolist() == [-1, 1, 3]


@pytest.mark.parametrize("width", [0.0, -1.0, float("nan")])
def test_a_column_has_a_width(width):
    """The message has the value."""
    with pytest.raises(ValueError, match=f"got {width}"):
        decimate.merge_bars(np.zeros(1), np.ones(1), np.zeros(1, dtype=np.int64), width)
