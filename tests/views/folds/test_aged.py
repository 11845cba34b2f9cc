"""Old time becomes columns that are the wider the older they are: nothing is lost, nothing overlaps, few are kept."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drlnb.views.folds import aged as ages

LEASES = st.lists(
    st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 40.0), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=60
)


def spread_of(leases):
    """Return leases (rest before it, length, lane, series) as a spread; they follow each other in each lane."""
    rest, length, lane, series = (np.array(column, dtype=np.float64) for column in zip(*leases, strict=True))
    high = np.zeros(len(lane))
    for k in (0, 1):
        high[lane == k] = np.cumsum((rest + length)[lane == k])
    low = high - length
    return {
        "low": low, "high": high, "lane": lane, "series": series, "held": high - low, "computed": (high - low) / 4,
        "waited": rest, "count": np.ones(len(lane)),
    }  # fmt: skip


def test_columns_by_hand():
    """At 16 s, with a quarter of the age: what is 14 s old shares 2 s, what is 4 s old lies in two columns of 1 s."""
    spread = spread_of([(0.0, 1.0, 0, 0), (0.0, 0.5, 0, 1), (8.5, 2.0, 0, 0)])
    columns = ages.aged(spread, 16.0, 4)
    assert columns["low"].tolist() == [0.0, 0.0, 10.0, 11.0]
    assert columns["high"].tolist() == [2.0, 2.0, 11.0, 12.0]
    assert columns["series"].tolist() == [0, 1, 0, 0]
    assert columns["held"].tolist() == [1.0, 0.5, 1.0, 1.0]
    assert columns["computed"].tolist() == [0.25, 0.125, 0.25, 0.25]
    assert columns["waited"].tolist() == [0.0, 0.0, 8.5, 8.5]
    assert columns["count"].tolist() == [1, 1, 1, 0]
    start, stop = ages.packed(columns)
    assert (start.tolist(), stop.tolist()) == ([0.5, 1.5, 10.0, 11.0], [1.5, 2.0, 11.0, 12.0])


@given(leases=LEASES, finest=st.sampled_from([1.0, 4.0, 32.0]), later=st.floats(0.0, 100.0))
def test_seconds_and_counts_stay(leases, finest, later):
    """Of each lane and series, as often as it is made older; the longest wait stays, too."""
    spread = spread_of(leases)
    end = float(spread["high"].max())
    columns = ages.aged(ages.aged(spread, end, finest), end + later, finest)
    for name in ("held", "computed", "count"):
        for lane, series in {*zip(spread["lane"], spread["series"], strict=True)}:
            sums = [of[name][(of["lane"] == lane) & (of["series"] == series)].sum() for of in (spread, columns)]
            assert sums[1] == pytest.approx(sums[0])
    assert columns["waited"].max() == spread["waited"].max()


@given(leases=LEASES, finest=st.sampled_from([1.0, 4.0, 32.0]), later=st.floats(0.0, 100.0))
@example(leases=[(0.0, 0.0, 0, 0), (0.0, 9.0, 1, 0), (0.0, 1.656893543145178, 0, 1)], finest=1.0, later=0.0)
def test_columns_are_powers_of_two_and_no_fuller_than_full(leases, finest, later):
    """A column begins at a multiple of its width, is no wider than its age allows, and what it holds fits in it."""
    spread = spread_of(leases)
    end = float(spread["high"].max()) + later
    columns = ages.aged(spread, end, finest)
    width = columns["high"] - columns["low"]
    assert np.all(np.frexp(width)[0] == 0.5)
    assert np.all(columns["low"] % width == 0)
    longest = float(np.max(spread["high"] - spread["low"]))
    assert np.all(width <= np.maximum(2.0**-20, np.maximum(longest / 1024, (end - columns["low"]) / finest)))
    start, stop = ages.packed(columns)
    assert np.all(start >= columns["low"] - 1e-6)
    for lane in (0, 1):
        # What holds next to nothing may stand on either side of its neighbour's edge.
        order = np.flatnonzero((columns["lane"] == lane) & (columns["held"] > 1e-6))
        order = order[np.argsort(start[order])]
        assert np.all(start[order][1:] >= stop[order][:-1] - max(1e-6, longest / 512))


def test_fewer_rows_than_asked_for():
    """Columns become wider until there are few enough; where that cannot be, as wide as they are old."""
    spread = spread_of([(0.5, 0.5, n % 2, n % 3) for n in range(4000)])
    columns, finest = ages.fewer(spread, 2000.0, 300)
    assert 150 < len(columns["low"]) <= 300
    assert columns["held"].sum() == pytest.approx(2000.0)
    assert 1 < finest < 256
    assert ages.fewer(spread, 2000.0, 1)[1] == 1


def test_a_stream_is_bounded(monkeypatch):
    """However much is taken in, so many rows are kept, and all seconds."""
    monkeypatch.setattr(ages, "_MOST", 2000)
    old = ages.Aged()
    for k in range(30):
        spread = spread_of([(0.5, 0.5, n % 2, n % 3) for n in range(600)])
        old.add({**spread, "low": spread["low"] + 300 * k, "high": spread["high"] + 300 * k}, 300.0 * (k + 1) + 10)
    assert len(old.spread["low"]) <= 2000
    assert old.spread["held"].sum() == pytest.approx(30 * 300)
    assert old.spread["count"].sum() == 30 * 600
