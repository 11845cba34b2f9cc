"""Old time becomes columns that are the wider the older they are: nothing is lost, nothing overlaps, few are kept."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drlnb.views.folds import aged as ages

LEASES = st.lists(
    st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 40.0), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=60
)


def ticks_of(leases):
    """Return leases (rest before it, length, lane, series; seconds) as a spread; in a lane they follow each other."""
    rest, length, lane, series = (np.array(column, dtype=np.float64) for column in zip(*leases, strict=True))
    rest, length = ages.ticks(rest), ages.ticks(length)
    high = np.zeros(len(lane), dtype=np.int64)
    for k in (0, 1):
        high[lane == k] = np.cumsum((rest + length)[lane == k])
    return {
        "low": high - length, "high": high, "lane": lane.astype(np.int64), "series": series.astype(np.int64),
        "held": length, "computed": length // 4, "waited": rest, "count": np.ones_like(high),
    }  # fmt: skip


def tick(seconds):
    return int(ages.ticks(seconds))


def test_columns_by_hand():
    """At 16 s, with a quarter of the age: what is 14 s old shares 2 s, what is 4 s old lies in two columns of 1 s."""
    spread = ticks_of([(0.0, 1.0, 0, 0), (0.0, 0.5, 0, 1), (8.5, 2.0, 0, 0)])
    columns = ages.seconds(ages.aged(spread, tick(16.0), 4))
    assert columns["low"].tolist() == [0.0, 0.0, 10.0, 11.0]
    assert columns["high"].tolist() == [2.0, 2.0, 11.0, 12.0]
    assert columns["series"].tolist() == [0, 1, 0, 0]
    assert columns["held"].tolist() == [1.0, 0.5, 1.0, 1.0]
    assert columns["computed"].tolist() == [0.25, 0.125, 0.25, 0.25]
    assert columns["waited"].tolist() == [0.0, 0.0, 8.5, 8.5]
    assert columns["count"].tolist() == [1, 1, 1, 0]
    start, stop = ages.packed(columns)
    assert (start.tolist(), stop.tolist()) == ([0.5, 1.5, 10.0, 11.0], [1.5, 2.0, 11.0, 12.0])


def test_a_lane_is_known_from_its_first_row_to_its_last():
    """A lease from 1 to 5 s in a column of 8: the column is cut to it, and full; in another lane it is not."""
    spread = ticks_of([(1.0, 4.0, 0, 0), (2.0, 1.0, 1, 0), (4.0, 1.0, 1, 0)])
    columns = ages.seconds(ages.aged(spread, tick(64.0), 4))
    assert columns["lane"].tolist() == [0, 1]
    assert columns["low"].tolist() == [1.0, 2.0]
    assert columns["high"].tolist() == [5.0, 8.0]
    assert columns["held"].tolist() == [4.0, 2.0]


@settings(max_examples=40)
@given(leases=LEASES, finest=st.sampled_from([1.0, 4.0, 32.0]), later=st.floats(0.0, 100.0))
@example(leases=[(2.5, 29.3, 0, 1), (0.1, 1e-6, 0, 1)], finest=32.0, later=0.3)
def test_no_tick_is_lost_or_made(leases, finest, later):
    """Of each lane and series, to the last tick, as often as it is made older; the longest wait stays, too."""
    spread = ticks_of(leases)
    end = int(spread["high"].max())
    columns = ages.aged(ages.aged(spread, end, finest), end + tick(later), finest)
    for name in ("held", "computed", "count"):
        for lane, series in {*zip(spread["lane"], spread["series"], strict=True)}:
            sums = [of[name][(of["lane"] == lane) & (of["series"] == series)].sum() for of in (spread, columns)]
            assert sums[1] == sums[0]
    assert columns["waited"].max() == spread["waited"].max()
    assert set(columns["high"].dtype.kind + columns["held"].dtype.kind) == {"i"}


@settings(max_examples=40)
@given(leases=LEASES, finest=st.sampled_from([1.0, 4.0, 32.0]), later=st.floats(0.0, 100.0))
@example(leases=[(0.0, 0.0, 0, 0), (0.0, 9.0, 1, 0), (0.0, 1.656893543145178, 0, 1)], finest=1.0, later=0.0)
def test_columns_lie_beside_each_other_and_are_no_fuller_than_full(leases, finest, later):
    """A lane's columns do not overlap, begin or end at multiples of powers of two, and are as wide as their age allows.

    What is lent in a lane at any moment is then never more than the lane.
    """
    spread = ticks_of(leases)
    end = int(spread["high"].max()) + tick(later)
    columns = ages.aged(spread, end, finest)
    low, high, lane = (columns[name] for name in ("low", "high", "lane"))
    span = spread["high"].max() - spread["low"].min()
    assert np.all(high - low <= np.maximum(1, np.maximum((end - low) / finest, span / 2**16)))
    for k in set(lane.tolist()):
        edges = np.unique(np.stack([low[lane == k], high[lane == k]], axis=1), axis=0)
        assert np.all(edges[1:, 0] >= edges[:-1, 1]), "columns of a lane are one partition"
        for first, last in edges:
            of = (lane == k) & (low == first) & (high == last)
            assert columns["held"][of].sum() <= max(1, last - first) + of.sum()
        inner = edges[1:-1] if len(edges) > 2 else edges[:0]
        width = inner[:, 1] - inner[:, 0]
        assert np.all(np.frexp(width)[0] == 0.5)
        assert np.all(inner[:, 0] % np.maximum(1, width) == 0)
    start, _ = ages.packed(columns)
    assert np.all(start >= low - len(low))


def test_fewer_rows_than_asked_for():
    """Columns become wider until there are few enough; where that cannot be, as wide as they are old."""
    spread = ticks_of([(0.5, 0.5, n % 2, n % 3) for n in range(4000)])
    columns, finest = ages.fewer(spread, tick(2000.0), 300)
    assert 150 < len(columns["low"]) <= 300
    assert columns["held"].sum() == tick(2000.0)
    assert 1 < finest < 256
    assert ages.fewer(spread, tick(2000.0), 1)[1] == 1


def test_a_stream_is_bounded(monkeypatch):
    """However much is taken in, so many rows are kept, and all seconds."""
    monkeypatch.setattr(ages, "_MOST", 2000)
    old = ages.Aged()
    for k in range(30):
        spread = ticks_of([(0.5, 0.5, n % 2, n % 3) for n in range(600)])
        later = {edge: spread[edge] + tick(300 * k) for edge in ("low", "high")}
        old.add({**spread, **later}, tick(300.0 * (k + 1) + 10))
    assert len(old.spread["low"]) <= 2000
    assert old.spread["held"].sum() == tick(30 * 300)
    assert old.spread["count"].sum() == 30 * 600


@settings(max_examples=15)
@given(leases=LEASES, most=st.integers(0, 60), later=st.floats(0.0, 100.0))
def test_columns_are_as_if_each_step_were_taken_alone(leases, most, later):
    """However many steps are taken at once, columns are as fine and as many as may be."""
    spread = ticks_of(leases)
    end, finest = int(spread["high"].max()) + tick(later), 256.0
    columns = ages.aged(spread, end, finest)
    while len(columns["low"]) > most and finest > 1.0:
        finest = max(1.0, 0.75 * finest)
        columns = ages.aged(columns, end, finest)
    found, found_finest = ages.fewer(spread, end, most)
    assert found_finest == finest
    assert len(found["low"]) == len(columns["low"])


def test_many_too_many_columns_take_few_steps(monkeypatch):
    """2,000 rows of three series in at most 100 columns: the first steps are taken several at once."""
    seen, real = [], ages.aged
    monkeypatch.setattr(ages, "aged", lambda spread, end, finest: seen.append(finest) or real(spread, end, finest))
    spread = ticks_of([(0.01, 0.1, 0, n % 3) for n in range(2_000)])
    columns, finest = ages.fewer(spread, int(spread["high"].max()), 100)
    assert 50 < len(columns["low"]) <= 100
    assert len(seen) <= 7 < 256 / finest
