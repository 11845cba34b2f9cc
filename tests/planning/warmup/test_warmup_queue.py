"""The warm-up machine plans for CPU slots: parked collectors that may have to wait for one, keepers without one."""

import pytest
from warmup_words import Starts, kinds, of, only

from drlnb.records.columns.warmup import (
    ParkCollector,
    RevokeStart,
    StartCollector,
    StopCollector,
    WarmupMeasured,
    WarmupPlanned,
    WarmupRegimeEnded,
)

#: A node with one CPU slot for two collectors; with enough for all.
CROWDED = {"n_cpu_slots": 1, "n_sharing": 2}
ROOMY = {"n_cpu_slots": 2, "n_sharing": 2}


def learned(planner="saa", *, queued_s=1.0, n=2, node=CROWDED, **more):
    """Return a task of parked collectors that have waited `queued_s` at each of 9 wakes; its 10th round has begun."""
    task = Starts(n, collector_mode="park", planner=planner, **more)
    task.copied = False
    task.open()
    task.whole_round(**node)
    for _ in range(8):
        task.whole_round(queued_s=queued_s, **node)
    task.records.clear()
    task.copied = True
    return task


# ------------------------------------------------------------------ who plans
def test_with_enough_cpu_slots_nothing_is_planned():
    """As many slots as collectors: the wake is all, whatever the mode's name."""
    task = learned(node=ROOMY, queued_s=0.0)
    out = task.send(task.t + 2.0, **ROOMY)
    assert kinds(out) == ["WarmupPlanned"] * 2
    assert out[0].reason == "parked collectors wake with the parameters: nothing to start"


def test_with_free_cpu_slots_saa_answers_event_start():
    """More collectors than slots, but nobody ever had to wait (others rest): S is 0, so nothing is started ahead."""
    task = learned(queued_s=0.0)
    out = task.send(task.t + 2.0, queued_s=0.0, **CROWDED)
    planned = of(WarmupPlanned, out)
    assert [(p.action, p.start_after_s) for p in planned] == [("cold", None)] * 2
    assert "no planned time saves anything, pre-warming off" in planned[0].reason
    assert not of(StartCollector, out)
    assert of(ParkCollector, out) == [ParkCollector(collector=i, node="n0", round=10) for i in range(2)]
    assert not of(StartCollector, task.publish(task.t + 6.0)), "the wake itself asks for a slot"


def test_who_waits_for_cpu_slots_asks_for_them_ahead():
    """Each wake waited 1 s of gaps of 6 s: a place in the queue is asked for 5 s after sending."""
    task = learned()
    out = task.send(task.t + 2.0, queued_s=1.0, **CROWDED)
    assert kinds(of(WarmupPlanned, out) + of(StartCollector, out)) == ["WarmupPlanned"] * 2 + ["StartCollector"] * 2
    assert of(WarmupPlanned, out)[0] == WarmupPlanned.match(action="start", start_after_s=5.0, lead_s=1.0)
    assert of(StartCollector, out)[0] == StartCollector.match(
        collector=0, node="n0", env_indices=(0,), after_s=5.0, round=11, parked=True
    )


def test_the_first_round_knows_it():
    """The node's numbers come with the experience: the first plan parks already."""
    task = Starts(collector_mode="park", planner="saa").open()
    out = task.send(2.0, **CROWDED)
    assert kinds(out) == ["WarmupPlanned", "ParkCollector"] * 2
    assert out[0].reason.startswith("0 rounds of this regime known")


def test_another_task_that_comes_or_goes_counts_from_the_next_round_on():
    """A round is planned in one way; the next one sees who shares the node then."""
    task = Starts(collector_mode="park", planner="saa").open()
    assert kinds(task.arrived(0, 2.0, **ROOMY)) == ["WarmupPlanned"]
    assert kinds(task.arrived(1, **CROWDED)) == ["WarmupPlanned"]
    task.publish(8.0)
    task.round += 1
    assert kinds(task.arrived(0, 10.0, **CROWDED)) == ["WarmupPlanned", "ParkCollector"]
    assert kinds(task.arrived(1, **ROOMY)) == ["WarmupPlanned", "ParkCollector"]
    task.publish(16.0)
    task.round += 1
    assert kinds(task.arrived(0, 18.0, **ROOMY)) == ["WarmupPlanned"]


@pytest.mark.parametrize("planner", ["saa"])
def test_every_planner_plans_for_parked_collectors(planner):
    """They see gaps and waits, whatever is waited for."""
    task = learned(planner)
    assert of(StartCollector, task.send(task.t + 2.0, queued_s=1.0, **CROWDED))[0].parked


def test_a_queue_longer_than_the_gap_is_joined_at_once():
    """To stop would cost more than the gap; but its slot is given back already, so it asks for one again."""
    task = learned(queued_s=20.0)
    planned = only(WarmupPlanned, task.arrived(0, task.t + 2.0, queued_s=20.0, **CROWDED))
    assert (planned.action, planned.start_after_s) == ("start", 0.0)
    assert planned.reason.endswith("not stopped, but in the queue again at once")


# ------------------------------------------------------------------ what is measured
def test_waits_are_told_by_the_next_experience():
    """Nobody asked ahead: ready as long after the parameters as the wake had to wait."""
    task = Starts(collector_mode="park", planner="cold").open()
    task.whole_round(**CROWDED)
    assert not of(WarmupMeasured, task.arrived(0, task.t + 2.0, queued_s=0.25, **CROWDED))
    out = task.arrived(1, task.t + 0.5, queued_s=0.75, **CROWDED)
    assert only(WarmupMeasured, out) == WarmupMeasured(
        round=2, wait_s=0.75, idle_s=0.0, collectors=(0, 1), early_s=(0.0, 0.0), late_s=(0.25, 0.75)
    )
    assert task.machine.state.starts.known["n0", "park", 2] == [0.25, 0.75]


def test_a_slot_ahead_of_the_parameters_is_early():
    """One had its slot .5 s before them; the other .25 s after, having asked 1 s before: its start took 1.25 s."""
    task = learned()
    task.send(task.t + 2.0, queued_s=1.0, **CROWDED)
    t0 = task.t
    assert task.has_slot(0, t0 + 5.5, start_s=0.5) == ()
    assert task.publish(t0 + 6.0) == ()
    assert task.has_slot(1, t0 + 6.25, start_s=1.25) == ()
    task.round += 1
    task.arrived(0, t0 + 8.0, **CROWDED)
    out = task.arrived(1, t0 + 8.5, queued_s=0.25, **CROWDED)
    assert only(WarmupMeasured, out) == WarmupMeasured(
        round=11, wait_s=0.25, idle_s=0.25, collectors=(0, 1), early_s=(0.5, 0.0), late_s=(0.0, 0.25)
    )
    assert task.machine.state.history.rows[-1].start_s == [0.5, 1.25]


def test_a_slot_that_was_taken_by_who_could_act_is_late():
    """It had one ahead, and none at its wake: what counts is when it had one again."""
    task = learned()
    task.send(task.t + 2.0, queued_s=1.0, **CROWDED)
    t0 = task.t
    for i in range(2):
        task.has_slot(i, t0 + 5.5, start_s=0.5)
    task.publish(t0 + 6.0)
    task.round += 1
    task.arrived(0, t0 + 9.0, queued_s=0.75, **CROWDED)
    out = task.arrived(1, t0 + 9.0, **CROWDED)
    assert only(WarmupMeasured, out) == WarmupMeasured.match(wait_s=0.75, early_s=(0.0, 0.5), late_s=(0.75, 0.0))
    assert task.machine.state.history.rows[-1].start_s == [1.25, 0.5]


def test_a_slot_that_comes_when_others_have_acted_is_still_of_its_round():
    """Collector 0 has sent round 11 before 1 has its slot for it."""
    task = learned()
    task.send(task.t + 2.0, queued_s=1.0, **CROWDED)
    t0 = task.t
    task.publish(t0 + 6.0)
    task.round += 1
    task.arrived(0, t0 + 8.0, **CROWDED)
    assert task.has_slot(1, t0 + 8.0, start_s=3.0, round=11) == ()
    assert task.has_slot(1, t0 + 8.0, start_s=3.0, round=11) == ()
    assert only(WarmupMeasured, task.arrived(1, t0 + 9.0, queued_s=2.0, **CROWDED)).late_s == (0.0, 2.0)
    assert task.has_slot(1, t0 + 9.0, round=11) == ()
    assert task.has_slot(1, t0 + 9.0, round=3) == ()


def test_a_plan_sees_waits_of_the_round_before():
    """Waits known by the second arrival of a round are in its successor's plan."""
    task = learned(n=1, node={"n_cpu_slots": 1, "n_sharing": 4})
    assert len(task.machine.state.starts.samples("n0", "park", 1)) == 8
    task.arrived(0, task.t + 2.0, queued_s=1.0, n_cpu_slots=1, n_sharing=4)
    assert len(task.machine.state.starts.samples("n0", "park", 1)) == 9


# ------------------------------------------------------------------ pauses, stops, losses
def test_a_pause_takes_places_in_the_queue_back():
    """The process lives on: only its place goes; after the pause the wake asks anew, and the round is no guide."""
    task = learned()
    task.send(task.t + 2.0, queued_s=1.0, **CROWDED)
    assert task.pause() == tuple(
        RevokeStart(collector=i, node="n0", round=11, reason="the task is paused", parked=True) for i in range(2)
    )
    assert task.publish(task.t + 6.0) == ()
    assert task.resume(task.t + 9.0) == ()
    n_rows = len(task.machine.state.history.rows)
    task.round += 1
    assert not of(WarmupMeasured, task.send(task.t + 3.0, queued_s=0.5, **CROWDED))
    assert len(task.machine.state.history.rows) == n_rows


def test_a_stop_takes_places_in_the_queue_back():
    """Whether the slot has come or not; whoever holds one ahead goes with its process."""
    task = learned()
    task.send(task.t + 2.0, queued_s=1.0, **CROWDED)
    task.has_slot(0, task.t + 5.5)
    assert [one.collector for one in task.stop()] == [1]
    assert task.publish(task.t + 1.0) == ()


def test_a_lost_parked_collector_is_left_to_who_restarts_it():
    """No place is taken back: it went with the process; the rest of the round is no guide."""
    task = learned()
    task.send(task.t + 2.0, queued_s=1.0, **CROWDED)
    assert task.lost(0) == ()
    task.ready(0, task.t + 1.0)
    task.publish(task.t + 6.0)
    task.round += 1
    assert not of(WarmupMeasured, task.send(task.t + 2.0, queued_s=1.0, **CROWDED))


def test_a_slow_hosts_parked_collector_is_woken_for_the_round_that_others_act_in():
    """No start is commanded: its wake asks for the slot."""
    task = Starts(collector_mode="park", planner="cold", nodes=["n0", "n1"]).open()
    task.whole_round(**CROWDED)
    task.send(task.t + 2.0, **CROWDED)
    task.completed("n0", task.t + 6.0)
    task.round += 1
    task.arrived(0, task.t + 2.0, **CROWDED)
    assert task.completed("n1", task.t + 1.0, version=3) == ()
    assert task.machine.state.members[1].status == "up"


# ------------------------------------------------------------------ keep
def test_a_keeper_without_a_slot_is_parked():
    """Mode keep, more keepers than slots: who found none is told so, in words and in what is measured."""
    task = Starts(collector_mode="keep").open()
    first = task.arrived(0, 2.0, keeps_cpu=True, **CROWDED)
    assert first == (WarmupPlanned.match(action="keep", reason="collector mode keep: not stopped"),)
    planned, park = task.arrived(1, 2.0, **CROWDED)
    assert planned == WarmupPlanned.match(
        action="cold",
        reason="collector mode keep: not stopped, but n0 has no CPU slot left to keep: parked",
    )
    assert park == ParkCollector(collector=1, node="n0", round=1)
    assert task.publish(8.0) == ()
    task.round += 1
    task.arrived(0, 10.0, keeps_cpu=True, **CROWDED)
    out = task.arrived(1, 10.0, queued_s=0.5, **CROWDED)
    assert only(WarmupMeasured, out) == WarmupMeasured.match(wait_s=0.5, early_s=(6.0, 0.0), late_s=(0.0, 0.5))


def test_who_never_stops_keeps_the_slot_too():
    """Planner keep: collectors hold their CPU slots as in mode keep, and rest without one where none is left."""
    for mode in ("park", "respawn"):
        task = Starts(collector_mode=mode, planner="keep").open()
        assert task.machine.state.keeps_cpu
        assert kinds(task.arrived(0, 2.0, keeps_cpu=True, **CROWDED)) == ["WarmupPlanned"]
        assert kinds(task.arrived(1, 2.0, **CROWDED)) == ["WarmupPlanned", "ParkCollector"]
        assert task.publish(8.0) == ()
    assert not Starts(collector_mode="park").machine.state.keeps_cpu


def test_a_keeper_with_room_for_all_is_kept():
    """Nobody waits for its slot, whether it kept it or not."""
    task = Starts(collector_mode="keep").open()
    assert kinds(task.send(2.0, **ROOMY)) == ["WarmupPlanned"] * 2


# ------------------------------------------------------------------ regimes: K, and the node's slots
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


def test_another_number_of_cpu_slots_ends_the_regime():
    """Waits for two slots are no guide to waits for one."""
    task = learned()
    out = task.whole_round(queued_s=1.0, n_cpu_slots=3, n_sharing=4)
    assert only(WarmupRegimeEnded, out).reason == "cpu_slots changed from 1, 1 to 3, 3"


# ------------------------------------------------------------------ the last round
@pytest.mark.parametrize("mode", ["park", "respawn", "keep"])
def test_after_the_last_round_nobody_rests(mode):
    """No start for a round that does not come; whoever plays the evaluation is up."""
    task = Starts(collector_mode=mode).open()
    task.whole_round(**CROWDED)
    task.machine.last(2)
    out = task.send(task.t + 2.0, **CROWDED)
    assert kinds(of(WarmupPlanned, out)) == ["WarmupPlanned"] * 2
    assert not of(StopCollector, out) + of(ParkCollector, out) + of(StartCollector, out)
    assert of(WarmupPlanned, out)[0] == WarmupPlanned.match(
        action="end", reason="no round follows this one: nobody rests", start_after_s=None
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


# ------------------------------------------------------------------ snapshots of before
