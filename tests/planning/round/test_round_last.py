"""The last round, and stops and pauses while processes are ended, as one task's master sees them."""

import pytest
from round_words import Master, kinds, of, only

from drlnb.records.columns.warmup import (
    CollectorReady,
    RevokeStart,
    StartCollector,
    StopCollector,
    WakeCollector,
    WarmupPlanned,
)
from drlnb.records.round import EndTask, Evaluate, PauseAsked, StopAsked, WriteCheckpoint
from tests.matches import like


def a_round(master):
    """Make the present round, up to the hosts' next parameters; return all answers."""
    out = [record for i in range(2) for record in master.arrived(i)]
    out += master.granted()
    for i in range(2):
        out += master.computed(i)
    out += master.made()
    out += master.committed()
    return out + list(master.completed())


# ------------------------------------------------------------------ the last round
@pytest.mark.parametrize("mode", ["respawn", "park"])
def test_no_start_is_planned_for_a_round_that_does_not_come(mode):
    """The budget is met with round 2: nobody rests after it, and one of them plays the evaluation."""
    master = Master(n_rounds=2, can_respawn=True, warmup={"collector_mode": mode})
    master.at_version_1()
    out = [record for i in range(2) for record in master.arrived(i)]
    assert {plan.action for plan in of(WarmupPlanned, out)} <= {"cold"}
    master.granted(), master.computed(0), master.computed(1), master.made(), master.committed(), master.completed()
    if mode == "respawn":
        for i in range(2):
            master.feed(CollectorReady, collector=i, node="n0", start_s=1.0, n_starting=1, start_mode="zygote", round=2)
    last = [record for i in range(2) for record in master.arrived(i)]
    assert [plan.action for plan in of(WarmupPlanned, last)] == ["end", "end"]
    last += [*master.granted(), *master.computed(0), *master.computed(1), *master.made(), *master.committed()]
    last += [*master.gathered(), *master.written()]
    asked = [*last, *master.completed()]
    assert not of(StopCollector, asked) + of(StartCollector, asked)
    assert len(of(Evaluate, asked)) == 1
    assert "EndTask" in kinds(master.evaluated())


# ------------------------------------------------------------------ a stop, or a pause, while processes are ended
def respawning(**config):
    """Return a task whose collectors' processes end after they have sent, and are started ahead."""
    warmup = {"collector_mode": "respawn", "planner": "saa"}
    master = Master(n_rounds=30, can_respawn=True, warmup=warmup, **config)
    master.at_version_1()
    for _ in range(10):
        a_round(master)
        for i in range(2):
            started(master, i)
    return master


def started(master, i):
    return master.feed(
        CollectorReady, collector=i, node="n0", start_s=1.0, n_starting=1, start_mode="zygote", round=master.version
    )


def test_a_stop_takes_planned_starts_back_at_once():
    """O5: the round in hand is the last one; nothing is started for the one after it while it is computed."""
    master = respawning()
    assert of(StartCollector, [*master.arrived(0), *master.arrived(1)])
    out = master.say(StopAsked, reason="enough")
    assert [(one.collector, one.reason) for one in of(RevokeStart, out)] == [(0, "stop: enough"), (1, "stop: enough")]
    master.granted(), master.computed(0), master.computed(1), master.made()
    out = [*master.committed(), *master.written()]
    assert not of(StartCollector, out)
    assert out[-1] == EndTask(state="stopped", reason="enough")


def test_a_round_whose_parameters_are_on_their_way_is_finished_before_a_pause():
    """Its collectors are started all the same: without them the round, and so the rest, would never come."""
    master = respawning()
    master.arrived(0), master.arrived(1)
    master.granted(), master.computed(0), master.computed(1), master.made(), master.committed()
    assert not of(RevokeStart, master.say(PauseAsked))
    master.completed()
    woken = [record for i in range(2) for record in started(master, i)]
    assert len(of(WakeCollector, woken)) == 2
    asked = [*master.arrived(0), *master.arrived(1)]
    asked += [*master.granted(), *master.computed(0), *master.computed(1), *master.made(), *master.committed()]
    assert not of(StartCollector, asked)
    master.completed(), master.written()
    assert master.phase == "paused"


def test_a_round_whose_parameters_are_on_their_way_is_not_begun_after_a_stop():
    """The starts for it are revoked, and the task ends as of the commit, with the environments as they rest."""
    master = respawning()
    master.arrived(0), master.arrived(1)
    master.granted(), master.computed(0), master.computed(1), master.made(), master.committed()
    out = master.say(StopAsked, reason="enough")
    assert [revoked.collector for revoked in of(RevokeStart, out)] == [0, 1]
    written = like(WriteCheckpoint, version=master.version, collectors=((0, "n0"), (1, "n0")), unfinished=False)
    assert only(WriteCheckpoint, out) == written
    assert not of(WakeCollector, master.completed())
    assert master.written()[-1] == EndTask(state="stopped", reason="enough")
