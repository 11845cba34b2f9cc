"""Fewer marks, no lie: extremes stay, widths stay, nothing overlaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.views.drawing import decimate


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


def test_thinning_by_hand():
    """Three bars are more than two: the seconds of the old ones lie side by side at the end of their column."""
    bars = {
        "start": np.array([0.0, 1.0, 63.0]), "stop": np.array([1.0, 1.5, 64.0]), "lane": np.zeros(3),
        "series": np.array([0, 1, 0]), "computed": np.array([0.5, 0.5, 0.0]), "token": np.arange(3),
    }  # fmt: skip
    assert decimate.thinned(bars, 3) is bars
    few = decimate.thinned(bars, 3 - 1)
    assert few.keys() == bars.keys() - {"token"} | {"low", "high"}
    assert few["low"][0] == 0.0
    old = few["low"] == 0.0
    assert (few["stop"] - few["start"])[old].tolist() == [1.0, 0.5]
    assert few["start"][old][1] == few["stop"][old][0]
    below, held, computed = decimate.heights(few)
    width = few["high"][0]
    assert below[old].tolist() == [0.5 / width, 0.0]
    assert held[old].tolist() == [1.0 / width, 0.5 / width]
    assert computed[old].tolist() == [0.5 / width, 0.5 / width]


def test_bars_without_series_stay_without():
    """What has no task, as a slot that is not there, is drawn in no task's colour."""
    bars = {"start": np.arange(9.0), "stop": np.arange(9.0) + 0.5, "lane": np.zeros(9)}
    few = decimate.thinned(bars, 4)
    assert "series" not in few
    assert (few["stop"] - few["start"]).sum() == pytest.approx(4.5)


def test_a_long_bar_at_the_end_does_not_make_many():
    """What goes on beside thousands of short bars is cut into no more columns than there may be."""
    start = np.append(np.arange(4000.0), 0.0)
    stop = np.append(np.arange(4000.0) + 0.5, 4000.0)
    lane = np.append(np.zeros(4000), 1.0)
    few = decimate.thinned({"start": start, "stop": stop, "lane": lane}, 540)
    assert len(few["start"]) <= 540
    assert (few["stop"] - few["start"]).sum() == pytest.approx(2000 + 4000)


@pytest.mark.parametrize("span_s", [0.0, 5e-324, 1e-300])
def test_a_span_of_nothing_has_a_column_width(span_s):
    """The smallest number there is, over 1,200 columns, is 0."""
    assert decimate.column_s(span_s, 1200) > 0.0
