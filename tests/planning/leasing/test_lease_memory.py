"""A table keeps its reservations, loads and questions over a restart."""

import json

import pytest
from lease_indices import LeaseTable
from pool_words import grant, idled, only, polled, queue_of, requested, returned, setting, slot_added

from drlnb.planning.leasing.planners import HOLD, HoldView
from drlnb.records.columns.leasing import AskYield, RequestRefused, SendGrant


def restored(snapshot, *, like):
    table = LeaseTable(like.state.settings, like.state.epoch)
    table.restore(json.loads(json.dumps(snapshot)))
    table.check()
    return table


def test_reservations_and_loads_survive_a_restart(make_table):
    """Slots that are kept for a gang stay kept, and an estimate is not said twice."""
    table = make_table(["n0/a", "n0/b"])
    for k in (1, 2, 3):
        table.handle(returned(grant(table, requested("x", t=4.0 * k, round=k)).fence, t=4.0 * k + 1, computed_s=(1.0,)))
    a = grant(table, requested("a", t=20.0))
    b = grant(table, requested("b", t=20.0))
    table.handle(requested("gang", t=21.0, n_slots=2))
    table.handle(returned(b.fence, t=52.0))
    assert [slot["state"] for slot in table.snapshot()["slots"].values()] == ["reserved", "granted"]
    again = restored(table.snapshot(), like=table)
    assert again.snapshot() == table.snapshot()
    event = returned(a.fence, t=53.0)
    assert again.handle(event) == table.handle(event)
    assert again.snapshot() == table.snapshot()


def test_a_holder_that_would_give_way_is_asked_after_a_restart_too(make_table):
    """Who has been asked already is not asked again."""
    table = make_table(["n0/a", "n0/b"])
    a = grant(table, requested("a", t=0.0, yields=True))
    grant(table, requested("b", t=0.0))
    again = restored(table.snapshot(), like=table)
    assert only(AskYield, again.handle(requested("c", t=1.0))).fence == a.fence
    assert restored(again.snapshot(), like=table).handle(requested("d", t=2.0)) == ()


def test_a_poll_for_what_was_granted_gets_the_grant_again(make_table):
    """The answer was lost on its way; an unknown request has none."""
    table = make_table(["n0/a"])
    sent = only(SendGrant, table.handle(requested("a", t=0.0)))
    assert table.handle(polled("a-1", t=5.0)) == (sent,)
    assert only(RequestRefused, table.handle(polled("b-1", t=6.0))).reason == "is not open"


def test_the_priority_of_a_task_that_holds_a_slot_is_for_its_next_request(make_table):
    """What is held is not taken away."""
    table = make_table(["n0/a"])
    lease = grant(table, requested("a", t=0.0))
    assert table.handle(setting("task.priority", -5, t=1.0, task="a")) == ()
    table.handle(requested("b", t=9.0))
    table.handle(returned(lease.fence, t=10.0))
    table.handle(requested("a", t=10.0, round=2))
    table.handle(requested("c", t=11.0))
    assert table.snapshot()["open"]["b-1"]["state"] == "granted"
    assert queue_of(table) == ["c-1", "a-2"]


def test_a_closed_slot_that_drains_stays_closed_with_a_new_executor(make_table):
    """Neither the executor's word nor a new executor puts it on offer."""
    for event in (idled("n0/a", t=3.0), slot_added("n0/a", t=3.0, epoch=1)):
        table = make_table(["n0/a"])
        lease = grant(table, requested("a", t=0.0))
        table.handle(returned(lease.fence, t=1.0, clean=False))
        table.handle(setting("slot.drain", "n0/a", t=2.0))
        assert table.handle(event) == ()
        assert table.state.lendable == ()


VIEW = {"n_arrived": 1, "n_expected": 2, "held": False, "requested": False, "n_queued": 1}


@pytest.mark.parametrize(
    ("changes", "action", "reason"),
    [
        ({}, "request", "a batch is here"),
        ({"requested": True}, "keep", "a slot is asked for"),
        ({"n_queued": 0}, "wait", "nothing to compute"),
        ({"n_arrived": 2}, "request", "all batches of the round are here"),
        ({"divisible": False, "crowded": True}, "wait", "1 of 2 collectors have sent, and slots are wanted"),
        ({"divisible": False}, "request", "a batch is here"),
        ({"held": True, "n_queued": 0}, "keep", "there is work, or nobody waits"),
        ({"held": True, "n_queued": 0, "demand": True}, "return", "nothing to compute, and somebody waits"),
        ({"held": True, "n_queued": 1, "demand": True}, "keep", "there is work, or nobody waits"),
        ({"held": True, "n_queued": 0, "demand": True, "n_arrived": 2}, "keep", "there is work, or nobody waits"),
        (
            {"held": True, "n_queued": 0, "demand": True, "switch_p50_s": 0.2, "compute_p50_s": 0.5},
            "keep",
            "switch too dear: 0.2 s for batches of 0.5 s",
        ),
        ({"held": True, "n_queued": 0, "demand": True, "switch_p50_s": 0.1, "compute_p50_s": 0.5}, "return", None),
        ({"switch_p50_s": 0.2, "compute_p50_s": 0.5}, "request", "switch too dear: 0.2 s for batches of 0.5 s"),
        ({"switch_p50_s": 0.2, "compute_p50_s": None}, "request", "a batch is here"),
    ],
)
def test_yield_asks_at_work_and_returns_on_demand(changes, action, reason):
    """Section 4.5 by hand: each condition alone changes the answer."""
    plan = HOLD.build("yield").plan(HoldView(**VIEW | changes))
    assert plan.action == action
    assert reason is None or plan.reason == reason
