"""Starts by how they were made, and the rounds of a regime."""

import json

import pytest

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.warmup.history import History, RoundRow, StartBook
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WARMUP, WarmupView
from drlnb.records.base import from_plain as header_of


def row(round_, gap_s=6.0, start_s=(1.0, 2.0), **key):
    return RoundRow(
        round=round_, gap_s=(gap_s, gap_s - 1.0), round_s=gap_s + 2.0,
        key={"hold": "round", "nodes": ("n0", "n0"), **key},
        start_s=list(start_s),
    )  # fmt: skip


def history_of(*rows):
    history = History(window=4, filter_window=8, min_rounds=2)
    for each in rows:
        history.append(each)
    return history


# ------------------------------------------------------------------ starts
def test_starts_are_kept_by_node_mode_and_number_at_once():
    """The nearest number is taken where there is none; of two equally near the larger: rather early than late."""
    book = StartBook()
    for n, start_s in ((1, 1.36), (4, 4.9), (8, 7.0)):
        book.add("n0", "spawn", n, start_s)
    assert book.samples("n0", "spawn", 4) == (4.9,)
    assert book.samples("n0", "spawn", 2) == (1.36,)
    assert book.samples("n0", "spawn", 6) == (7.0,)
    assert book.samples("n0", "spawn", 99) == (7.0,)
    assert book.samples("n0", "zygote", 4) == book.samples("n1", "spawn", 4) == ()


def test_eight_workers_times_32_rounds_of_starts_are_kept():
    """256 samples; older ones go."""
    book = StartBook()
    for i in range(300):
        book.add("n0", "spawn", 1, float(i))
    assert book.samples("n0", "spawn", 1) == tuple(map(float, range(44, 300)))


# ------------------------------------------------------------------ regimes
def test_a_word_that_changes_ends_the_regime():
    """All of them are named, with former and present value."""
    history = history_of(row(1), row(2))
    reason = history.append(row(3, hold="last", nodes=("n0", "n1")))
    assert reason == "hold changed from round to last; nodes changed from n0, n0 to n0, n1"
    assert [each.round for each in history.rows] == [3]


def test_after_a_shift_only_the_new_rounds_stay():
    """Of the last five, the two before the shift go."""
    history = History(window=8, filter_window=8, min_rounds=2)
    gaps = [6.0] * 5 + [9.0] * 3
    reasons = [history.append(row(k, gap)) for k, gap in enumerate(gaps)]
    assert reasons == [""] * 7 + ["gaps have moved from 5.5 s to 8.5 s (spread 0.055 s)"]
    assert [each.round for each in history.rows] == [5, 6, 7]


def test_two_late_rounds_are_outliers():
    """The median of five does not move for them."""
    history = History(window=8, filter_window=8, min_rounds=2)
    assert [history.append(row(k, gap)) for k, gap in enumerate([6.0] * 6 + [18.0] * 2)] == [""] * 8


def test_a_plan_looks_at_the_latest_rounds():
    """The filter may look further back."""
    history = history_of(*map(row, range(12)))
    assert [each.round for each in history.latest] == [8, 9, 10, 11]
    assert len(history.rows) == 8


def test_rounds_without_starts_borrow_them_in_turn():
    """Kept collectors are not started: the starts of rounds that have some stand beside their gaps."""
    history = history_of(row(1), row(2, start_s=(3.0, 4.0)), row(3, start_s=(None, None)), row(4, start_s=(5.0, None)))
    assert history.starts() == [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    assert history_of(row(1, start_s=(None, 1.0))).starts() == []


def test_a_history_survives_json():
    """As lists, and as the tuples that a journal's header makes of them."""
    history = history_of(row(1), row(2, start_s=(None, 1.5)))
    plain = json.loads(json.dumps(to_plain(history)))
    for rows in (plain["rows"], header_of(plain["rows"])):
        copy = from_plain(History, plain | {"rows": rows})
        assert copy.rows == history.rows
        copy.rows[-1].start_s[0] = 1.0  # still a list
    history.end()
    assert history.rows == []


# ------------------------------------------------------------------ planners by hand
def view_of(gaps, starts, rounds=(), pools=None):
    return WarmupView(
        gap_s=gaps, start_s=starts, round_s=rounds,
        pools_s=[(1.0, 3.0)] * len(gaps[0]) if pools is None else pools,
    )  # fmt: skip


def test_cold_and_keep_look_at_nothing():
    """Whatever the history."""
    empty = WarmupView()
    assert WARMUP.build("cold").plan(empty) == WarmupPlan(
        action="cold", reason="start at the arrival of the next parameters"
    )
    assert WARMUP.build("keep").plan(empty) == WarmupPlan(action="keep", reason="collectors are never stopped")


def test_seed_is_one_value_for_all():
    """Rounds of 8 s, mean start 2 s: 6 s after the round's start."""
    plan = WARMUP.build("patent").plan(view_of([[6.0, 4.0]] * 8, [], rounds=[8.0] * 8))
    assert (plan.since, plan.start_s(0), plan.start_s(1), plan.lead_s) == ("round", 6.0, 6.0, 2.0)
    wild = WARMUP.build("patent").plan(view_of([[6.0, 4.0]] * 8, [], rounds=[2.0, 9.0] * 4))
    assert wild.reason.startswith("round times are not stable: ")


def test_saa_needs_starts_beside_gaps():
    """Eight rounds, none of them with all starts: event start."""
    plan = WARMUP.build("saa").plan(view_of([[6.0]] * 8, []))
    assert plan.reason == "no round whose starts were all measured: start at the arrival of the next parameters"
    assert WARMUP.build("saa").plan(view_of([[6.0]] * 8, [[1.0]] * 8)).start_after_s == 5.0


@pytest.mark.parametrize("name", ["patent", "saa"])
def test_no_start_without_a_sample(name):
    """As long as nobody has been started, nobody knows how long that takes."""
    plan = WARMUP.build(name).plan(view_of([[6.0]] * 8, [], pools=[()]))
    assert plan.reason == "no start has been measured yet: start at the arrival of the next parameters"


def test_an_unknown_planner():
    """The known ones are listed."""
    with pytest.raises(ValueError, match="must be one of cold, keep, patent, saa, got 'x'"):
        WARMUP.build("x")
