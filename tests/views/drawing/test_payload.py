"""What travels to JavaScript: aligned columns, nulls for what is not a number, deltas that add up."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.views import fleet
from drlnb.views.drawing import payload
from drlnb.views.drawing.payload import Wire
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from drlnb.views.leasing import gantt
from tests.views.journals import runs, two_tasks
from tests.views.pictures import until
from tests.views.wire import decode


def apply(tables, layout, tails):
    """Do what common.js does with a delta."""
    new = dict(tables)
    for one in layout:
        old = tables.get(one["table"], {})
        new[one["table"]] = {
            name: np.concatenate([
                old.get(name, tails[one["table"]][name][:0])[one["drop"] : one["drop"] + one["keep"]],
                tails[one["table"]][name],
            ])
            for name in tails[one["table"]]
        }
    return new


@settings(max_examples=10)
@given(run=runs(), step=st.integers(1, 40), window_s=st.sampled_from([None, 2.0]))
def test_deltas_add_up_to_the_snapshot(run, step, window_s):
    """Whatever was told in pieces is what a page that comes late is told at once."""
    rows, fold, wire, header, tables = list(entries_of(run.journal())), Fold(), Wire(), {}, {}
    for view_of in (lambda f: gantt.gantt(f, window_s), lambda f: fleet.tasks(f, live=True)):
        fold, wire, header, tables, known = Fold(), Wire(), {}, {}, {}
        for at in range(0, len(rows), step):
            fold.feed(rows[at : at + step])
            message = wire.delta(view_of(fold).drawn)
            if message is None:
                continue
            content, buffers = message
            assert content["seq"] == wire.seq
            if content["kind"] == "snapshot":
                header, tables = content["header"], decode(content["header"], buffers, known)
            else:
                header = {**header, **content["header"]}
                tables = apply(tables, content["layout"], decode(content, buffers, known))
        whole, buffers = view_of(fold).payload()
        assert {k: v for k, v in whole.items() if k not in {"layout"}} == {
            k: v for k, v in header.items() if k not in {"layout"}
        }
        for name, columns in decode(whole, buffers).items():
            for column, values in columns.items():
                assert np.allclose(values, tables[name][column], equal_nan=True, atol=1e-5), (name, column)


def test_nothing_new_is_no_message():
    """A picture that did not change costs nothing on the wire."""
    wire, view = Wire(), gantt.gantt(two_tasks().journal())
    assert wire.delta(view.drawn)[0]["kind"] == "snapshot"
    assert wire.delta(view.drawn) is None
    assert wire.beat() == ({"kind": "beat", "seq": 1}, [])


def test_a_delta_brings_the_new_rows_alone():
    """One more lease is one more row, not all of them again."""
    run, wire = two_tasks(), Wire()
    wire.snapshot(gantt.gantt(run.journal()).drawn)
    run.lease("a", 11.0, 11.0, 12.0, n=9)
    content, _ = wire.delta(gantt.gantt(run.journal()).drawn)
    bars = next(one for one in content["layout"] if one["table"] == "bars")
    assert (bars["drop"], bars["keep"], bars["n"]) == (0, 2, 1)
    assert "lanes" not in content["header"]


def test_columns_are_named_once():
    """A delta names those of a table that is new, or whose columns are others now; unchanged tables are left out."""
    old = {"x": {"a": np.arange(6.0)}, "y": {"b": np.arange(6.0)}, "still": {"c": np.arange(6.0)}}
    new = {
        "x": {"a": np.arange(7.0)}, "y": {"b": np.arange(7, dtype=np.uint32)}, "still": old["still"],
        "z": {"d": np.zeros(0)},
    }  # fmt: skip
    content, _ = payload.diff(({}, old), ({}, new))
    assert {one["table"]: one.get("columns") for one in content["layout"]} == {
        "x": None, "y": [["b", "u"]], "z": [["d", "f"]],
    }  # fmt: skip


def test_a_delta_brings_the_changed_keys_alone():
    """Keys with equal content stay at home, NaN included; what changed comes as plain data."""
    old = {"same": [1, {"a": float("nan")}], "gone": 1, "array": np.zeros(2), "moved": (1.0, 2.0)}
    new = {"same": [1, {"a": float("nan")}], "array": np.zeros(2), "moved": (1.0, float("inf")), "new": np.float64(3.0)}
    content, _ = payload.diff((old, {}), (new, {}))
    assert content["header"] == {"moved": [1.0, None], "new": 3.0}


def test_rows_that_went_are_dropped_whatever_else_is_equal():
    """A first row that is not the old first row: the old ones before it are dropped, equal ones after it kept."""
    ones = [1.0, math.nan, 3.0, 4.0, 5.0, 6.0, 7.0]
    old = {"x": {"a": np.array(ones), "b": np.arange(7, dtype=np.uint32)}}
    new = {"x": {"a": np.array([*ones[1:-1], 7.5]), "b": np.arange(1, 7, dtype=np.uint32)}}
    content, _ = payload.diff(({}, old), ({}, new))
    assert [(one["drop"], one["keep"], one["n"]) for one in content["layout"]] == [(1, 5, 1)]


def test_a_table_of_few_rows_is_told_anew():
    """Slots that are lent now, tasks: what has changed in them costs more to find than to send."""
    old = {"x": {"a": np.array([1.0, 2.0]), "b": np.array([5, 6], dtype=np.uint32)}}
    new = {"x": {"a": np.array([1.0, 2.5]), "b": np.array([5, 6], dtype=np.uint32)}}
    content, _ = payload.diff(({}, old), ({}, new))
    assert [(one["drop"], one["keep"], one["n"]) for one in content["layout"]] == [(2, 0, 2)]
    assert payload.diff(({}, old), ({}, old)) is None


def test_only_values_of_numbers_beside_a_picture_move():
    """What they are called and mean is told once."""
    run = two_tasks()
    wire = Wire()
    wire.snapshot(gantt.gantt(until(run.journal(), 1.0)).drawn)
    content, _ = wire.delta(gantt.gantt(run.journal()).drawn)
    assert "numbers" not in content["header"]
    assert len(content["header"]["values"]) == len(gantt.gantt(run.journal()).numbers)


def test_traits_carry_the_number_of_the_latest_message():
    """JavaScript tells by it whether a synced snapshot is older than what messages told."""
    wire, view = Wire(), gantt.gantt(two_tasks().journal())
    wire.snapshot(view.drawn)
    traits = wire.traits(view.drawn)
    assert json.loads(traits["_header"])["seq"] == 1
    assert traits["_snapshot"] == view.payload()[1][0]


@given(
    value=st.recursive(
        st.floats() | st.integers() | st.none() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=8,
    )
)
def test_headers_hold_no_nan(value):
    """What is not finite is null: JSON has no word for it."""
    assert "NaN" not in payload.header_json({"a": value}).replace('"NaN"', "")
    json.loads(payload.header_json({"a": value}), parse_constant=pytest.fail)


def test_columns_begin_at_multiples_of_four():
    """A typed array over the buffer needs that; the odd bytes are padding."""
    tables = {"x": {"a": np.array([1, 2, 3], dtype=np.uint8), "b": np.array([0.5, math.nan, 2.0])}}
    header, buffers = payload.encode({}, tables)
    assert len(buffers[0]) == 4 + 12
    assert decode(header, buffers)["x"]["b"][2] == 2.0


def test_a_column_may_not_be_called_n():
    """JavaScript keeps the number of rows under that name."""
    with pytest.raises(ValueError, match="'n'"):
        payload.encode({}, {"bars": {"n": np.zeros(1)}})
