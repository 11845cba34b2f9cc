"""Laws of what is sent and thinned out, for any tables: nothing is lost on the wire, no extreme under a pixel."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.records.common import SettingChanged
from drlnb.views.drawing import decimate, payload
from drlnb.views.learning import band
from drlnb.views.leasing import gantt
from tests.views.drawing.test_payload import apply
from tests.views.journals import two_tasks
from tests.views.wire import decode

#: Values that float32 holds exactly, often equal, one of them unknown.
VALUES = st.sampled_from([0.0, 0.125, 3.0, float("nan")])


@st.composite
def two_states(draw):
    """Return a table before and after: some rows went, some stay, one may be another now, more have come."""
    names = ["a", "b", "t"][: draw(st.integers(1, 3))]
    rows = draw(st.lists(st.tuples(*[VALUES] * len(names)), max_size=9))
    kept = rows[draw(st.integers(0, len(rows))) :]
    if kept and draw(st.booleans()):
        kept[draw(st.integers(0, len(kept) - 1))] = draw(st.tuples(*[VALUES] * len(names)))
    after = kept + draw(st.lists(st.tuples(*[VALUES] * len(names)), max_size=4))
    return [
        {name: np.array([row[k] for row in of], dtype=np.float64) for k, name in enumerate(names)}
        for of in (rows, after)
    ]


@settings(max_examples=60)
@given(states=st.lists(two_states(), min_size=1, max_size=3), unchanged=two_states())
def test_a_delta_applied_to_the_old_tables_gives_the_new(states, unchanged):
    """To the last bit of float32, NaN included, with tables that are new and tables that stay; no delta: no change."""
    before = {f"x{k}": state[0] for k, state in enumerate(states[:2])} | {"still": unchanged[0]}
    after = {f"x{k}": state[1] for k, state in enumerate(states)} | {"still": unchanged[0]}
    known = {}
    tables = decode(*payload.encode({}, before), known)
    change = payload.diff(({}, before), ({}, after))
    if change is not None:
        content, buffers = change
        assert "still" not in [entry["table"] for entry in content["layout"]]
        tables = apply(tables, content["layout"], decode(content, buffers, known))
    for table, columns in after.items():
        for name, values in columns.items():
            np.testing.assert_array_equal(tables[table][name], values)


@given(
    gaps=st.lists(st.tuples(st.sampled_from([0.0, 0.25, 1.0, 7.0]), VALUES), min_size=2, max_size=60),
    n_columns=st.integers(1, 9),
)
def test_each_pixel_column_keeps_its_own_extremes(gaps, n_columns):
    """Column by column: what is drawn there has the least and the greatest of all that lies there."""
    x, y = np.cumsum([gap for gap, _ in gaps]), np.array([value for _, value in gaps])
    keep = decimate.min_max(x, y, n_columns)
    assert set(keep.tolist()) <= set(range(len(x)))
    span = x[-1] - x[0]
    if span == 0 or len(x) <= 2 * n_columns:
        return
    column = [min(n_columns - 1, int((at - x[0]) / span * n_columns)) for at in x.tolist()]
    for k in set(column):
        there = [value for at, value in zip(column, y.tolist(), strict=True) if at == k and not np.isnan(value)]
        shown = [y[i] for i in keep.tolist() if column[i] == k and not np.isnan(y[i])]
        assert (min(shown, default=None), max(shown, default=None)) == (
            min(there, default=None),
            max(there, default=None),
        )


@pytest.mark.parametrize("n_columns", [0, -3])
def test_a_line_has_a_pixel_at_least(n_columns):
    """The message has limit and value."""
    with pytest.raises(ValueError, match=f"n_columns must be >= 1, got {n_columns}"):
        decimate.min_max(np.zeros(1), np.zeros(1), n_columns)


def test_a_line_at_one_moment_keeps_its_extremes():
    """All points above each other: the least and the greatest, or any where nothing is known."""
    y = np.array([2.0, np.nan, -1.0, 5.0, 3.0])
    assert decimate.min_max(np.ones(5), y, 1).tolist() == [2, 3]
    assert decimate.min_max(np.ones(5), np.full(5, np.nan), 1).tolist() == [0]


BARS = st.lists(
    st.tuples(st.floats(0.001, 3), st.floats(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40
)


@given(bars=BARS, most=st.sampled_from([9, 20]))
def test_each_lane_keeps_the_seconds_of_each_series(bars, most):
    """Lanes are merged apart from each other, and nothing overlaps."""
    size, gap, series, lane = (np.array(column) for column in zip(*bars, strict=True))
    start = np.zeros(len(bars))
    for k in range(3):
        start[lane == k] = np.cumsum((gap + size)[lane == k]) - size[lane == k]
    few = decimate.thinned({"start": start, "stop": start + size, "series": series, "lane": lane}, most)
    for k in range(3):
        mine = few["lane"] == k
        order = np.argsort(few["start"][mine])
        assert (few["start"][mine][order][1:] >= few["stop"][mine][order][:-1] - 1e-6).all()
        for of in range(3):
            held = (few["stop"] - few["start"])[mine & (few["series"] == of)].sum()
            assert held == pytest.approx(size[(lane == k) & (series == of)].sum(), abs=len(bars) * 2.0**-20)  # ticks


@given(span=st.floats(1e-6, 1e9), n=st.integers(1, 2000))
def test_a_columns_width_fits_and_is_not_twice_what_it_need_be(span, n):
    """A power of two seconds: at most so many columns, and more than half as many."""
    width = decimate.column_s(span, n)
    assert np.frexp(width)[0] == 0.5
    assert n / 2 < span / width * (1 + 1e-12)
    assert span / width <= n * (1 + 1e-12)


LATENCIES = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=5)


POINT = st.tuples(st.integers(0, 20), st.integers(-9, 9))
CURVE = st.lists(POINT, min_size=1, max_size=6, unique_by=lambda point: point[0])


@given(curves=st.lists(CURVE, min_size=1, max_size=4))
def test_a_band_holds_every_seed_between_its_edges(curves):
    """At each step that all have reached: lowest, mean and highest of the seeds' own lines, in any order of seeds."""
    pairs = [tuple(np.array(sorted(points), dtype=np.float64).T) for points in curves]
    whole = band(pairs)
    turned = band(pairs[::-1])
    for at, (x, mean, low, high) in enumerate(zip(*whole, strict=True)):
        values = [float(np.interp(x, *pair)) for pair in pairs]
        assert all(pair[0][0] <= x <= pair[0][-1] for pair in pairs)
        assert (low, mean, high) == pytest.approx((min(values), sum(values) / len(values), max(values)))
        assert turned.mean[at] == pytest.approx(mean)
    steps = {x for pair in pairs for x in pair[0] if all(of[0][0] <= x <= of[0][-1] for of in pairs)}
    assert set(whole.x.tolist()) == steps


def test_the_newest_forty_changes_are_marked():
    """More labels could not be read: of fifty the first ten have no mark."""
    run = two_tasks()
    run.say(run.pool, *(SettingChanged(t=11.0 + n, key=f"x.k{n}", value=n, task=None) for n in range(50)))
    marks = gantt.gantt(run.journal()).facts["marks"]
    assert [mark["label"] for mark in marks] == [f"k{n}: {n}" for n in range(10, 50)]


def test_a_digest_sees_every_change():
    """A value of a column, a name, a note, a number, the sentence: each makes another picture."""
    view = gantt.gantt(two_tasks().journal())
    bars = view.columns["bars"]
    moved = {**bars, "computed": bars["computed"] + np.array([0.0, 1.0])}
    label, _, unit, text = view.numbers["held"]
    others = [
        replace(view, columns={**view.columns, "bars": moved}), replace(view, names=("", "another")),
        replace(view, notes=("a note",)), replace(view, sentence="another"),
        replace(view, numbers={**view.numbers, "held": (label, 0.5, unit, text)}),
    ]  # fmt: skip
    assert len({view.digest(), *(other.digest() for other in others)}) == 6
    assert replace(view).digest() == view.digest()
