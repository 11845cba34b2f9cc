"""Gangs, plans and their reasons of a run: what a failure cost, by hand."""

import pytest

from drlnb.records.columns import leasing
from drlnb.records.columns import placement as words
from drlnb.records.common import SettingChanged
from drlnb.views.folds.entries import decoded, entries_of
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.placement import measured
from tests.views.placement import steps
from tests.views.placement.steps import STORY, TASK


def spans(view):
    """Return slot, gang, version, whether it was lost, from, until, and how it ended, of each bar."""
    return [(*row[:3], row[3].startswith("lost"), *row[4:]) for row in view.rows()]


def test_a_failure_ends_the_gang_and_loses_the_round_in_hand():
    """Of 9 s on two slots 3 s are lost on each, since the lease began; the rest was returned before."""
    view = measured.gantt(steps.journal(*STORY))
    assert spans(view) == [
        ("n0/cpu0", "a", 1, False, 1.0, 7.0, "a member failed"),
        ("n0/cpu0", "a", 1, True, 7.0, 10.0, "a member failed"),
        ("n0/cpu1", "a", 1, False, 1.0, 7.0, "a member failed"),
        ("n0/cpu1", "a", 1, True, 7.0, 10.0, "a member failed"),
        ("n0/cpu0", "a", 2, False, 10.0, 11.0, "goes on"),
        ("n1/cpu0", "a", 2, False, 10.0, 11.0, "goes on"),
    ]
    assert view.value("lost") == pytest.approx(6 / 20)
    assert view.sentence == "1 gang stopped by a failure, 30.0 % of the time of all gangs lost"
    assert view.origin == "measured"
    series = [look["name"] for look in view.facts["series"]]
    dots = view.columns["dots"]
    assert [(series[i], lane, t) for i, lane, t in zip(dots["series"], dots["lane"], dots["start"], strict=True)] == [
        ("failure", 1, 10.0)
    ]


def test_the_board_says_who_holds_a_lease_and_who_is_at_home():
    """The failed slot is out; before the last lease both slots of the gang are its home."""
    cells = {row[1]: (row[2], row[3]) for row in measured.board(steps.journal(*STORY)).rows()}
    assert cells == {"n0/cpu0": ("a", "a"), "n0/cpu1": ("failed", ""), "n1/cpu0": ("a", "a"), "n1/cpu1": ("free", "")}
    before = measured.board(steps.journal(*STORY[:-2]))
    assert [row[2] for row in before.rows()] == ["a, without a lease", "failed", "a, without a lease", "free"]
    assert before.sentence == "0 of 4 slots busy, 1 out; 1 gang, 1 on more nodes than needed"
    again = measured.board(steps.journal(*STORY, steps.added(12.0, "n0/cpu1")))
    assert [row[2] for row in again.rows()][1] == "free"


def test_a_plan_says_why_and_what_else_was_weighed():
    """The slots of the plan first, then the others with how much longer they were expected to take."""
    of = steps.journal(*STORY)
    view = measured.why(of)
    assert view.sentence == "a: n0/cpu0 n1/cpu0 by ect, after n0/cpu1 failed: executor died; expected 5.0 s"
    assert view.rows() == [
        ["ect: best_fit", "n0/cpu0 n1/cpu0", 2.0, 5.0, 0.0, pytest.approx(4.0)],
        ["healthiest", "n0/cpu0 n1/cpu1", 2.0, 6.0, pytest.approx(20.0), pytest.approx(5.0)],
    ]
    plans = measured.plans(of).rows()
    assert [row[2:8] for row in plans] == [
        [2, "ect", "n0/cpu0 n1/cpu0", 2, 5.0, "n0/cpu1 failed: executor died"],
        [1, "ect", "n0/cpu0 n0/cpu1", 1, 1.0, "asked"],
    ]
    assert measured.why(of, "b").sentence == "no gang is placed yet"


def test_the_slots_that_a_rule_could_have_chosen_are_there_with_their_failures():
    """Three of four: the one that has failed was not to be had."""
    view = measured.choice(steps.journal(*STORY))
    assert view.rows() == [
        ["n0", "n0/cpu0", "of the gang", None, pytest.approx(3.0)],
        ["n1", "n1/cpu0", "of the gang", None, pytest.approx(1.0)],
        ["n1", "n1/cpu1", "could have been", None, pytest.approx(2.0)],
    ]
    assert view.sentence == (
        "a, plan 2, after n0/cpu1 failed: executor died, by ect: n0/cpu0 3, n1/cpu0 1 (failures expected in 100 days); "
        "1 other could have been"
    )
    height = view.columns["work"]["computed"] / 0.92
    assert height.tolist() == pytest.approx([0.4, 0.4 / 3, 0.8 / 3])
    assert [view.columns["absent"][key].tolist() for key in ("lane", "start")] == [[0], [0.54]]
    assert view.notes == ("hatched: not to be had",)
    assert measured.choice(steps.journal(*STORY), "b").sentence == "no gang is placed yet"


def test_a_networks_choice_is_there_with_its_probabilities():
    """A member that stayed was not chosen; a planner that says nothing of its choice is named."""
    weighed = [("n0/cpu0", None), ("n1/cpu0", 0.75), ("n1/cpu1", 0.25)]
    plan = steps.planned(
        2, "n0/cpu0", "n1/cpu0", planner="patent",
        weighed=tuple([steps.weighed(slot, 2, chance) for slot, chance in weighed]),
    )  # fmt: skip
    view = measured.choice(steps.journal(*STORY[:13], plan), "a")
    assert [row[3] for row in view.rows()] == [None, 0.75, 0.25]
    assert view.sentence == (
        "a, plan 2, after n0/cpu1 failed: executor died, by patent: n0/cpu0, n1/cpu0 0.75 (probability); "
        "1 other could have been"
    )
    assert view.facts["series"][2]["name"] == "its probability: height of the strip"
    first = measured.choice(steps.journal(*STORY[:6])).sentence
    assert first == "a, plan 1, after asked, by ect, which does not say what it weighed"


def test_a_plan_of_the_same_slots_does_not_end_the_gang():
    """It stands among the plans; the gang goes on since its start."""
    of = steps.journal(*STORY[:6], steps.added(3.0, "n2/cpu0"), steps.planned(2, "n0/cpu0", "n0/cpu1", planner="pack"))
    assert [row[2:5] for row in measured.plans(of).rows()] == [
        [2, "pack", "n0/cpu0 n0/cpu1"],
        [1, "ect", "n0/cpu0 n0/cpu1"],
    ]
    assert {row[2] for row in measured.gantt(of).rows()} == {1}
    moved = steps.journal(*STORY[:6], steps.planned(2, "n1/cpu0", "n1/cpu1"))
    assert [row[2] for row in measured.gantt(moved).rows()] == []  # both at one instant: no second passed


@pytest.mark.parametrize(
    ("event", "fate", "lost"),
    [
        (words.NodeLost(t=9.0, node="n0", reason="worker closed"), "a member failed", True),
        (words.NodeLost(t=9.0, node="n1", reason="worker closed"), "goes on", False),
        (words.TaskStopped(t=9.0, task=TASK, attempt=1, reason="done"), "done", False),
        (words.TaskStopped(t=9.0, task=TASK, attempt=1, reason="stopped"), "stopped", False),
        (steps.failed(9.0, "n0/cpu10"), "goes on", False),
    ],
)
def test_a_gang_ends_with_its_node_or_its_task(event, fate, lost):
    """Another node, or a slot whose name begins alike, does not end it."""
    rows = spans(measured.gantt(steps.journal(*STORY[:12], event)))
    assert {row[6] for row in rows} == {fate}
    assert any(row[3] for row in rows) is lost


def test_a_slot_that_is_drained_is_marked_until_it_is_free():
    """And lent again afterwards."""
    drained = (*STORY[:6], steps.requested(2.0, 9), leasing.SlotDrained(slot="n1/cpu1", reason="asked for"))
    assert measured.board(steps.journal(*drained)).rows()[3][2] == "drained"
    freed = (*drained, steps.requested(5.0, 10), leasing.SlotFreed(slot="n1/cpu1"))
    assert measured.board(steps.journal(*freed)).rows()[3][2] == "free"


def test_a_slot_that_is_closed_is_drained_until_it_is_lent_again():
    """By the user's hand, also while its lease goes on: then nothing but the wish says that it may be lent again."""
    wish = {key: SettingChanged(t=t, key=f"slot.{key}", value="n1/cpu1", task=None, counts="at once")
            for t, key in ((3.0, "drain"), (5.0, "undrain"))}  # fmt: skip
    closed = (*STORY[:6], wish["drain"], leasing.SlotClosed(slot="n1/cpu1", reason="drained by hand"))
    assert measured.board(steps.journal(*closed)).rows()[3][2] == "drained"
    assert measured.board(steps.journal(*closed, wish["undrain"])).rows()[3][2] == "free"
    freed = (*closed, steps.requested(5.0, 10), leasing.SlotFreed(slot="n1/cpu1"))
    assert measured.board(steps.journal(*freed)).rows()[3][2] == "free"


def test_why_a_task_waits_is_said_until_it_is_placed():
    """Once, beside the plans."""
    change = SettingChanged(
        t=8.0, key="placement.planner", value="pack", task=TASK, counts="from the next placement on"
    )
    waits = words.PlacementPostponed(task=TASK, reason="needs 2 slots, 1 alive", n_alive=1)
    of = [*STORY[:6], change, steps.planned(2, "n1/cpu0", planner="pack"), waits]
    assert measured.plans(steps.journal(*of)).sentence == "2 plans of placement; a: needs 2 slots, 1 alive"
    assert measured.plans(steps.journal(*of)).rows()[0][7] == "placement.planner: pack"
    assert measured.plans(steps.journal(*of, steps.planned(3, "n1/cpu0", "n1/cpu1"))).sentence == "3 plans of placement"


def test_nothing_has_been_placed_before_the_first_plan():
    """Every picture says so, of an empty journal too."""
    for of in (steps.journal(*STORY[:4]), Fold()):
        assert measured.gantt(of).sentence == "no gang is placed yet"
        assert measured.plans(of).sentence == "no gang is placed yet"
        assert measured.why(of).sentence == "no gang is placed yet"
        assert measured.choice(of).sentence == "no gang is placed yet"
        assert measured.choice(of).rows() == []
        assert measured.board(of).value("busy") == 0


def test_in_pieces_is_the_same_as_at_once():
    """Record by record, whatever the cutting."""
    of, grown = steps.journal(*STORY), Fold()
    for entry in entries_of(of):
        grown.feed([entry])
    for draw in (measured.board, measured.choice, measured.gantt, measured.plans, measured.why):
        assert draw(grown).digest() == draw(fold_of(of)).digest()


def test_rows_that_came_over_a_wire_are_the_records_that_were_sent():
    """A wire makes tuples of lists: what is within them is decoded all the same."""

    def wired(value):
        if isinstance(value, list):
            return tuple(map(wired, value))
        return {key: wired(item) for key, item in value.items()} if isinstance(value, dict) else value

    rows = [{"s": "broker-e1", **record.to_row()} for record in STORY]
    assert [record for _, record in decoded(map(wired, rows))] == list(STORY)
