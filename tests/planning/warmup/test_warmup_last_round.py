"""What ends a regime beside the task's own settings, and the last round."""

import pytest
from warmup_words import Starts, kinds, of, only

from drlnb.records.columns.warmup import StartCollector, StopCollector, WarmupPlanned, WarmupRegimeEnded
from tests.matches import like


# ------------------------------------------------------------------ regimes: K
def test_another_number_of_slots_ends_the_regime():
    """K of the pool comes with each lease: gaps hold waits for a slot."""
    task = Starts().open()
    for _ in range(8):
        task.whole_round(n_slots=2)
    out = task.whole_round(n_slots=4)
    assert only(WarmupRegimeEnded, out) == WarmupRegimeEnded(round=9, n_kept=1, reason="slots changed from 2 to 4")


def test_a_pool_that_was_not_told_before_ends_nothing():
    """A journal that begins under an older version: not told is not changed."""
    task = Starts().open()
    task.whole_round()
    task.whole_round(n_slots=2)
    assert not of(WarmupRegimeEnded, task.whole_round(n_slots=2))
    assert not of(WarmupRegimeEnded, task.whole_round())
    assert [row.key.get("slots") for row in task.machine.state.history.rows] == [None, 2, 2, 2]


# ------------------------------------------------------------------ the last round
@pytest.mark.parametrize("mode", ["park", "respawn"])
def test_after_the_last_round_nobody_rests(mode):
    """No start for a round that does not come; whoever plays the evaluation is up."""
    task = Starts(collector_mode=mode).open()
    task.whole_round()
    task.machine.last(2)
    out = task.send(task.t + 2.0)
    assert kinds(of(WarmupPlanned, out)) == ["WarmupPlanned"] * 2
    assert not of(StopCollector, out) + of(StartCollector, out)
    assert of(WarmupPlanned, out)[0] == like(
        WarmupPlanned, action="end", reason="no round follows this one: nobody rests", start_after_s=None
    )
    assert task.publish(task.t + 6.0) == ()


def test_the_last_round_still_starts_whom_a_slow_host_kept_from_it():
    """Its own starts are not those of a round that does not come."""
    task = Starts(nodes=["n0", "n1"], planner="cold").open()
    task.whole_round()
    task.send(task.t + 2.0)
    task.completed("n0", task.t + 6.0)
    task.ready(0, task.t + 1.0)
    task.round += 1
    task.machine.last(3)
    assert kinds(task.arrived(0, task.t + 2.0)) == ["WarmupPlanned"]
    assert only(StartCollector, task.completed("n1", version=3)).collector == 1
