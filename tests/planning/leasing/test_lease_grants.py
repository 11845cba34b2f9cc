"""Requests, grants and returns."""

import pytest
from pool_words import cancelled, grant, of, only, renewed, requested, returned, slot_added

from drlnb.records.columns.leasing import (
    LeaseGranted,
    LeaseReleased,
    RequestRefused,
    RevokeLease,
    SendGrant,
    SlotDrained,
)
from drlnb.records.common import SetDeadline
from drlnb.records.errors import InvalidTransition
from drlnb.records.ids import Fence
from tests.matches import like


def test_the_first_request_gets_the_slot_its_answer_and_a_reap_tick(make_table):
    """A request for a free slot is granted at once, answered, and the first lease starts the look-out for silence."""
    table = make_table(["n0/cpu0"])
    fence = Fence(epoch=1, token=1)
    assert table.handle(requested("a", t=2.0, round=7)) == (
        LeaseGranted(fence=fence, request_id="a-7", task="a", attempt=1, round=7, slots=("n0/cpu0",), waited_s=0.0),
        SendGrant(request_id="a-7", task="a", fence=fence, slots=("n0/cpu0",), waited_s=0.0),
        SetDeadline(name="reap", after_s=0.25),
    )


def test_second_task_waits_for_the_only_slot(make_table):
    """With one slot, the task that asks second is granted it when the first returns it."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    assert table.handle(requested("b", t=1.0)) == ()
    out = table.handle(returned(lease.fence, t=3.0, computed_s=(2.5,)))
    assert out[:2] == (
        like(LeaseReleased, fence=lease.fence, task="a", held_s=3.0, computed_s=(2.5,), reason="returned"),
        like(LeaseGranted, task="b", waited_s=2.0, fence=Fence(epoch=1, token=2)),
    )
    assert not of(SetDeadline, out)  # the tick of the first lease is still on its way


def test_requests_are_served_in_order_of_arrival(make_table):
    """Three requests that wait get their grants in the order in which they came, whatever their names."""
    table = make_table()
    for t, task in enumerate(["c", "a", "b"]):
        assert table.handle(requested(task, t=float(t))) == ()
    order = [grant(table, slot_added("n0/cpu0", t=5.0)).task]
    for t, token in ((6.0, 1), (7.0, 2)):
        order.append(only(LeaseGranted, table.handle(returned(Fence(epoch=1, token=token), t=t))).task)
    assert order == ["c", "a", "b"]


def test_a_repeated_request_waits_in_its_place_and_gets_the_same_grant(make_table):
    """A repeat changes no place in the queue, and while the lease is held it is answered with the same grant again."""
    table = make_table()
    assert table.handle(requested("a", t=0.0)) == ()
    assert table.handle(requested("b", t=1.0)) == ()
    assert table.handle(requested("a", t=2.0)) == ()
    out = table.handle(slot_added("n0/cpu0", t=3.0))
    assert only(LeaseGranted, out).task == "a"
    assert table.handle(requested("a", t=4.0)) == (only(SendGrant, out),)


def test_a_repeat_after_the_end_is_refused(make_table):
    """A request that was delayed on the wire until its lease was over makes no new lease."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(returned(lease.fence, t=1.0))
    assert table.handle(requested("a", t=2.0)) == (RequestRefused(subject="a-1", reason="is over"),)


def test_one_open_request_per_task_attempt_and_round(make_table):
    """A second request id for the same round is refused; another round's is not."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    grant(table, requested("a", t=0.0, round=1))
    out = table.handle(requested("a", t=1.0, round=1, request_id="other"))
    assert out == (RequestRefused(subject="other", reason="another request of round 1 is open"),)
    assert grant(table, requested("a", t=2.0, round=2)).round == 2


def test_a_request_id_belongs_to_one_task(make_table):
    """The id of an open request under another task's name is refused."""
    table = make_table(["n0/cpu0"])
    grant(table, requested("a", t=0.0, request_id="x"))
    out = table.handle(requested("b", t=1.0, request_id="x"))
    assert out == (RequestRefused(subject="x", reason="is taken by task a, round 1"),)


def test_a_cancelled_request_is_not_granted(make_table):
    """A request that was taken back while it waited is passed over."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(requested("b", t=1.0))
    table.handle(requested("c", t=2.0))
    assert table.handle(cancelled("b-1", t=3.0)) == ()
    assert only(LeaseGranted, table.handle(returned(lease.fence, t=4.0))).task == "c"


def test_a_cancellation_that_crosses_the_grant_drains_the_slot(make_table):
    """The requester may have used its grant before it gave up: the slot waits until its executor is idle."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    assert table.handle(cancelled("a-1", t=1.0)) == (
        like(LeaseReleased, fence=lease.fence, held_s=1.0, computed_s=(0.0,), reason="cancelled"),
        SlotDrained(slot="n0/cpu0", reason="cancelled"),
        RevokeLease(fence=lease.fence, slot="n0/cpu0", reason="cancelled"),
    )


def test_an_unknown_cancellation_is_refused(make_table):
    """To cancel what is not open changes nothing."""
    assert make_table().handle(cancelled("a-1", t=0.0)) == (RequestRefused(subject="a-1", reason="is not open"),)


def test_the_slot_on_the_requesters_node_comes_first(make_table):
    """Among free slots the requester's own node wins, even if another slot has rested longer."""
    table = make_table(["n0/cpu0", "n1/cpu0"])
    assert grant(table, requested("a", t=0.0, node="n1")).slots == ("n1/cpu0",)


def test_else_the_least_recently_used_slot_ties_by_name(make_table):
    """Never used comes before used, used earlier before used later, and equal ones go by name."""
    table = make_table(["n0/cpu2", "n0/cpu1", "n0/cpu0"])
    first = grant(table, requested("a", t=0.0))
    assert first.slots == ("n0/cpu0",)
    table.handle(returned(first.fence, t=1.0))
    second = grant(table, requested("b", t=2.0))
    third = grant(table, requested("c", t=2.0))
    assert (second.slots, third.slots) == (("n0/cpu1",), ("n0/cpu2",))
    table.handle(returned(third.fence, t=3.0))
    table.handle(returned(second.fence, t=4.0))
    order = [grant(table, requested(task, t=5.0)).slots[0] for task in "def"]
    assert order == ["n0/cpu0", "n0/cpu2", "n0/cpu1"]


@pytest.mark.parametrize(
    ("fence", "reason"),
    [
        (Fence(epoch=9, token=1), "is of epoch 9, this table of 1"),
        (Fence(epoch=1, token=2), "was never granted"),
        (Fence(epoch=1, token=0), "was never granted"),
    ],
)
def test_foreign_and_unknown_fences_are_refused(make_table, fence, reason):
    """A fence that this table never gave neither renews nor returns, and changes nothing."""
    table = make_table(["n0/cpu0"])
    grant(table, requested("a", t=0.0))
    before = table.snapshot()
    refusal = (RequestRefused(subject=str(fence), reason=reason),)
    assert table.handle(returned(fence, t=0.0)) == refusal
    assert table.handle(renewed(fence, t=0.0)) == refusal
    assert table.snapshot() == before


def test_a_repeated_return_frees_nobody_elses_lease(make_table):
    """The second return of a lease is refused, and the next holder keeps the slot."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(requested("b", t=0.0))
    table.handle(returned(lease.fence, t=1.0))
    assert table.handle(returned(lease.fence, t=2.0)) == (RequestRefused(subject="#1", reason="is over"),)
    assert table.handle(renewed(Fence(epoch=1, token=2), t=2.0)) == ()


def test_an_unclean_return_drains(make_table):
    """With work in flight, the slot waits for its executor's word, and so does the queue."""
    table = make_table(["n0/cpu0"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(requested("b", t=0.5))
    assert table.handle(returned(lease.fence, t=1.0, clean=False)) == (
        like(LeaseReleased, reason="returned", held_s=1.0),
        SlotDrained(slot="n0/cpu0", reason="returned with work in flight"),
        RevokeLease(fence=lease.fence, slot="n0/cpu0", reason="returned with work in flight"),
    )


@pytest.mark.parametrize("t", [1.0, float("nan")])
def test_time_never_runs_back(make_table, t):
    """An event older than the last one is our defect; the message tells the last records."""
    table = make_table(["n0/cpu0"])
    for round in range(1, 12):
        lease = grant(table, requested("a", t=2.0, round=round))
        table.handle(returned(lease.fence, t=2.0))
    with pytest.raises(InvalidTransition, match=r"lease table in state at t=2 s cannot take") as caught:
        table.handle(requested("a", t=t, round=12))
    assert len(caught.value.story) == 10
    assert like(LeaseReleased, task="a", fence=Fence(epoch=1, token=11)) in caught.value.story


def test_negative_time_is_refused(make_table):
    """The stream starts at 0 s."""
    with pytest.raises(InvalidTransition, match="at t=0 s"):
        make_table().handle(slot_added("n0/cpu0", t=-1.0))
