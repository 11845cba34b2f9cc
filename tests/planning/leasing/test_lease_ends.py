"""Expiry, draining, failures, attempts and settings."""

import json

import pytest
from lease_indices import LeaseTable, index_laws
from pool_words import (
    grant,
    idled,
    node_lost,
    of,
    only,
    polled,
    reap,
    renewed,
    requested,
    returned,
    slot_added,
    slot_failed,
    stopped,
)

from drlnb.planning.codec import from_plain
from drlnb.planning.leasing.laws import laws
from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.requests import lease_returned
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.machine import Impossible
from drlnb.records.columns.leasing import (
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    RequestRefused,
    RevokeLease,
    SlotDrained,
    SlotFreed,
)
from drlnb.records.columns.placement import NodeAdded
from drlnb.records.common import DeadlinePassed, LoopLagged, SetDeadline, SettingChanged
from drlnb.records.errors import InvalidTransition
from drlnb.records.ids import Fence
from tests.matches import like


# ------------------------------------------------------------------ silence and long holds
def test_a_silent_lease_expires_and_its_slot_drains(make_table):
    """After more than the time to live without a sign of life the lease is gone, but its slot is not free."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(requested("b", t=1.0))
    assert table.handle(reap(t=10.0)) == (SetDeadline(name="reap", after_s=0.25),)
    assert table.handle(reap(t=10.25)) == (
        LeaseExpired(fence=lease.fence, task="a", slots=("n0/cpu0",), held_s=10.25, silent_s=10.25),
        SlotDrained(slot="n0/cpu0", reason="silent"),
        RevokeLease(fence=lease.fence, slot="n0/cpu0", reason="silent"),
    )
    table.handle(polled("b-1", t=990.0))
    assert table.handle(reap(t=1000.0)) == ()  # no timer frees a slot
    assert table.handle(returned(lease.fence, t=1000.0)) == (RequestRefused(subject="#1", reason="is over"),)
    assert table.handle(idled("n0/cpu0", t=1001.0))[:2] == (
        SlotFreed(slot="n0/cpu0"),
        like(LeaseGranted, task="b", waited_s=1000.0),
    )


def test_a_renewal_is_a_sign_of_life(make_table):
    """Silence counts from the last renewal."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    assert table.handle(renewed(lease.fence, t=8.0)) == ()
    assert not of(LeaseExpired, table.handle(reap(t=18.0)))
    assert only(LeaseExpired, table.handle(reap(t=18.5))) == like(LeaseExpired, held_s=18.5, silent_s=10.5)


def test_a_repeated_request_is_a_sign_of_life(make_table):
    """Who still asks has not got the answer yet: its lease is not silent."""
    table = make_table(["n0/cpu0"])
    grant(table, requested("a", t=0.0))
    table.handle(requested("a", t=8.0))
    assert not of(LeaseExpired, table.handle(reap(t=17.0)))


def test_silence_while_our_own_loop_stood_still_does_not_count(make_table):
    """A lag moves every last sign of life, so that a holder whose renewals waited in our socket keeps its lease."""
    table = make_table(["n0/cpu0"])
    grant(table, requested("a", t=0.0))
    assert table.handle(LoopLagged(t=12.0, lag_s=5.0)) == ()
    assert not of(LeaseExpired, table.handle(reap(t=12.0)))
    assert not of(LeaseExpired, table.handle(reap(t=15.0)))
    assert only(LeaseExpired, table.handle(reap(t=15.5))).silent_s == 10.5


def test_a_lag_before_the_grant_is_no_excuse(make_table):
    """A lease granted after the lag has its own time to live and not more."""
    table = make_table(["n0/cpu0"])
    table.handle(LoopLagged(t=12.0, lag_s=5.0))
    grant(table, requested("a", t=12.0))
    assert only(LeaseExpired, table.handle(reap(t=22.5))).silent_s == 10.5


def test_silence_is_never_below_zero(make_table):
    """A lag that is reported after a renewal does not make silence negative."""
    table = make_table(["n0/cpu0"], max_hold_s=1.0)
    grant(table, requested("a", t=0.0))
    table.handle(LoopLagged(t=0.0, lag_s=5.0))
    assert only(LeaseExpired, table.handle(reap(t=2.0))).silent_s == 0.0


def test_a_lease_held_for_too_long_expires_though_its_holder_lives(make_table):
    """Renewals show that the holder lives, not that its work goes on."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    lease = grant(table, requested("a", t=0.0))
    other = grant(table, requested("b", t=1.0))
    for t in range(8, 121, 8):
        table.handle(renewed(lease.fence, t=float(t)))
        table.handle(renewed(other.fence, t=float(t)))
    assert not of(LeaseExpired, table.handle(reap(t=120.0)))
    out = table.handle(reap(t=120.25))
    assert out == (
        like(LeaseExpired, task="a", held_s=120.25, silent_s=0.25),
        SlotDrained(slot="n0/cpu0", reason="max-hold"),
        RevokeLease(fence=lease.fence, slot="n0/cpu0", reason="max-hold"),
        SetDeadline(name="reap", after_s=0.25),
    )


def test_the_tick_stops_with_the_last_lease_and_starts_with_the_next(make_table):
    """A pool without leases sets no deadlines."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(returned(lease.fence, t=0.1))
    assert table.handle(reap(t=0.25)) == ()
    assert only(SetDeadline, table.handle(requested("b", t=1.0))).name == "reap"


def test_only_the_reap_deadline_is_ours(make_table):
    """A deadline that the table never set is a defect of the driver."""
    with pytest.raises(InvalidTransition, match="no deadline but 'reap'"):
        make_table().handle(DeadlinePassed(t=0.0, name="tea"))


def test_a_negative_lag_is_our_defect(make_table):
    """A loop cannot stand still for less than no time."""
    with pytest.raises(InvalidTransition, match=r"a lag of 0 s so far cannot take LoopLagged\(t=0.0, lag_s=-1.0\)"):
        make_table().handle(LoopLagged(t=0.0, lag_s=-1.0))


def test_an_event_of_another_machine_is_our_defect(make_table):
    """The table has no rule for nodes that come."""
    with pytest.raises(InvalidTransition, match="without a rule for it"):
        make_table().handle(NodeAdded(t=0.0, node="n0", host="h", n_collector_slots=1))


# ------------------------------------------------------------------ executors and slots
@pytest.fixture
def draining(make_table):
    """Return a table whose only slot drains."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(returned(lease.fence, t=1.0, clean=False))
    return table


def test_a_newer_executor_frees_a_draining_slot(draining):
    """A new executor process has nothing of the former one's work."""
    assert draining.handle(slot_added("n0/cpu0", t=2.0, epoch=1)) == (SlotFreed(slot="n0/cpu0"),)


def test_the_same_executor_frees_nothing(draining):
    """The start of the executor that was there all along says nothing about its work."""
    assert draining.handle(slot_added("n0/cpu0", t=2.0, epoch=0)) == ()
    assert draining.handle(requested("b", t=3.0)) == ()


def test_a_new_executor_ends_the_lease_of_the_former_one(make_table):
    """The holder's work died with the executor: the lease is over and the slot goes to who waits."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(requested("b", t=1.0))
    assert table.handle(slot_added("n0/cpu0", t=2.0, epoch=1))[:2] == (
        like(LeaseReleased, fence=lease.fence, held_s=2.0, reason="executor-died"),
        like(LeaseGranted, task="b", slots=("n0/cpu0",)),
    )


def test_a_new_executor_of_a_free_slot_is_noted(make_table):
    """Nothing follows, but the former epoch no longer counts as new."""
    table = make_table(["n0/cpu0"])
    assert table.handle(slot_added("n0/cpu0", t=0.0, epoch=3)) == ()
    out = table.handle(slot_added("n0/cpu0", t=0.0, epoch=2))
    assert out == (RequestRefused(subject="n0/cpu0", reason="is free since executor epoch 3: a later one is needed"),)


def test_idleness_of_a_slot_that_does_not_drain_is_refused(make_table):
    """A late word of an executor frees nobody's lease."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    assert table.handle(idled("n0/cpu0", t=1.0)) == (RequestRefused(subject="n0/cpu0", reason="is not draining"),)
    assert table.handle(idled("n9/cpu9", t=1.0)) == (RequestRefused(subject="n9/cpu9", reason="is not draining"),)
    assert table.handle(renewed(lease.fence, t=1.0)) == ()


def test_a_failed_slot_ends_its_lease_and_is_not_lent(make_table):
    """Until it is added again with a later executor, a failed slot is out."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    assert table.handle(slot_failed("n0/cpu0", t=1.0)) == (
        like(LeaseReleased, fence=lease.fence, held_s=1.0, reason="slot-failed"),
    )
    assert table.state.lendable == ()
    assert table.handle(slot_failed("n0/cpu0", t=2.0)) == ()
    assert table.handle(requested("b", t=2.0)) == ()
    assert table.handle(slot_added("n0/cpu0", t=4.0, epoch=0)) == (
        RequestRefused(subject="n0/cpu0", reason="is failed since executor epoch 0: a later one is needed"),
    )
    assert table.handle(slot_added("n0/cpu0", t=5.0, epoch=1))[:2] == (
        SlotFreed(slot="n0/cpu0"),
        like(LeaseGranted, task="b", waited_s=3.0),
    )
    assert table.state.lendable == ("n0/cpu0",)


def test_unknown_slots_are_refused(make_table):
    """A slot that was never added does not fail."""
    table = make_table()
    assert table.handle(slot_failed("x", t=0.0)) == (RequestRefused(subject="x", reason="is not in the pool"),)


def test_a_slot_never_changes_its_node(make_table):
    """One slot name on two nodes is our defect."""
    with pytest.raises(InvalidTransition, match="slot n0/cpu0 on node n0"):
        make_table(["n0/cpu0"]).handle(slot_added("n0/cpu0", node="n1"))


# ------------------------------------------------------------------ nodes and attempts
def test_a_lost_node_takes_its_slots_and_what_its_masters_held_and_wanted(make_table):
    """Slots there fail; leases of masters there drain elsewhere; requests of masters there leave the queue."""
    table = make_table(["n0/cpu0", "n1/cpu0"])
    here = grant(table, requested("a", t=0.0, node="n0"))
    there = grant(table, requested("b", t=0.0, node="n0"))
    assert (here.slots, there.slots) == (("n0/cpu0",), ("n1/cpu0",))
    table.handle(requested("c", t=1.0, node="n0"))
    table.handle(requested("d", t=1.0, node="n1"))
    assert table.handle(node_lost("n0", t=2.0)) == (
        like(LeaseReleased, fence=here.fence, reason="node-lost", held_s=2.0),
        like(LeaseReleased, fence=there.fence, reason="node-lost", held_s=2.0),
        SlotDrained(slot="n1/cpu0", reason="node-lost"),
        RevokeLease(fence=there.fence, slot="n1/cpu0", reason="node-lost"),
        RequestRefused(subject="c-1", reason="node-lost"),
    )
    assert table.handle(idled("n1/cpu0", t=3.0))[1] == like(LeaseGranted, task="d")
    assert table.handle(node_lost("n0", t=4.0)) == ()


def test_a_lost_node_ends_leases_of_distant_masters_on_its_slots(make_table):
    """The holder elsewhere loses its lease at once, and nothing is revoked on a node that is gone."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0, node="n1"))
    assert table.handle(node_lost("n0", t=1.0)) == (like(LeaseReleased, fence=lease.fence, reason="node-lost"),)


def test_a_node_that_comes_back_may_count_its_executors_anew(make_table):
    """The next agent of a lost node starts at executor epoch 0 again, and its slot is back."""
    table = make_table()
    table.handle(slot_added("n0/cpu0", epoch=5))
    table.handle(node_lost("n0", t=1.0))
    assert table.handle(slot_added("n0/cpu0", t=2.0, epoch=0)) == (SlotFreed(slot="n0/cpu0"),)


def test_a_lower_attempt_is_refused_and_a_higher_one_supersedes(make_table):
    """The newest master of a task alone may want and hold; what its predecessor held drains."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0, attempt=2))
    table.handle(requested("a", t=1.0, attempt=2, round=2))
    out = table.handle(requested("a", t=2.0, attempt=1, request_id="old"))
    assert out == (RequestRefused(subject="old", reason="attempt 1 is over: 2 or later may ask"),)
    out = table.handle(requested("a", t=3.0, attempt=3, request_id="new"))
    assert out == (
        like(LeaseReleased, fence=lease.fence, reason="superseded by attempt 3"),
        like(SlotDrained, slot="n0/cpu0"),
        like(RevokeLease, fence=lease.fence),
        RequestRefused(subject="a-2", reason="superseded by attempt 3"),
    )
    assert table.handle(idled("n0/cpu0", t=4.0))[1] == like(LeaseGranted, request_id="new", attempt=3)


def test_a_stopped_task_wants_and_holds_nothing(make_table):
    """Its lease drains, its requests leave, later ones of that attempt are refused, a later attempt's are not."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(requested("a", t=0.0, round=2))
    table.handle(requested("b", t=0.0))
    assert table.handle(stopped("a", t=1.0)) == (
        like(LeaseReleased, fence=lease.fence, reason="task-stopped"),
        like(SlotDrained, slot="n0/cpu0"),
        like(RevokeLease, fence=lease.fence),
        RequestRefused(subject="a-2", reason="task-stopped"),
    )
    assert of(RequestRefused, table.handle(requested("a", t=2.0, round=3)))
    assert table.handle(requested("a", t=2.0, round=3, attempt=2)) == ()
    assert table.handle(stopped("a", t=3.0, attempt=1)) == ()
    assert table.handle(stopped("nobody", t=3.0)) == ()


# ------------------------------------------------------------------ settings
def test_a_new_time_to_live_holds_from_the_next_grant(make_table):
    """A holder that was told 10 s keeps 10 s."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    grant(table, requested("a", t=0.0))
    assert table.handle(SettingChanged(t=0.0, key="leasing.ttl_s", value=20.0, task=None)) == ()
    grant(table, requested("b", t=0.0))
    assert [gone.task for gone in of(LeaseExpired, table.handle(reap(t=10.5)))] == ["a"]
    assert [gone.task for gone in of(LeaseExpired, table.handle(reap(t=20.5)))] == ["b"]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("leasing.ttl_s", 5.0, "renew_s < holder_ttl_s < ttl_s must hold, got 2 s, 8 s, 5 s: "),
        ("leasing.hold", "best", "hold planner must be one of round, yield, last, got 'best'"),
        ("leasing.colour", "red", "cannot be changed while tasks run"),
        ("rl.gamma", 0.9, "cannot be changed while tasks run"),
        ("task.priority", 1, "names no task"),
        ("slot.drain", "n9/cpu0", "slot 'n9/cpu0' is not in the pool"),
    ],
)
def test_a_setting_that_cannot_be_taken_is_refused(make_table, key, value, reason):
    """The settings stay as they were."""
    table = make_table()
    refusal = only(RequestRefused, table.handle(SettingChanged(t=0.0, key=key, value=value, task=None)))
    assert refusal.subject == key
    assert refusal.reason.startswith(reason)
    assert table.state.settings == LeasingSettings()


# ------------------------------------------------------------------ snapshots and the table's own laws
def test_a_snapshot_survives_json(make_table):
    """State goes through JSON and back unchanged, and the new table goes on like the old one."""
    table = make_table(["n0/cpu0", "n1/cpu0", "n1/cpu1"])
    lease = grant(table, requested("a", t=0.0))
    grant(table, requested("b", t=0.5))
    table.handle(returned(lease.fence, t=1.0, clean=False))
    grant(table, requested("c", t=1.5))
    table.handle(requested("d", t=2.0))
    table.handle(SettingChanged(t=2.0, key="leasing.ttl_s", value=9.0, task=None))
    snapshot = json.loads(json.dumps(table.snapshot()))
    copy = LeaseTable(LeasingSettings(), epoch=1)
    copy.restore(snapshot)
    copy.check()
    assert copy.snapshot() == snapshot
    for event in (idled("n0/cpu0", t=3.0), reap(t=11.0), slot_failed("n1/cpu1", t=12.0)):
        assert copy.handle(event) == table.handle(event)


@pytest.fixture
def busy(make_table):
    """Return the snapshot of a sound table: a free slot, a draining one, a held one; then one failed; nobody waits."""
    table = make_table(["n0/a", "n0/b", "n0/c", "n0/d"])
    table.handle(slot_failed("n0/d", t=0.0))
    table.handle(returned(grant(table, requested("a", t=0.0)).fence, t=1.0, clean=False))
    grant(table, requested("b", t=2.0))
    return table.snapshot()


def set_slot(name, **changed):
    return lambda snapshot: snapshot["slots"][name].update(changed)


def add_lease(**changed):
    """Add a copy of the one live lease with a lower token, of another round."""
    return lambda snapshot: snapshot["open"].update(
        x=snapshot["open"]["b-1"] | {"token": 1, "request_id": "x", "round": 5} | changed
    )


def broken(ledger):
    return [law for holds, law in (*laws(ledger), *index_laws(ledger)) if not holds]


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (set_slot("n0/a", state="lost"), "a slot is in one of the known states"),
        (add_lease(), "no slot has two live leases"),
        (set_slot("n0/b", state="draining"), "the granted slots are those of the live leases"),
        (add_lease(state="pending"), "nobody waits while a slot is free"),
        (add_lease(state="pending"), "a waiting request holds nothing"),
        (lambda s: s.update(token=1), "no fence is above the last one granted"),
        (lambda s: s.update(former=[[1, 1]]), "epochs rise"),
        (lambda s: s["tasks"]["b"].update(floor=2), "no attempt that is over is open"),
        (add_lease(round=1), "one open request per task, attempt and round"),
        (lambda s: s.update(reaping=False), "a reap deadline is set while a lease is held"),
    ],
)
def test_check_finds_each_broken_law(busy, spoil, law):
    """Each law turns red when the state is spoiled, and a sound state passes."""
    table = LeaseTable(LeasingSettings(), epoch=1)
    table.restore(busy)
    table.check()
    spoil(busy)
    table.restore(busy)
    with pytest.raises(AssertionError, match=law):
        table.check()


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (lambda ledger: setattr(ledger.open["b-1"], "state", "pending"), "the pending requests are those in the queue"),
        (lambda ledger: setattr(ledger.open["b-1"], "state", "pending"), "the granted requests are the live leases"),
        (lambda ledger: ledger.live.update({1: ledger.live[2]}), "leases are in the order of their fences"),
        (lambda ledger: ledger.free.pop("n0/c"), "the free slots are on offer"),
        (lambda ledger: ledger.reserved.add("n0/a"), "the reserved slots are those that are kept"),
        (lambda ledger: ledger.tasks["b"].open.clear(), "each task knows its open requests"),
        (lambda ledger: setattr(ledger, "n_live", 1), "the live slots are counted"),
    ],
)
def test_laws_find_each_broken_index(busy, spoil, law):
    """An index that differs from the slots and requests is named."""
    ledger = from_plain(Ledger, busy)
    assert broken(ledger) == []
    spoil(ledger)
    assert law in broken(ledger)


@pytest.mark.parametrize(
    ("spoil", "state"),
    [
        (lambda ledger: setattr(ledger.slots["n0/b"], "state", "draining"), "slot n0/b draining, return"),
        (lambda ledger: setattr(ledger.open["b-1"], "state", "pending"), "request b-1 pending, release"),
    ],
)
def test_a_forbidden_transition_is_an_error(busy, spoil, state):
    """What the transition tables do not have is never done quietly."""
    ledger = from_plain(Ledger, busy)
    spoil(ledger)
    event = returned(Fence(epoch=1, token=2), t=5.0)
    with pytest.raises(Impossible, match=state):
        lease_returned(ledger, event, [])


def test_a_restored_table_ends_leases_in_the_same_order(make_table):
    """What a stopped task held and wanted ends in the order of asking, also after a restore."""
    table = make_table(["n0/cpu0"])
    grant(table, requested("a", t=0.0, round=1))
    table.handle(requested("a", t=0.0, round=2))
    copy = make_table()
    copy.restore(table.snapshot())
    assert copy.handle(stopped("a", t=1.0)) == table.handle(stopped("a", t=1.0))
