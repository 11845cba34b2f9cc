"""What dies during a round, and how the round goes on."""

import pytest
from round_words import Master, fence, kinds, of, only

from drlnb.planning.distribution.publication import DEADLINE
from drlnb.records import round as words
from drlnb.records.columns.distribution import (
    AskMissing,
    BaseMissing,
    DistributionPlanned,
    HostDropped,
    MessageLost,
    RangesMissing,
    SendParameters,
    VersionPublished,
)
from drlnb.records.columns.leasing import HoldPlanned
from drlnb.records.columns.warmup import CollectorRestartPlanned, CollectorUnanswered, StartCollector, WakeCollector
from drlnb.records.common import SetDeadline
from tests.matches import like


@pytest.fixture
def master():
    """Return a task with two collectors that act in round 1."""
    master = Master()
    master.at_version_1()
    return master


# ---------------------------------------------------------------------- messages
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"attempt": 2}, "attempt 2, now 1"),
        ({"round": 0}, "round 0 under version 0, now 1"),
        ({"round": 2}, "round 2 under version 2, now 1"),
        ({"version": 0}, "round 1 under version 0, now 1"),
    ],
)
def test_experience_of_another_round_or_attempt_is_dropped(master, wrong, reason):
    """It is refused with a reason, and the right one is taken afterwards."""
    (drop,) = master.arrived(0, key="bad", **wrong)
    assert drop == words.DropExperience(key="bad", collector=0, round=wrong.get("round", 1), reason=reason)
    assert of(words.RequestSlot, master.arrived(0))


def test_a_second_copy_is_dropped(master):
    """A collector that was thought lost and acted twice gives one batch; the first is kept."""
    master.arrived(0, key="first")
    assert master.arrived(0, key="second") == (like(words.DropExperience, key="second", reason="second copy"),)
    assert master.machine.state.hold.batches[0].key == "first"


def test_the_same_message_twice_does_not_free_the_batch(master):
    """Dropping the key of a batch that is queued would free what the executor is to read."""
    master.arrived(0, key="k")
    assert master.arrived(0, key="k") == ()


def test_a_repeated_grant_does_not_return_the_lease(master):
    """The pool repeats its answer to a request that was sent twice; we still hold that lease."""
    master.arrived(0)
    master.granted()
    assert master.granted(token=2, request_id="a/1/1-2") == ()
    assert master.machine.state.hold.held


def test_a_repeated_gradient_does_not_finish_the_round_twice(master):
    """The second copy adds neither time nor another command."""
    master.arrived(0)
    master.granted()
    master.arrived(1)
    master.computed(0)
    assert master.computed(0) == ()
    assert of(words.FinishRound, master.computed(1))
    assert master.computed(1) == ()
    assert master.machine.state.hold.computed_s == [1.0]


def test_repeated_parameters_are_committed_once(master):
    """The second copy of `ParametersReady` and of `ParametersCommitted` is ignored."""
    for i in (0, 1):
        master.arrived(i)
    master.granted()
    for i in (0, 1):
        master.computed(i)
    assert of(words.CommitParameters, master.made())
    assert master.made() == ()
    assert of(words.ReturnLease, master.committed(version=2))
    assert master.committed(version=2) == ()
    assert master.version == 2


# ---------------------------------------------------------------------- leases and executors
def test_a_lost_lease_voids_what_was_computed(master):
    """Batches stay queued, a slot is asked for again, the collectors are not woken again."""
    master.arrived(0)
    master.granted()
    master.arrived(1)
    master.computed(0)
    out = master.lease_lost(reason="expired")
    assert out == (
        like(HoldPlanned, action="request", reason="lease #2 lost: expired"),
        words.RequestSlot(request_id="a/1/1-3", round=1),
        words.PhaseEntered(phase="waiting", round=1),
    )
    assert master.computed(1, token=2) == ()  # made under the lost lease: void
    assert [g.collector for g in of(words.ComputeGradient, master.granted(token=3))] == [0, 1]
    master.computed(0)
    master.computed(1)
    master.made()
    out = master.committed()
    assert only(words.MetricsRecorded, out).metrics["round/update_s"] == 1.25
    assert of(WakeCollector, master.records) == [like(WakeCollector, collector=i, round=1) for i in (0, 1)]


def test_a_lease_lost_before_all_has_arrived_leaves_the_phase_alone(master):
    """The task still collects; the first batch is sent again under the next lease."""
    master.arrived(0)
    master.granted()
    assert kinds(master.lease_lost()) == ["HoldPlanned", "RequestSlot"]
    assert master.phase == "collecting"
    assert [g.collector for g in of(words.ComputeGradient, master.granted())] == [0]


def test_another_lease_is_no_concern(master):
    """The loss of a lease that is not held, or the death of its executor, changes nothing."""
    master.arrived(0)
    master.granted()
    assert master.lease_lost(token=1) == ()
    assert master.executor_died(token=1) == ()
    assert master.made(token=1) == ()


def test_a_dead_executor_gives_the_lease_back_unclean(master):
    """The pool must not lend the slot until a new executor serves it."""
    master.arrived(0)
    master.granted()
    master.computed(0)
    out = master.executor_died()
    assert out == (
        words.ReturnLease(fence=fence(2), clean=False, computed_s=(0.5,)),
        like(HoldPlanned, action="request", reason="executor of n0/cpu0 died: signal 9"),
        words.RequestSlot(request_id="a/1/1-3", round=1),
    )


def test_three_dead_executors_in_one_round_fail_the_task(master):
    """The batch itself kills the executor: the third time is the last."""
    master.arrived(0)
    for _ in range(2):
        master.granted()
        assert of(words.RequestSlot, master.executor_died())
    master.granted()
    out = master.executor_died()
    assert only(words.ReturnLease, out).clean is False
    assert only(words.EndTask, out) == words.EndTask(
        state="failed", reason="the executor died 3 times in one round: signal 9"
    )


def test_deaths_are_counted_by_round(master):
    """Two deaths in one round and two in the next fail nothing."""
    for _ in range(2):
        master.arrived(0)
        master.arrived(1)
        for _ in range(2):
            master.granted()
            master.executor_died()
        master.granted()
        master.computed(0)
        master.computed(1)
        master.made()
        master.committed()
        master.completed()
    assert master.version == 3


def test_a_death_while_version_1_is_made():
    """The initial parameters are made again under the next lease."""
    master = Master()
    master.opened()
    master.granted()
    out = master.executor_died()
    assert kinds(out) == ["ReturnLease", "HoldPlanned", "RequestSlot", "PhaseEntered"]
    assert of(words.InitialiseParameters, master.granted())


def test_a_commit_counts_although_its_lease_was_lost_meanwhile(master):
    """The store admits the version; then the loss arrives, then the word of the store.

    Without this the round would be computed again and its commit refused for ever: the store holds version 2.
    """
    for i in (0, 1):
        master.arrived(i)
    master.granted()
    for i in (0, 1):
        master.computed(i)
    master.made()
    master.lease_lost()
    out = master.committed(token=2)
    assert not of(words.ReturnLease, out)
    assert master.version == 2
    assert of(SendParameters, out)
    # The slot that was asked for meanwhile is not needed any more.
    assert master.granted(token=3, request_id="a/1/1-3") == (
        words.ReturnLease(fence=fence(3), clean=True, computed_s=(0.0,)),
    )
    assert len(of(WakeCollector, master.completed())) == 2


def test_a_late_commit_stops_the_second_computation(master):
    """The round is already being computed again: that lease goes back, and work may still run under it."""
    for i in (0, 1):
        master.arrived(i)
    master.granted()
    for i in (0, 1):
        master.computed(i)
    master.made()
    master.lease_lost()
    master.granted(token=3)
    assert master.committed(version=2, token=2)[0] == words.ReturnLease(fence=fence(3), clean=False, computed_s=(0.0,))


# ---------------------------------------------------------------------- collectors
def test_a_collector_lost_while_it_acts_is_started_and_woken_again(master):
    """It goes back to the same round with the same version; the other one is left alone."""
    assert master.lost(1) == (
        CollectorRestartPlanned(collector=1, node="n0", after_s=0.5, n_restarts=1),
        like(StartCollector, collector=1, node="n0", env_indices=(1,), after_s=0.5),
    )
    assert master.ready(1) == (like(WakeCollector, collector=1, round=1, version=1),)


def test_a_collector_lost_after_it_has_sent_restarts_at_once_and_rests(master):
    """What it had sent stays good."""
    master.arrived(0)
    assert only(StartCollector, master.lost(0)).after_s == 0.0
    assert master.ready(0) == ()
    assert 0 in master.machine.state.hold.batches
    master.to_commit()
    assert [wake.collector for wake in of(WakeCollector, master.completed())] == [0, 1]


def test_experience_that_was_under_way_when_its_collector_died_counts(master):
    """The death overtakes the message; the collector is not woken again for this round."""
    master.lost(0)
    assert of(words.RequestSlot, master.arrived(0))
    assert master.ready(0) == ()


def test_the_pause_before_a_restart_doubles_up_to_half_a_minute():
    """0.5 s, 1, 2, ... at most 30; experience that arrives sets it back."""
    master = Master(max_collector_restarts=100)
    master.at_version_1()
    pauses = [only(StartCollector, master.lost(1)).after_s for _ in range(9)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    master.ready(1)
    master.arrived(1)
    master.arrived(0)
    master.to_commit()
    master.completed()
    assert only(StartCollector, master.lost(1)).after_s == 0.5


def test_restarts_have_a_budget():
    """The loss after the last allowed restart fails the task with the collector's own words; another's do not count."""
    master = Master(max_collector_restarts=2)
    master.at_version_1()
    for i in (0, 1, 1, 0):
        assert not of(words.EndTask, master.lost(i))
    assert only(words.EndTask, master.lost(0, reason="exit 1", detail="ValueError: x")) == words.EndTask(
        state="failed", reason="collector 0 was lost too often: exit 1\nValueError: x"
    )


def test_an_error_that_comes_back_at_once_is_not_tried_for_ever():
    """The third loss in a row without a fragment fails the task if it brings a traceback, not if it is a kill."""
    for detail, ends in (("ValueError: x", 1), ("", 0)):
        master = Master(max_collector_restarts=100)
        master.at_version_1()
        for _ in range(2):
            assert not of(words.EndTask, master.lost(0, detail="ValueError: x"))
            master.ready(0)
        assert len(of(words.EndTask, master.lost(0, detail=detail))) == ends


def test_three_deaths_in_a_row_at_one_step_are_not_tried_further():
    """It is not chance; a death elsewhere, or where nobody knows, and experience in between begin the count anew."""
    for places, ends in (("aaa", 1), ("aab", 0), ("aba", 0), ("baaa", 1), (["", "", ""], 0), (["a", "", "a", "a"], 0)):
        master = Master(max_collector_restarts=100)
        master.at_version_1()
        for where in places:
            out = master.lost(0, reason="killed by signal 9", where=where)
            master.ready(0)
        assert len(of(words.EndTask, out)) == ends, places
    assert only(words.EndTask, doomed(0)) == words.EndTask(
        state="failed", reason="collector 0 was lost too often: killed by signal 9 in step 3"
    )
    assert not of(words.EndTask, doomed(1))


def doomed(n_rounds_between):
    """Return the answer to a third death of a collector at one step, with so many rounds before it."""
    master = Master(max_collector_restarts=100)
    master.at_version_1()
    death = {"reason": "killed by signal 9 in step 3", "where": "in step 3"}
    master.lost(0, **death), master.ready(0), master.lost(0, **death), master.ready(0)
    for _ in range(n_rounds_between):
        master.to_commit()
        master.completed()
    return master.lost(0, **death)


def test_old_news_of_collectors_change_nothing(master):
    """Readiness or loss on a node where the collector does not live, of one that is up, or of an unknown one."""
    assert master.ready(0, "n9") == ()
    assert master.ready(0) == ()
    assert master.ready(7) == ()
    assert master.lost(0, "n9") == ()
    assert master.lost(7) == ()


# ---------------------------------------------------------------------- nodes
def test_a_lost_node_moves_only_its_collectors():
    """The pool is asked; the collector on the other node goes on acting."""
    master = Master()
    master.at_version_1("n0", "n1")
    assert master.node_lost("n1") == (
        HostDropped(host="n1", reason="killed"),
        words.AskPlacement(n_collectors=2, planner="ect"),
    )
    assert master.placed("n0", "n2") == (
        like(StartCollector, collector=1, node="n2", env_indices=(1,), after_s=0.0),
        words.PhaseEntered(phase="publishing", round=1),
        like(DistributionPlanned, version=1, hosts=("n2",)),
        like(SendParameters, hosts=("n2",), source="n0", version=1),
        SetDeadline(name=DEADLINE, after_s=5.0),
    )
    master.ready(1, "n2")
    assert of(WakeCollector, master.completed("n2")) == [like(WakeCollector, collector=1, node="n2", round=1)]
    assert master.node_lost("n1") == ()  # old news


def test_a_node_is_lost_while_its_share_is_already_here():
    """The batch stays; the new collector waits for the next round."""
    master = Master()
    master.at_version_1("n0", "n1")
    master.arrived(1)
    master.node_lost("n1")
    master.placed("n0", "n0")
    assert master.ready(1, "n0") == ()
    master.arrived(0)
    master.to_commit()
    assert len(of(WakeCollector, master.completed("n0"))) == 2


def test_a_node_is_lost_before_there_are_parameters():
    """Nothing is published yet; the collector is started elsewhere."""
    master = Master()
    master.opened()
    master.placed("n0", "n1")
    master.node_lost("n0")
    assert kinds(master.placed("n1", "n1")) == ["StartCollector"]


def test_a_host_that_cannot_be_reached_is_dropped():
    """As if its node was lost; the round goes on with the answer of the pool."""
    master = Master()
    master.at_version_1("n0", "n1")
    master.to_commit()
    assert master.unreachable("n1") == (
        HostDropped(host="n1", reason="timed out"),
        words.AskPlacement(n_collectors=2, planner="ect"),
    )
    assert master.unreachable("n1") == ()
    assert master.unreachable("n0", version=1) == ()  # of a former version
    master.completed("n0")
    assert master.unreachable("n0") == ()  # it holds the version: old news


def test_a_node_that_takes_many_collectors_along_counts_once():
    """Of 30 collectors each is started anew where 20 restarts are allowed; the node after 20 others is the end."""
    master = Master(n_collectors=30, max_collector_restarts=20)
    master.opened()
    for n in range(20):
        master.placed(*[f"n{n}"] * 30)
        assert not of(words.EndTask, master.node_lost(f"n{n}"))
    master.placed(*["n20"] * 30)
    assert only(words.EndTask, master.node_lost("n20")).reason == (
        "collector 0 was lost too often, now with node n20: killed"
    )


def test_losses_of_a_whole_node_that_are_told_one_by_one_count_once_as_well():
    """All 30 processes die with their fork server: no collector has used up more than one restart."""
    master = Master(n_collectors=30)
    master.at_version_1()
    assert not [end for i in range(30) for end in of(words.EndTask, master.lost(i))]


def test_the_budget_of_restarts_is_per_time():
    """21 crashes of one collector, ten minutes apart, are 6 in an hour at most; 21 in an hour are too many."""
    for pause_s, ends in ((600.0, 0), (170.0, 1)):
        master = Master()
        master.at_version_1()
        for _ in range(21):
            master.t += pause_s
            out = master.lost(0)
        assert len(of(words.EndTask, out)) == ends


# ---------------------------------------------------------------------- the evaluation
def test_a_lost_evaluator_is_followed_by_another_evaluation():
    """The collector that comes up first plays it; the word of the dead one does not count."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.completed()
    master.gathered()
    master.written()
    assert of(StartCollector, master.lost(0))
    assert master.evaluated(failure="collector died") == ()
    assert of(words.Evaluate, master.ready(0)) == [like(words.Evaluate, collector=0)]
    assert master.ready(0) == ()
    assert only(words.EndTask, master.evaluated()).state == "done"


def test_a_lost_collector_that_does_not_evaluate_changes_nothing():
    """The evaluation goes on at the other one."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.completed()
    master.lost(1)
    assert master.ready(1) == ()


def test_the_evaluators_node_is_lost():
    """The evaluation waits for the placement, then for parameters and collector on the new node."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.completed()
    master.written()
    master.node_lost("n0")
    master.placed("n1", "n1")
    assert master.ready(0, "n1") == ()
    assert of(words.Evaluate, master.completed("n1")) == [like(words.Evaluate, collector=0, node="n1")]


def test_the_evaluator_is_moved_by_a_placement():
    """Another collector of the task was on a lost node, and the pool moved them all."""
    master = Master(n_rounds=1)
    master.at_version_1("n0", "n1")
    master.to_commit()
    assert of(words.Evaluate, master.completed("n0")) == [like(words.Evaluate, collector=0, node="n0")]
    master.written()
    master.unreachable("n1")
    master.placed("n2", "n2")
    master.completed("n2")
    assert of(words.Evaluate, master.ready(1, "n2")) == [like(words.Evaluate, collector=1, node="n2")]


def test_a_message_that_is_lost_is_sent_again():
    """Past the relay to the host behind it, and to the relay itself; then it is dropped, and its collector moves."""
    master = Master(n_collectors=3, planners={"hold": "round", "distribution": "chain:c=1"})
    master.opened(), master.placed("n0", "n1", "n2"), master.granted(), master.made()
    assert only(SendParameters, master.committed()).routes == (((-1, 0), (0, 1), (1, 2)),)
    lost = {"version": 1, "host": "n1", "start": 0, "stop": 100, "reason": "timed out"}
    past, again = of(SendParameters, master.feed(MessageLost, **lost, sender="n0", orphans=("n2",), again=False))
    assert (past.source, past.hosts, again.source, again.hosts) == ("n0", ("n2",), "", ("n1",))
    out = master.feed(MessageLost, **lost, sender="", orphans=(), again=True)
    assert out[0] == HostDropped(host="n1", reason="timed out")
    assert of(words.AskPlacement, out)
    master.completed("n0")
    assert of(VersionPublished, master.completed("n2"))


def test_a_host_that_is_late_is_asked_what_it_misses():
    """And gets that from one that holds the version."""
    master = Master(n_collectors=2)
    master.opened(), master.placed("n0", "n1"), master.granted(), master.made(), master.committed()
    master.completed("n0")
    assert of(AskMissing, master.late()) == [AskMissing(version=1, hosts=("n1",))]
    sent = only(SendParameters, master.feed(RangesMissing, host="n1", version=1, missing=((40, 100),)))
    assert (sent.source, sent.hosts, sent.sends) == ("n0", ("n1",), ((40, 100, 0),))
    assert of(AskMissing, master.late()), "it may live still"
    master.feed(RangesMissing, host="n1", version=1, missing=((40, 100),))
    assert HostDropped(host="n1", reason="late too often") in master.late()


# ---------------------------------------------------------------------- questions without an answer
def unanswered(master, collector=0, *, node="n0", version=None, evaluates=False):
    return master.feed(
        CollectorUnanswered, collector=collector, node=node, version=version or master.version, evaluates=evaluates,
        reason="did not answer: gone", detail="",
    )  # fmt: skip


def test_who_acts_and_does_not_answer_is_lost(master):
    """The machine judges whether it still waits: once, for this node, and this version."""
    assert unanswered(master, node="n9") == ()
    assert unanswered(master, version=7) == ()
    assert CollectorRestartPlanned(collector=0, node="n0", after_s=0.5, n_restarts=1) in unanswered(master)
    assert unanswered(master) == (), "it is being started"
    master.arrived(1)
    assert unanswered(master, 1) == (), "its experience is here"


def test_who_plays_an_evaluation_and_does_not_answer_is_lost():
    """Whoever plays it is lost, unless somebody else plays it by then."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit(), master.gathered(), master.written()
    assert only(words.Evaluate, master.completed()).collector == 0
    assert unanswered(master, 1, evaluates=True) == ()
    assert of(CollectorRestartPlanned, unanswered(master, 0, evaluates=True))
    assert unanswered(master, 0, evaluates=True) == ()


def test_a_host_without_the_former_version_is_sent_what_it_was_to_keep(master):
    """At once; nobody waits for a deadline."""
    for i in range(2):
        master.arrived(i)
    if not master.machine.state.hold.held:
        master.granted()
    for i in range(2):
        master.computed(i)
    master.made()
    out = master.feed(words.ParametersCommitted, version=2, fence=fence(master.token), base=1, changed=((0, 40),))
    assert only(SendParameters, out).sends == ((0, 40, 0),)
    again = only(SendParameters, master.feed(BaseMissing, host="n0", version=2, missing=((40, 100),)))
    assert (again.source, again.hosts, again.sends) == ("", ("n0",), ((40, 100, 0),))
