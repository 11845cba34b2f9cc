"""The board and the Gantt of gangs: every cell and every second, by hand."""

import math

import pytest

from drlnb.views.drawing.theme import styles
from drlnb.views.placement.gangs import Gang, Placed, board, gantt

HOUR = 3600.0


@pytest.fixture
def placed():
    """Return two nodes of two slots: `a` on both of n0 fails after 2 h with n0/1, and goes on on n1; `b` ran alone."""
    return Placed(
        slots=("n0/0", "n0/1", "n1/0", "n1/1"),
        nodes=("n0", "n0", "n1", "n1"),
        gangs=[
            Gang(owner="b", number=1, slots=(2,), start=0.0, stop=1.5 * HOUR, fate="done"),
            Gang(
                owner="a", number=1, slots=(0, 1), start=0.0, stop=2 * HOUR, lost_s=HOUR, saved=(HOUR,), fate="failed"
            ),
            Gang(owner="a", number=2, slots=(2, 0), start=2 * HOUR, stop=4 * HOUR, fate="done"),
        ],
        away=[(1, 2 * HOUR, 3 * HOUR, "failed"), (3, 0.5 * HOUR, math.nan, "drained")],
        end_s=4 * HOUR,
        rate_hz=(1e-6, 4e-6, 1e-6, 2e-6),
    )


@pytest.mark.parametrize(
    ("hours", "cells", "said"),
    [
        (0.2, ["a", "a", "b", "free"], "after 12 min 0 s: 3 of 4 slots busy, 0 out; 2 gangs"),
        (1.0, ["a", "a", "b", "drained"], "after 1 h 0 min: 3 of 4 slots busy, 1 out; 2 gangs"),
        (1.7, ["a", "a", "free", "drained"], "after 1 h 42 min: 2 of 4 slots busy, 1 out; 1 gang"),
        (
            2.5,
            ["a", "failed", "a", "drained"],
            "after 2 h 30 min: 2 of 4 slots busy, 2 out; 1 gang, 1 on more nodes than needed",
        ),
        (
            3.5,
            ["a", "free", "a", "drained"],
            "after 3 h 30 min: 2 of 4 slots busy, 1 out; 1 gang, 1 on more nodes than needed",
        ),
    ],
)
def test_a_cell_says_what_its_slot_has_at_that_moment(placed, hours, cells, said):
    """By name and by glyph, never by colour alone; the sentence counts the cells."""
    view = board(placed, hours * HOUR)
    rows = view.rows()
    assert [row[2] for row in rows] == cells
    assert [row[:2] for row in rows] == [["n0", "n0/0"], ["n0", "n0/1"], ["n1", "n1/0"], ["n1", "n1/1"]]
    assert view.sentence == said
    letters = [look["letter"] for look in view.facts["series"]]
    assert len(set(letters)) == len(letters)
    assert view.value("busy") == sum(cell in {"a", "b"} for cell in cells) / 4
    assert view.value("wide") == int("needed" in said)


def test_how_often_a_slot_fails_is_how_high_its_strip_is(placed):
    """The mean is 2e-6: one that fails twice as often has twice the strip; slot-days stand in the table."""
    view = board(placed, 0.0)
    strips = view.columns["work"]["computed"]
    assert strips / strips[0] == pytest.approx([1, 4, 1, 2])
    assert [row[4] for row in view.rows()] == pytest.approx([11.574, 2.8935, 11.574, 5.787], rel=1e-3)
    assert max(strips) <= 0.92


def test_every_second_that_a_gang_held_is_kept_or_lost(placed):
    """`a` held two slots for 2 h and again for 2 h, of which 1 h on two slots is lost; `b` one for 1.5 h."""
    view = gantt(placed)
    rows = view.rows()
    hours = {what: sum(row[5] - row[4] for row in rows if row[3].startswith("lost") == what) for what in (True, False)}
    assert hours == {True: 2.0, False: 7.5}
    assert [row[0] for row in rows if row[3].startswith("lost")] == ["n0/0", "n0/1"]
    assert {(row[1], row[2], row[6]) for row in rows} == {
        ("b", 1, "done"), ("a", 1, "a member failed"), ("a", 2, "done"),
    }  # fmt: skip
    assert view.value("lost") == pytest.approx(2 / 9.5)
    assert view.value("failures") == 1
    assert (
        view.sentence
        == "2 jobs over after 4 h 0 min, 1 gang stopped by a failure, 21.1 % of the time of all gangs lost"
    )
    series = [look["name"] for look in view.facts["series"]]
    dots = view.columns["dots"]
    marks = sorted(zip(dots["lane"].tolist(), dots["start"].tolist(), [series[i] for i in dots["series"]], strict=True))
    assert marks == [(0, 1.0, "checkpoint"), (1, 2.0, "failure")]
    assert sorted(zip(*(view.columns["absent"][k].tolist() for k in ("lane", "start", "stop")), strict=True)) == [
        (1, 2.0, 3.0), (3, 0.5, 4.0),
    ]  # fmt: skip
    assert [look["hatch"] for look in view.facts["series"] if look["name"].startswith("lost")] == ["x"]


def test_gangs_that_share_a_slot_are_one_below_the_other():
    """`a` and `b` have the same two slots, `b` from 1 s on; `c` has one of them after `a`, in its row."""
    gangs = [
        Gang(owner="a", number=1, slots=(0, 1), start=0.0, stop=3.0, fate="done"),
        Gang(owner="b", number=1, slots=(0, 1), start=1.0, stop=math.nan, fate="goes on"),
        Gang(owner="c", number=1, slots=(1,), start=3.0, stop=4.0, fate="done"),
    ]
    looks = {look.name: look for look in styles("abc")}
    away = [(1, 4.0, 5.0, "drained")]
    view = gantt(Placed(slots=("n/0", "n/1"), nodes=("n", "n"), gangs=gangs, away=away, end_s=5.0, looks=looks))
    assert [lane["label"] for lane in view.facts["lanes"]] == ["n/0", "", "n/1", ""]
    bars = view.columns["bars"]
    spans = zip(*(bars[key].tolist() for key in ("lane", "series", "start", "stop")), strict=True)
    assert sorted(spans) == [(0, 0, 0, 3), (1, 1, 1, 5), (2, 0, 0, 3), (2, 2, 3, 4), (3, 1, 1, 5)]
    assert view.columns["absent"]["lane"].tolist() == [2, 3], "what is away is so for whoever is there"
    assert {row[0] for row in view.rows()} == {"n/0", "n/1"}


def test_many_slots_have_a_lane_each_and_a_name_per_node():
    """64 slots: eight names, of the first slot of each node."""
    nodes = tuple(f"n{i // 8}" for i in range(64))
    slots = tuple(f"n{i // 8}/{i % 8}" for i in range(64))
    view = gantt(Placed(slots=slots, nodes=nodes, gangs=[], away=[], end_s=1.0))
    assert [lane["label"] for lane in view.facts["lanes"]] == [
        slot if i % 8 == 0 else "" for i, slot in enumerate(slots)
    ]
    assert view.sentence == "no gang is placed yet"
    assert board(Placed(slots=slots, nodes=nodes, gangs=[], away=[], end_s=1.0)).value("busy") == 0


def test_every_form_of_the_pictures_is_there(placed):
    """SVG, plotly and text are made of the same columns; a strip is as high in each."""
    for view in (board(placed, HOUR), gantt(placed)):
        assert view.svg().startswith("<svg")
        assert len(view.figure().data) > 2
        assert view.html()
    strips = [bar for bar in board(placed, HOUR).figure().data if bar.meta == "work"]
    assert strips[0].width[1] / strips[0].width[0] == pytest.approx(4)
