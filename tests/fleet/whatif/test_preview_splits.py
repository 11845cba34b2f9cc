"""What a change of batching would come to, on the speeds that members had: by hand, for two of unequal speed."""

import pytest

from drlnb.fleet.whatif.preview import preview
from drlnb.records.errors import ConfigError
from tests.views.batching import steps
from tests.views.batching.steps import FAST, SLOW


def trace(n=11, planner="equal", slowed=1.0, **settings):
    """Return the journal of steps of 100 samples at 100 and 25 samples/s, halved: 0.5 s and 2 s."""
    records = [steps.changed(0.0, key, value) for key, value in {"planner": planner, **settings}.items()]
    for k in range(1, n + 1):
        t = 2.0 * (k - 1)
        records += [
            steps.planned(k, 50, 50), steps.ordered(k, SLOW, slowed),
            steps.share(t + 0.5, k, FAST, 50, compute_s=0.5, elapsed_s=0.5),
            steps.share(t + 2.0, k, SLOW, 50, compute_s=2.0, elapsed_s=2.0), steps.closed(k, 100, 2.0),
        ]  # fmt: skip
    return steps.journal(records)


def tried(key, value, task=None, **more):
    return preview(trace(**more), key, value, task, tasks=["a"])


def test_a_planner_that_follows_speeds_takes_two_fifths_of_the_time():
    """80 and 20 samples: 0.8 s instead of 2 s; as things are the simulation is exact."""
    found = tried("batching.planner", "jump-reset")
    assert found.calibration_frac == {"a": pytest.approx(0.0)}
    (row,) = found.rows()
    assert (row["task"], row["split_s now"], row["split_s then"]) == ("a", pytest.approx(2.0), pytest.approx(0.8))
    assert (row["samples_hz now"], row["samples_hz then"]) == (pytest.approx(50.0), pytest.approx(125.0))
    assert (row["lost_frac now"], row["lost_frac then"]) == (0.0, 0.0)
    assert repr(found) == (
        "if batching.planner were 'jump-reset' (simulated):\n"
        "  a: a split 2 s -> 800 ms, 50 -> 125 units/s, not used 0.0% -> 0.0%; the speeds of 10 recorded splits; "
        "as things are, splits come out +0%"
    )


def test_whom_a_step_waits_for_is_tried_out_beside_what_is_in_force():
    """The first of two and 0.1 s more, 0.6 s: who is cut then has done 15 of 50 samples, in chunks of 3.

    Who is dropped computes on until 2 s and has no share meanwhile: the other one makes all of the next two steps, in
    1 s each; so it goes on, and 4 of 10 steps lose half of their batch.
    """
    (row,) = tried("batching.late", "drop", quorum=0.5, deadline_s=0.1).rows()
    assert (row["split_s now"], row["lost_frac now"]) == (pytest.approx(0.6), pytest.approx(0.35))
    assert (row["split_s then"], row["lost_frac then"]) == (pytest.approx(0.84), pytest.approx(0.2))
    (row,) = tried("batching.deadline_s", 1.5, quorum=0.5).rows()
    assert (row["split_s then"], row["lost_frac then"]) == (pytest.approx(2.0), 0.0)
    (row,) = tried("batching.steal", True).rows()
    assert row["split_s then"] < 0.6 * row["split_s now"]
    assert row["lost_frac then"] == 0.0


def test_quorum_and_age_change_what_is_used():
    """Who is not waited for is cut, by 35 of 100 samples; whose samples are too old has computed for nothing."""
    (row,) = tried("batching.quorum", 0.5, deadline_s=0.1).rows()
    assert (row["split_s now"], row["split_s then"]) == (pytest.approx(2.0), pytest.approx(0.6))
    assert (row["lost_frac now"], row["lost_frac then"]) == (0.0, pytest.approx(0.35))
    (row,) = tried("batching.max_age_s", 0.7, quorum=0.5, deadline_s=1.7).rows()
    assert (row["lost_frac now"], row["lost_frac then"]) == (0.0, pytest.approx(0.5))


def test_emulated_speeds_are_called_that():
    """All ten splits whose speeds are played."""
    text = repr(tried("batching.planner", "jump-reset", slowed=4.0))
    assert "the speeds of 10 recorded splits, 10 of them with an emulated slow member;" in text


@pytest.mark.parametrize(
    ("key", "value", "more", "said"),
    [
        ("batching.planner", "even", {}, "batching planner must be one of"),
        ("batching.planner", "own:mine", {}, "batching.planner cannot be tried out: batching planner must be one of"),
        ("batching.quorum", 3, {}, "or a count from 2 to 2, got 3"),
        ("batching.late", "drop", {}, "batching.late has no effect while quorum is 1.0: all are waited for"),
        ("batching.collect", "proportional", {}, "batching.collect cannot be tried out: it shares steps, of which"),
        ("batching.planer", "equal", {}, "'batching.planer' cannot be tried out; did you mean 'batching.planner'?"),
        ("batching.planner", "equal", {"n": 3}, "batching.planner cannot be tried out: two members and 4 splits must"),
        ("batching.planner", "equal", {"task": "b"}, "no task 'b' in this run; its tasks are a"),
    ],
)
def test_what_cannot_be_tried_out_is_one_line(key, value, more, said):
    with pytest.raises(ConfigError) as error:
        tried(key, value, **more)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_round_of_whole_shares_waits_for_all_whatever_the_quorum():
    """Reinforcement learning: nobody is late, so nothing of that can be tried out."""
    records = []
    for k in range(1, 9):
        at = 3.0 * k
        records += [
            steps.planned(0, 1, 1), steps.gradient(at + 1.0, 0, FAST, round=1),
            steps.gradient(at + 2.0, 1, SLOW, elapsed_s=2.0, round=1),
        ]  # fmt: skip
    journal = steps.journal(records)
    with pytest.raises(ConfigError, match=r"batching.quorum cannot be tried out: a round's gradient is"):
        preview(journal, "batching.quorum", 0.5, tasks=["a"])
    (row,) = preview(journal, "batching.planner", "equal", tasks=["a"]).rows()
    assert row["split_s then"] > 0


def test_a_task_whose_learner_is_alone_has_nothing_to_try_out():
    """No split was ever made."""
    with pytest.raises(ConfigError, match=r"batching.planner cannot be tried out: one learner made all steps so far"):
        preview(steps.journal([]), "batching.planner", "equal", tasks=["a"])
