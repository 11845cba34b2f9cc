"""Changed settings stand in every picture over time, rounds or steps, and say from when on they count."""

import pytest

from drlnb.records.common import SettingChanged
from drlnb.records.effect import AT_ONCE, NEXT_GRANT, NEXT_ROUND
from drlnb.views import learning, rounds
from drlnb.views.drawing import marks
from drlnb.views.folds.fold import fold_of
from drlnb.views.leasing import gantt
from drlnb.views.warmup import waterfall
from tests.views.journals import Run

STREAM = "task-a-a1"


def changed():
    """Change a's rate at 3 s, the pool's times at 6 s, a's rho at 9.5 s; its rounds 1 to 3 end at 2, 5 and 9 s.

    A's clock is 100 s ahead of the pool's.
    """
    run = Run(shift={"a": 100.0}).slot().task("a").task("b")
    run.lease("a", 0.0, 0.0, 1.0, computed=0.5)
    run.sent("a", 1, 1.0).ready("a", 1.8, 0.5).arrived("a", 2.0, 2).metrics("a", 2.0, 1, 100, rollout__ep_rew_mean=1.0)
    own(run, 3.0, "rl.learning_rate", 0.1)
    run.sent("a", 2, 4.0).arrived("a", 5.0, 3).ready("a", 5.5, 0.5).metrics("a", 5.0, 2, 200, rollout__ep_rew_mean=2.0)
    run.lease("b", 5.5, 5.5, 6.0)
    run.say(run.pool, SettingChanged(t=6.0, key="leasing.ttl_s", value=5, task=None, counts=NEXT_GRANT))
    run.sent("a", 3, 8.0).arrived("a", 9.0, 4).metrics("a", 9.0, 3, 300, rollout__ep_rew_mean=3.0)
    own(run, 9.5, "warmup.rho", 2.0)
    own(run, 9.75, "leasing.switch_limit_frac", 1.0)
    run.lease("b", 10.0, 10.0, 12.0, n=1)
    return run


def test_marks_of_one_moment_share_a_line_of_the_figure():
    """Their words stand side by side, each once: written over each other nobody could read them."""
    run = changed()
    for key, value in (("leasing.ttl_s", 7), ("leasing.ttl_s", 7), ("leasing.floor_frac", 0.5)):
        run.say(run.pool, SettingChanged(t=13.0, key=key, value=value, task=None, counts=NEXT_GRANT))
    layout = gantt.gantt(run.journal()).figure().layout
    assert [note.text for note in layout.annotations] == [*LABELS, "floor_frac: 0.5, ttl_s: 7"]
    assert [shape.x0 for shape in layout.shapes] == [note.x for note in layout.annotations]


def test_what_the_pool_is_told_of_a_task_has_one_mark():
    """A placement planner is in the task's journal and, once more, in the pool's."""
    run = changed()
    own(run, 10.5, "placement.planner", "pack")
    change = SettingChanged(t=10.5, key="placement.planner", value="pack", task="run/a", counts=NEXT_ROUND)
    run.say(run.pool, change)
    assert [mark["label"] for mark in gantt.gantt(run.journal()).facts["marks"]] == [*LABELS, "A planner: pack"]


def own(run, t, key, value):
    counts = AT_ONCE if key.startswith("leasing.") else NEXT_ROUND
    run.say(STREAM, SettingChanged(t=run.own("a", t), key=key, value=value, task="a", counts=counts))


LABELS = ["A learning_rate: 0.1", "ttl_s: 5", "A rho: 2.0", "A switch_limit_frac: 1.0"]


@pytest.mark.parametrize("view", [gantt.gantt, gantt.shares, waterfall.waterfall])
def test_over_time_a_mark_stands_where_the_change_was_made(view):
    """Each picture over seconds has all of them, in every form, with from when on they count."""
    one = view(changed().journal())
    found = one.facts["marks"]
    assert [mark["t"] for mark in found] == pytest.approx([3.0, 6.0, 9.5, 9.75], abs=0.5)
    assert [mark["label"] for mark in found] == LABELS
    assert found[0]["said"] == "A learning_rate: 0.1, from the next round on"
    assert found[1]["said"] == "ttl_s: 5, from the next grant on"
    assert found[3]["said"] == "A switch_limit_frac: 1.0, at once"
    assert one.header["marks"] == found
    assert "<title>ttl_s: 5, from the next grant on</title>" in one.svg()
    figure = one.figure()
    assert [note.hovertext for note in figure.layout.annotations] == [mark["said"] for mark in found]
    assert [shape.x0 for shape in figure.layout.shapes] == [mark["t"] for mark in found]


def test_over_rounds_a_mark_stands_where_the_change_counts():
    """Made in round 2, it counts from 3 on: 2.5; the pool's in round 3; those after round 3 from 4 on, and in 4."""
    found = waterfall.rounds(changed().journal(), "a").facts["marks"]
    assert [(mark["label"], mark["t"]) for mark in found] == list(zip(LABELS, [2.5, 3.0, 4.5, 4.0], strict=True))


def test_another_tasks_change_is_not_in_a_tasks_rounds():
    """B hears of the pool's alone; it has finished no round, so that is its first."""
    assert [(mark["label"], mark["t"]) for mark in marks.in_rounds(fold_of(changed().journal()), "b")] == [
        ("ttl_s: 5", 1.0)
    ]


def test_over_steps_a_mark_stands_where_the_change_counts():
    """Made in round 2, it counts from that round's 200 steps on; the later ones from 300; the pool's has no place."""
    found = learning.curves(changed().journal()).facts["marks"]
    assert [(mark["label"], mark["t"]) for mark in found] == [
        ("A learning_rate: 0.1", 200.0), ("A rho: 2.0", 300.0), ("A switch_limit_frac: 1.0", 300.0),
    ]  # fmt: skip


def test_what_counts_at_once_stands_at_the_steps_that_were_made():
    """In round 2, before its end: at the 100 steps of round 1; before any round: at 0."""
    run = Run().slot().task("a")
    own(run, 0.5, "leasing.switch_limit_frac", 2.0)
    run.metrics("a", 2.0, 1, 100, rollout__ep_rew_mean=1.0)
    own(run, 3.0, "leasing.switch_limit_frac", 1.0)
    run.metrics("a", 5.0, 2, 200, rollout__ep_rew_mean=2.0).lease("a", 0.0, 0.0, 6.0)
    assert [mark["t"] for mark in learning.curves(run.journal()).facts["marks"]] == [0.0, 100.0]


def test_before_the_first_round_there_are_no_steps():
    """Of a task that has finished none, a change has no place among steps."""
    run = Run().slot().task("a").lease("a", 0.0, 0.0, 1.0)
    own(run, 2.0, "rl.learning_rate", 0.1)
    assert learning.curves(run.journal()).facts["marks"] == []


def test_a_picture_whose_axis_is_no_course_of_the_run_has_no_marks():
    """Mean seconds per round, and seconds from sending to a planned start, are at no time."""
    journal = changed().journal()
    assert rounds.anatomy(journal).facts["marks"] == []
    assert "marks" not in waterfall.curve(journal, "a").facts


def test_a_mark_before_the_time_shown_is_left_out():
    """The last 4 s of 12."""
    found = gantt.gantt(changed().journal(), window_s=4.0).facts["marks"]
    assert [mark["label"] for mark in found] == LABELS[2:]
