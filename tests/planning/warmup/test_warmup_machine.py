"""The warm-up machine stops, parks and starts collectors (S7, S8, O4, O5)."""

import pytest
from warmup_words import Starts, config, kinds, of, only

from drlnb.planning.warmup import WarmupMachine
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.columns.placement import NodeAdded
from drlnb.records.columns.warmup import (
    RevokeStart,
    StartCollector,
    StopCollector,
    WarmupMeasured,
    WarmupPlanned,
    WarmupRegimeEnded,
)
from drlnb.records.errors import ConfigError, InvalidTransition
from drlnb.records.round import StopAsked, TaskFailed, TaskOpened
from tests.matches import like


def learned(n=2, **more):
    """Return a task that has made 8 rounds with gaps of 6 s and starts of 1 s; its 9th has begun."""
    task = Starts(n, **more)
    task.copied = False
    task.open()
    for _ in range(8):
        task.whole_round()
    task.records.clear()
    task.copied = True
    return task


# ------------------------------------------------------------------ S7, S8
def test_s7_a_collector_that_has_sent_is_stopped_before_it_is_started():
    """Respawn: the process ends after sending (S7, claim 2); its start comes later, for the next round."""
    task = Starts().open()
    out = task.arrived(0, at=2.0)
    assert out == (
        like(WarmupPlanned, round=1, collector=0, action="cold", start_after_s=None, lead_s=None),
        StopCollector(collector=0, node="n0", round=1),
    )
    task.arrived(1)
    assert task.publish(at=8.0) == tuple(
        like(StartCollector, collector=i, node="n0", env_indices=(i,), after_s=0.0, round=2) for i in (0, 1)
    )


def test_s8_a_start_is_commanded_before_the_parameters_are_ready():
    """After 8 rounds of 6 s and starts of 1 s the start is commanded 5 s after sending, 1 s ahead (S8, claim 7)."""
    task = learned()
    planned, stop, start = task.arrived(0, at=task.t + 2.0)
    assert planned == like(WarmupPlanned, action="start", planner="saa", start_after_s=5.0, lead_s=1.0)
    assert stop == StopCollector(collector=0, node="n0", round=9)
    assert start == like(StartCollector, collector=0, node="n0", env_indices=(0,), after_s=5.0, round=10)


def test_nothing_is_planned_before_eight_rounds():
    """The reason counts them."""
    task = Starts().open()
    reasons = [of(WarmupPlanned, task.whole_round())[0].reason for _ in range(9)]
    assert reasons[0] == "0 rounds of this regime known, 8 needed: start at the arrival of the next parameters"
    assert reasons[7].startswith("7 rounds of this regime known, 8 needed")
    assert reasons[8] == "saves 1 s +- 0 s a round over 8 rounds"


def test_collectors_that_rest_have_nothing_to_start():
    """The wake frame is all; nothing is commanded, started or measured."""
    task = Starts(collector_mode="park").open()
    for _ in range(10):
        out = task.whole_round(6.0 if task.round < 5 else 9.0)
        assert kinds(out) == ["WarmupPlanned"] * 2
    assert out[0].reason == "collectors that rest wake with the parameters: nothing to start"


def test_kept_collectors_are_told_nothing():
    """Neither stop nor start; they are idle for the whole gap."""
    task = Starts(planner="keep").open()
    out = task.whole_round()
    assert kinds(out) == ["WarmupPlanned", "WarmupPlanned", "WarmupMeasured"]
    assert out[0].action == "keep"
    assert out[2] == like(WarmupMeasured, round=2, wait_s=0.0, idle_s=6.0, early_s=(6.0, 6.0), late_s=(0.0, 0.0))


# ------------------------------------------------------------------ O4: the fallback
def test_o4_parameters_that_come_early_start_what_is_planned_later():
    """Planned 5 s after sending; parameters after 3 s: it starts then (min of both)."""
    task = learned()
    task.send(task.t + 2.0)
    out = task.publish(task.t + 3.0)
    assert [start.after_s for start in of(StartCollector, out)] == [0.0, 0.0]


def test_o4_a_start_that_has_happened_is_not_repeated():
    """Planned 5 s after sending, parameters after 6: no further start; ready at 6.2: nobody was late by the start."""
    task = learned()
    task.send(task.t + 2.0)
    t0 = task.t
    assert of(StartCollector, task.publish(t0 + 6.0)) == []
    task.ready(0, t0 + 6.2, start_s=1.2)
    assert only(WarmupMeasured, task.ready(1, t0 + 6.3, start_s=1.3, n_starting=2)) == like(
        WarmupMeasured, round=10, wait_s=0.3, idle_s=0.0, collectors=(0, 1), early_s=(0.0, 0.0), late_s=(0.2, 0.3)
    )


def test_a_collector_is_early_or_late():
    """One is ready .5 s before the parameters, one .4 s after: wait .4, idle .25 per collector."""
    task = learned()
    task.send(task.t + 2.0)
    t0 = task.t
    assert task.ready(0, t0 + 5.5, start_s=0.5) == ()
    assert task.publish(t0 + 6.0) == ()
    assert only(WarmupMeasured, task.ready(1, t0 + 6.4, start_s=1.4)) == WarmupMeasured(
        round=10, wait_s=0.4, idle_s=0.25, collectors=(0, 1), early_s=(0.5, 0.0), late_s=(0.0, 0.4)
    )


def test_both_early_are_measured_when_the_parameters_come():
    """Everybody is ready before: no wait."""
    task = learned()
    task.send(task.t + 2.0)
    t0 = task.t
    task.ready(0, t0 + 5.5, start_s=0.5)
    task.ready(1, t0 + 5.75, start_s=0.75)
    assert only(WarmupMeasured, task.publish(t0 + 6.0)) == like(WarmupMeasured, wait_s=0.0, idle_s=0.375)


def test_a_slow_start_counts_for_its_own_round():
    """One collector has sent the next round already when the other is ready for it: that one was .8 s late."""
    task = learned()
    task.send(task.t + 2.0)
    t0 = task.t
    task.publish(t0 + 0.2)  # before the planned time
    task.ready(1, t0 + 0.3, start_s=0.1, round=10)
    task.round += 1
    task.arrived(1, t0 + 0.9)
    out = task.ready(0, t0 + 1.0, start_s=0.8, round=10)
    assert [(measured.round, measured.wait_s) for measured in of(WarmupMeasured, out)] == [(10, 0.8)]
    assert 0 not in task.machine.state.trace.ready_t


# ------------------------------------------------------------------ O5: stops, repeats
def test_o5_a_task_that_stops_takes_its_starts_back():
    """Pending and fired starts alike; nobody is started afterwards, and nobody who sends then is stopped."""
    task = learned(3)
    task.arrived(0, at=task.t + 2.0)
    task.arrived(1, at=task.t + 4.0)
    out = task.stop(task.t + 1.5)  # collector 0's start has happened, 1's has not
    assert out == tuple(RevokeStart(collector=i, node="n0", round=10, reason="stop: enough") for i in (0, 1))
    assert kinds(task.arrived(2)) == ["WarmupPlanned"]
    assert task.records[-1] == like(WarmupPlanned, collector=2, action="end", reason="stop: enough")
    assert task.publish(task.t + 1.0) == ()
    assert task.stop() == ()


def test_o5_a_late_revoke_and_a_restart_leave_one_process():
    """The revoked collector that is up after all makes no further start."""
    task = learned()
    task.send(task.t + 2.0)
    task.stop(task.t + 5.5)
    assert task.ready(0, task.t + 0.5) == ()
    assert task.publish(task.t + 1.0) == ()


def test_the_end_can_be_told_by_the_one_who_drives_rounds():
    """The last round's starts are taken back when the budget is met: no event says so."""
    task = learned()
    task.arrived(0, at=task.t + 2.0)
    assert task.machine.end("the last round") == (
        RevokeStart(collector=0, node="n0", round=10, reason="the last round"),
    )
    assert task.machine.end("again") == ()
    assert kinds(task.arrived(1)) == ["WarmupPlanned"]


def test_a_task_that_fails_takes_its_starts_back():
    """As a stop."""
    task = learned()
    task.send(task.t + 2.0)
    assert kinds(task.feed(TaskFailed, reason="boom", detail="")) == ["RevokeStart"] * 2


def test_what_is_told_twice_is_done_once():
    """A second copy, an old round, an unknown collector, parameters twice, ready twice: nothing."""
    task = learned()
    task.send(task.t + 2.0)
    assert task.arrived(0) == ()
    assert task.arrived(0, round=3) == ()
    assert task.arrived(7) == ()
    task.publish(task.t + 3.0)
    assert task.publish() == ()
    assert task.completed(version=4) == ()
    assert task.ready(0, task.t + 1.0) == ()
    assert task.ready(0) == ()
    assert task.ready(9, node="n0") == ()
    assert task.ready(1, node="n7") == ()


def test_events_that_say_nothing_here_are_passed_over():
    """The driver of rounds shows every event."""
    task = Starts()
    assert task.feed(NodeAdded, node="n1", host="h", n_collector_slots=1) == ()
    assert (
        task.feed(TaskOpened, attempt=2, version=0, n_rounds=0, n_timesteps=0, elapsed_s=0.0, episodes=(), n_bytes=0)
        == ()
    )
    assert task.granted() == task.computed(0) == task.made() == task.completed() == task.lease_lost() == ()


# ------------------------------------------------------------------ pause
def test_a_pause_takes_back_what_has_not_happened():
    """The round ends, its successor waits for a person: started when the task goes on."""
    task = learned()
    task.arrived(0, at=task.t + 2.0)
    assert task.pause() == (RevokeStart(collector=0, node="n0", round=10, reason="the task is paused"),)
    assert task.arrived(1) == (
        like(WarmupPlanned, collector=1, action="cold", start_after_s=None),
        like(StopCollector, collector=1),
    )
    assert task.publish(task.t + 6.0) == ()
    out = task.resume(task.t + 100.0)
    assert [(start.collector, start.after_s) for start in out] == [(0, 0.0), (1, 0.0)]
    assert task.resume() == ()
    assert not of(WarmupMeasured, task.ready(0, task.t + 1.0) + task.ready(1, task.t + 1.0))


def test_nothing_is_planned_while_a_pause_is_asked_for():
    """A pause before the first arrival: event start, and why."""
    task = learned()
    task.pause()
    planned = task.arrived(0, at=task.t + 2.0)[0]
    assert planned == like(WarmupPlanned, action="cold", reason="the task rests after this round: no start is planned")


# ------------------------------------------------------------------ losses
def test_a_lost_collector_is_left_to_who_restarts_it():
    """The restart replaces its planned start; to take that back would end the restarted process."""
    task = learned()
    task.send(task.t + 2.0)
    assert task.lost(0) == ()
    assert [start.collector for start in of(StartCollector, task.publish(task.t + 3.0))] == [1]
    assert task.lost(0) == ()


def test_experience_of_a_lost_collector_stays_good():
    """Nobody is stopped, and the round is no guide for later ones."""
    task = learned()
    task.lost(0, at=task.t + 1.0)
    assert task.arrived(0) == (
        like(WarmupPlanned, action="cold", reason="its process was lost and is started anew at once"),
    )
    task.arrived(1)
    n_rows = len(task.machine.state.history.rows)
    task.ready(0)
    task.publish(task.t + 6.0)
    assert len(task.machine.state.history.rows) == n_rows


def test_a_node_that_is_lost_takes_its_starts_along():
    """No command goes to it; collectors placed elsewhere are started by who places them."""
    task = learned(nodes=["n0", "n1"])
    task.send(task.t + 2.0)
    task.dropped("n1")
    assert task.placed("n0", "n0") == ()
    assert [start.collector for start in of(StartCollector, task.completed("n0", task.t + 3.0))] == [0]


def test_a_new_place_is_left_to_who_starts_there():
    """As a loss: the start at the new place replaces the planned one."""
    task = learned()
    task.send(task.t + 2.0)
    assert task.placed("n0", "n1") == ()
    assert [start.collector for start in of(StartCollector, task.completed("n0", task.t + 3.0))] == [0]


def test_a_round_with_a_lost_lease_is_no_guide():
    """Its gap holds the same work twice."""
    task = learned()
    task.send(task.t + 2.0)
    task.granted(task.t + 1.0)
    task.computed(0, task.t + 1.0)
    task.lease_lost(task.t + 1.0)
    task.publish(task.t + 9.0)
    assert [row.round for row in task.machine.state.history.rows][-1] == 8
    assert task.lease_lost() == ()


# ------------------------------------------------------------------ settings and regimes (O9)
def test_o9_a_setting_counts_from_the_next_round_on():
    """Changed between two arrivals of a round: both have the old planner, the next round the new one."""
    task = learned()
    task.arrived(0, at=task.t + 2.0)
    task.set("warmup.planner", "cold")
    assert task.arrived(1)[0].planner == "saa"
    task.publish(task.t + 6.0)
    task.round += 1
    assert task.arrived(0, at=task.t + 3.0)[0] == like(WarmupPlanned, planner="cold", action="cold")


def test_another_mode_ends_the_regime():
    """Gaps and starts under spawn are no guide to those under zygote."""
    task = learned()
    task.set("warmup.start_mode", "zygote")
    out = task.arrived(0, at=task.t + 2.0)
    assert out[0] == WarmupRegimeEnded(round=9, n_kept=0, reason="start_mode changed from spawn to zygote")
    assert out[1].reason.startswith("0 rounds of this regime known")


def test_another_hold_planner_ends_the_regime():
    """Slots come at other times then."""
    task = learned()
    task.set("leasing.hold", "last")
    assert task.arrived(0, at=task.t + 2.0)[0].reason == "hold changed from yield to last"
    task.set("rl.learning_rate", 0.1)


def test_another_batch_size_ends_the_regime():
    """Told with the round that had it."""
    task = learned()
    task.send(task.t + 2.0, n_samples=16)
    assert only(WarmupRegimeEnded, task.publish(task.t + 6.0)) == WarmupRegimeEnded(
        round=9, n_kept=1, reason="samples changed from 8, 8 to 16, 16"
    )


def test_gaps_that_have_moved_end_the_regime():
    """From 6 to 9 s: noticed with the third; those three are kept, and five more are needed."""
    task = learned()
    out = sum((task.whole_round(9.0) for _ in range(3)), ())
    assert only(WarmupRegimeEnded, out) == WarmupRegimeEnded(
        round=11, n_kept=3, reason="gaps have moved from 6 s to 9 s (spread 0.06 s)"
    )
    assert task.send(task.t + 2.0)[0].reason.startswith("3 rounds of this regime known, 8 needed")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("warmup.rho", -1.0, "rho must be a number from 1e-9 to 1e9, got -1.0"),
        (
            "warmup.planner",
            "x",
            "warmup planner must be one of cold, keep, patent, saa, got 'x'",
        ),
        ("warmup.roh", 1.0, "unknown setting 'warmup.roh'"),
    ],
)
def test_a_wrong_setting_is_refused(key, value, reason):
    """One line; nothing changes."""
    task = learned()
    assert task.set(key, value) == (RequestRefused(subject=key, reason=reason),)
    assert task.machine.state.changed == {}


def test_respawn_needs_environments_that_can_be_snapshot():
    """Trap 4: else no state late in an episode is ever seen; refused at the start and live, with the reason."""
    with pytest.raises(ConfigError, match="collector_mode: 'respawn' needs environments that can be frozen"):
        WarmupMachine(config(can_respawn=False))
    task = Starts(collector_mode="park", can_respawn=False)
    assert "use 'park'" in only(RequestRefused, task.set("warmup.collector_mode", "respawn")).reason


@pytest.mark.parametrize("t", [-1.0, float("nan")])
def test_time_never_runs_backwards(t):
    """A defect of the caller; the message tells the machine, its state and the event."""
    with pytest.raises(InvalidTransition, match="warm-up of a in state running cannot take StopAsked"):
        learned().machine.handle(StopAsked(t=t, reason="x"))


def test_messages_name_the_state():
    """Paused, or ended."""
    task = Starts().open()
    task.pause()
    assert task.machine.state.phase == "paused"
    task.stop()
    assert task.machine.state.phase == "ended"


# ------------------------------------------------------------------ hosts and rounds that do not keep step
def test_a_slow_host_does_not_hold_up_the_others():
    """Collector 0 has acted in round 10 before n1 has its parameters: 1 is started when they come, for round 10."""
    task = learned(nodes=["n0", "n1"], planner="cold")
    task.send(task.t + 2.0)
    task.completed("n0", task.t + 3.0)
    task.ready(0, task.t + 1.0)
    task.round += 1
    task.arrived(0, at=task.t + 2.0)
    late = task.completed("n1", task.t + 1.0, version=10)
    assert late == (like(StartCollector, collector=1, node="n1", env_indices=(1,), after_s=0.0, round=10),)
    task.ready(1, task.t + 1.0)
    task.arrived(1, at=task.t + 1.0)
    n_rows = len(task.machine.state.history.rows)
    task.publish(task.t + 6.0)
    assert len(task.machine.state.history.rows) == n_rows  # its gaps are no guide


def test_a_round_whose_start_was_not_seen_is_measured_but_no_guide():
    """Its length is not known; its starts are."""
    task = learned()
    task.round += 1
    task.send(task.t + 2.0)
    task.publish(task.t + 6.0)
    task.ready(0, task.t + 1.0)
    assert only(WarmupMeasured, task.ready(1, task.t, n_starting=2)).round == 11
    assert task.machine.state.history.rows[-1].round == 8
    assert len(task.machine.state.starts.samples("n0", "spawn", 2)) == 2 + 8 * 2 + 2


def test_who_is_due_starts_once_when_a_rest_ends():
    """The user's resume, or that of the round which needs somebody to evaluate; a second one starts nobody."""
    task = learned()
    task.pause()
    task.send(task.t + 2.0)
    task.publish(task.t + 6.0)
    assert [start.collector for start in task.resume(task.t + 1.0)] == [0, 1]
    assert task.resume(task.t + 1.0) == ()


def test_a_loss_elsewhere_is_nobodys():
    """The node is not the collector's."""
    task = learned(nodes=["n0", "n1"])
    task.nodes = ("n7", "n7")
    assert task.lost(0) == ()
    assert task.machine.state.members[0].status == "up"


def test_who_plans_nothing_journals_no_regimes():
    """Mode park: the change counts without a record."""
    task = learned()
    task.set("warmup.collector_mode", "park")
    assert kinds(task.arrived(0, at=task.t + 2.0)) == ["WarmupPlanned"]
    assert task.machine.state.history.rows == []


def test_a_broken_invariant_is_told():
    """Whatever was put in by hand."""
    task = learned()
    task.machine.state.members[0].due = True
    with pytest.raises(AssertionError, match="collector 0 waits for the user in a pause only"):
        task.machine.check()


# ------------------------------------------------------------------ the other planners
def test_the_seeds_rule_counts_from_the_rounds_start():
    """Claim 8: rounds of 9 s, starts of 1 s: started 8 s after the round began, whoever has sent when."""
    task = learned(planner="patent")
    task.whole_round()  # the first one, of 8 s, does not count: there were no starts before it
    began = task.machine.state.version_t
    assert began == task.t - 1.0
    out = task.arrived(0, at=began + 2.0) + task.arrived(1, at=began + 2.5)
    assert [(p.start_after_s, p.lead_s) for p in of(WarmupPlanned, out)] == [(6.0, 1.0), (5.5, 1.0)]


def test_the_seeds_rule_without_a_known_start_waits_for_the_event():
    """A round whose start was not seen (its host told another version) has no reference."""
    task = learned(planner="patent")
    task.whole_round()
    task.round += 1
    planned = task.arrived(0, at=task.t + 2.0)[0]
    assert planned == like(WarmupPlanned, action="cold", start_after_s=None, lead_s=None)


def test_what_was_weighed_is_told_once_per_round():
    """Candidates are for a slider: the first plan of a round carries them."""
    task = learned(planner="saa")
    first, second = of(WarmupPlanned, task.send(task.t + 2.0))
    assert first.candidates == ((0.0, 0.0, 5.0), (5.0, 0.0, 0.0), (None, 1.0, 0.0))
    assert second.candidates == ()
    assert first.reason == "saves 1 s +- 0 s a round over 8 rounds"
    assert (first.start_after_s, second.start_after_s) == (5.0, 5.0)


def test_errors_are_told_once_per_round():
    """Sure times have no error."""
    task = learned(planner="saa")
    first, second = of(WarmupPlanned, task.send(task.t + 2.0))
    assert first.candidate_errors == ((0.0, 0.0, 0.0),) * 3
    assert (first.saved_s, first.saved_error_s) == (1.0, 0.0)
    assert (second.candidate_errors, second.saved_s) == ((), None)


# ------------------------------------------------------------------ trap 5
def test_a_zygotes_first_start_is_no_sample():
    """What waited for the zygote to be made (4.35 s) says nothing about a fork; what came after does (trap 5)."""
    task = Starts(3, start_mode="zygote")
    task.placed()
    task.ready(0, 5.0, start_s=4.35, mode="zygote")
    task.ready(1, 5.0, start_s=4.36, mode="zygote")
    task.ready(2, 6.0, start_s=0.04, mode="zygote", n_starting=3)
    assert task.machine.state.starts.known == {("n0", "zygote", 3): [0.04]}


def test_a_zygote_that_is_made_in_a_round_spoils_it():
    """Its round's starts are no guide either."""
    task = Starts(1, start_mode="zygote").open()
    task.whole_round(mode="zygote", start_s=4.35)
    assert task.machine.state.starts.samples("n0", "zygote", 1) == ()
    task.whole_round(mode="zygote", start_s=0.04)
    assert task.machine.state.starts.samples("n0", "zygote", 1) == (0.04,)


def test_starts_at_once_are_planned_from_starts_at_once():
    """Trap 5: one restart took 1.36 s, four at once 4.9 s; the plan leads by 4.9."""
    task = Starts(4).open(start_s=4.9)
    task.lost(3)
    task.ready(3, task.t + 2.0, start_s=1.36, n_starting=1)
    for _ in range(8):
        task.whole_round(8.0, start_s=4.9)
    planned = task.arrived(0, at=task.t + 2.0)[0]
    assert planned.lead_s == pytest.approx(4.9)
    assert planned.start_after_s == pytest.approx(8.0 - 4.9)
