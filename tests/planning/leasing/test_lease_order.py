"""Order of requests: priority and ageing, deficit round robin, gangs and their reservation, lost places (O1)."""

import pytest
from pool_words import (
    cancelled,
    grant,
    idled,
    of,
    only,
    polled,
    queue_of,
    reap,
    requested,
    returned,
    setting,
    slot_added,
    slot_failed,
)

from drlnb.records.columns.leasing import LeaseGranted, RequestRefused, RequestUnmet, SlotsOpened, SlotsReserved
from tests.matches import like


def served(table, holder, *, t=33.0, n=9, hold_s=1.0):
    """Return the tasks in the order in which a slot goes from hand to hand."""
    order = []
    while holder is not None and len(order) < n:
        t += hold_s
        granted = of(LeaseGranted, table.handle(returned(holder.fence, t=t)))
        holder = granted[0] if granted else None
        order += [one.task for one in granted]
    return order


# ------------------------------------------------------------------ priority
def test_a_step_of_priority_is_worth_its_quantum_of_waiting(make_table):
    """With 30 s a step, who asks 29 s later one step higher goes first, who asks 31 s later does not."""
    table = make_table(["n0/cpu0"])
    holder = grant(table, requested("x", t=0.0))
    table.handle(requested("low", t=1.0))
    table.handle(requested("high", t=30.0, priority=1))
    table.handle(requested("late", t=32.0, priority=1))
    assert served(table, holder) == ["high", "low", "late"]


def test_priority_changes_while_the_task_waits(make_table):
    """A person's word counts at once and before that of the request; equal ones stay in the order of arrival."""
    table = make_table(["n0/cpu0"])
    holder = grant(table, requested("x", t=0.0))
    for t, task in enumerate("abc", 1):
        table.handle(requested(task, t=float(t)))
    assert table.handle(setting("task.priority", 2, t=4.0, task="c")) == ()
    assert table.handle(setting("task.priority", 2, t=4.0, task="b")) == ()
    assert served(table, holder) == ["b", "c", "a"]
    holder = grant(table, requested("x", t=200.0, round=2))
    table.handle(requested("a", t=201.0, round=2))
    table.handle(requested("c", t=202.0, round=2))
    assert served(table, holder, t=202.0) == ["c", "a"]


@pytest.mark.parametrize("value", [101, -101, 1.5, True, "high", None])
def test_a_priority_out_of_range_is_refused(make_table, value):
    """The range and the value are in the message, and nothing has changed."""
    table = make_table()
    refusal = only(RequestRefused, table.handle(setting("task.priority", value, t=0.0, task="a")))
    assert refusal.reason == f"task.priority must be a whole number in -100..100, got {value!r}"
    if isinstance(value, int) and not isinstance(value, bool):
        out = table.handle(requested("a", t=0.0, priority=value))
        assert only(RequestRefused, out).reason.startswith("task.priority must be")


def test_a_quantum_that_changes_moves_who_waits(make_table):
    """With 1 s a step the same two steps are not enough any more."""
    table = make_table(["n0/cpu0"])
    holder = grant(table, requested("x", t=0.0))
    table.handle(requested("a", t=1.0))
    table.handle(requested("b", t=5.0, priority=2))
    table.handle(setting("leasing.age_quantum_s", 1.0, t=6.0))
    assert served(table, holder) == ["a", "b"]


# ------------------------------------------------------------------ deficit round robin
def test_drr_shares_slot_seconds_not_turns(make_table):
    """One task holds 4 s and the others 1 s: in turns it gets 4 of 7 s, by deficit a third, as everybody."""
    shares = {}
    for queue in ("fifo", "drr"):
        table, t = make_table(["n0/cpu0"], queue=queue), 0.0
        held, rounds = dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 1)
        holder = grant(table, requested("a", t=t))
        for task in "bc":
            table.handle(requested(task, t=t))
        for _ in range(300):
            task, hold_s = holder.task, 4.0 if holder.task == "a" else 1.0
            t += hold_s
            held[task] += hold_s
            holder = only(LeaseGranted, table.handle(returned(holder.fence, t=t)))
            rounds[task] += 1
            table.handle(requested(task, t=t, round=rounds[task]))
        shares[queue] = held["a"] / sum(held.values())
    assert shares["fifo"] == pytest.approx(4 / 6, abs=0.01)
    assert shares["drr"] == pytest.approx(1 / 3, abs=0.02)


def test_drr_starves_nobody_who_held_long_after_short_first_leases(make_table):
    """First leases of 0.02 s make the parameters, then b holds once for 3 s, else all for 1 s: b owes 2 s, no more."""
    table, t = make_table(["n0/cpu0"], queue="drr"), 0.0
    holder, rounds, leases = grant(table, requested("a", t=t)), dict.fromkeys("abcd", 1), dict.fromkeys("abcd", 0)
    for task in "bcd":
        table.handle(requested(task, t=t))
    for _ in range(44):
        task = holder.task
        t += 0.02 if rounds[task] == 1 else 3.0 if (task, rounds[task]) == ("b", 2) else 1.0
        leases[task] += rounds[task] > 1
        holder = only(LeaseGranted, table.handle(returned(holder.fence, t=t)))
        rounds[task] += 1
        table.handle(requested(task, t=t, round=rounds[task]))
    assert min(leases.values()) >= 9
    assert max(leases.values()) <= 11


def test_a_step_of_priority_is_worth_a_median_hold_of_drr(make_table):
    """Holds of 2 s: who owes 3 s more is served first if it is two steps above the other, not if it is one."""
    for priority, first in ((1, "b"), (2, "c")):
        table, t = make_table(["n0/cpu0"], queue="drr"), 0.0
        for i in range(4):
            lent = grant(table, requested("x", t=t, round=i + 1))
            t += 2.0
            table.handle(returned(lent.fence, t=t))
        lent = grant(table, requested("c", t=t))
        table.handle(returned(lent.fence, t=t + 3.0))
        holder = grant(table, requested("y", t=t + 3.0))
        table.handle(requested("b", t=t + 3.0))
        table.handle(requested("c", t=t + 3.0, round=2, priority=priority))
        assert only(LeaseGranted, table.handle(returned(holder.fence, t=t + 4.0))).task == first


def test_the_discipline_changes_while_tasks_wait(make_table):
    """From drr back to fifo the oldest request is first again."""
    table = make_table(["n0/cpu0"], queue="drr")
    long = grant(table, requested("a", t=0.0))
    short = only(LeaseGranted, [*table.handle(requested("b", t=0.0)), *table.handle(returned(long.fence, t=9.0))])
    table.handle(requested("a", t=9.0, round=2))
    table.handle(requested("c", t=9.5))
    table.handle(setting("leasing.queue", "fifo", t=9.6))
    assert served(table, short, t=9.6) == ["a", "c"]


# ------------------------------------------------------------------ gangs
def test_a_gang_gets_all_of_its_slots_or_none(make_table):
    """With one of two slots free it holds nothing; the slot is kept for it, as its turn comes before that of others."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    a = grant(table, requested("a", t=0.0))
    out = table.handle(requested("gang", t=1.0, n_slots=2))
    assert out == (like(SlotsReserved, request_id="gang-1", slots=("n0/cpu1",)),)
    assert not of(LeaseGranted, table.handle(requested("b", t=2.0)))
    both = only(LeaseGranted, table.handle(returned(a.fence, t=4.0)))
    assert (both.task, both.slots, both.waited_s) == ("gang", ("n0/cpu1", "n0/cpu0"), 3.0)
    assert only(LeaseGranted, table.handle(returned(both.fence, t=5.0, computed_s=(0.5, 0.5)))).task == "b"


def test_a_gang_takes_its_turn_and_no_other(make_table):
    """Whoever asked before it is served before it, and nobody behind it passes it, however many slots are freed."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    held = [grant(table, requested(task, t=0.0)) for task in "xy"]
    for k, (task, n_slots) in enumerate((("before", 1), ("gang", 2), ("behind", 1), ("last", 1))):
        table.handle(requested(task, t=1.0 + k, n_slots=n_slots))
    before = only(LeaseGranted, table.handle(returned(held[0].fence, t=5.0)))
    assert before.task == "before"
    assert not of(LeaseGranted, table.handle(returned(held[1].fence, t=6.0)))
    gang = only(LeaseGranted, table.handle(returned(before.fence, t=7.0)))
    assert (gang.task, len(gang.slots)) == ("gang", 2)
    assert [
        lease.task for lease in of(LeaseGranted, table.handle(returned(gang.fence, t=8.0, computed_s=(0.5, 0.5))))
    ] == ["behind", "last"]


def test_a_gang_waits_for_nobody_who_wants_other_slots(make_table):
    """Requests before it that wait for a slot which it cannot use, or for one that is gone, do not hold it up."""
    table = make_table(["n0/cpu0", "n0/cpu1", "n0/cpu2"])
    x, y = (
        grant(table, requested(task, t=0.0, allowed=(slot,))) for task, slot in (("x", "n0/cpu0"), ("y", "n0/cpu2"))
    )
    table.handle(requested("other", t=1.0, allowed=("n0/cpu2",)))
    table.handle(requested("gone", t=1.0, allowed=("n0/cpu9",)))
    table.handle(requested("gang", t=2.0, n_slots=2, allowed=("n0/cpu0", "n0/cpu1")))
    assert table.state.reserved == {"n0/cpu1"}
    assert only(LeaseGranted, table.handle(returned(x.fence, t=3.0))).task == "gang"
    assert only(LeaseGranted, table.handle(returned(y.fence, t=4.0))).task == "other"


def gang_that_is_due(make_table):
    """Return a table of two slots, both held since 2 s, and a gang that is next since 3 s; and the two holders."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    a = grant(table, requested("a", t=2.0))
    b = grant(table, requested("b", t=2.0))
    table.handle(requested("gang", t=3.0, n_slots=2))
    return table, a, b


def test_freed_slots_are_reserved_for_a_gang_that_is_next(make_table):
    """The next slot that comes back is kept for it, though another waits; with the second it runs."""
    table, a, b = gang_that_is_due(make_table)
    table.handle(requested("c", t=4.0))
    out = table.handle(returned(b.fence, t=34.0))
    assert only(SlotsReserved, out).slots == ("n0/cpu1",)
    assert not of(LeaseGranted, out)
    assert only(LeaseGranted, table.handle(returned(a.fence, t=35.0))).task == "gang"


def test_a_reserved_slot_is_lent_to_who_is_back_in_time(make_table):
    """The gang starts when `a` is done, by its p95 in 7 s: `quick`, back in 1 s, gets the slot, `slow` does not."""
    table, t = make_table(["n0/cpu0", "n0/cpu1"]), 0.0
    for task, hold_s in (("a", 10.0), ("quick", 1.0), ("slow", 20.0)):
        table.handle(returned(grant(table, requested(task, t=t)).fence, t=t + hold_s))
        t += hold_s
    a = grant(table, requested("a", t=40.0, round=2))
    b = grant(table, requested("b", t=40.0))
    table.handle(requested("gang", t=41.0, n_slots=2))
    table.handle(requested("slow", t=42.0, round=2))
    table.handle(requested("quick", t=42.5, round=2))
    out = table.handle(returned(b.fence, t=43.0))
    assert only(SlotsReserved, out).starts_in_s == 7.0
    quick = only(LeaseGranted, out)
    assert quick.task == "quick"
    assert not of(LeaseGranted, table.handle(returned(quick.fence, t=44.0)))
    assert only(LeaseGranted, table.handle(returned(a.fence, t=50.0))).task == "gang"


def test_what_was_reserved_is_free_again_when_the_gang_goes(make_table):
    """A gang that is cancelled leaves its slots to who waits."""
    table, _, b = gang_that_is_due(make_table)
    table.handle(requested("c", t=4.0))
    table.handle(returned(b.fence, t=34.0))
    assert only(LeaseGranted, table.handle(cancelled("gang-1", t=35.0))).task == "c"


def test_no_slot_is_kept_for_a_gang_that_the_pool_cannot_serve(make_table):
    """Three slots are wanted and two exist: it is shown and waits, and idles nobody; with the third it runs."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    out = table.handle(requested("gang", t=0.0, n_slots=3))
    assert only(RequestUnmet, out) == RequestUnmet(request_id="gang-1", task="gang", n_slots=3, n_allowed=2)
    table.handle(polled("gang-1", t=50.0))
    a = grant(table, requested("a", t=50.0))
    table.handle(slot_added("n0/cpu2", t=51.0))
    assert len(only(LeaseGranted, table.handle(returned(a.fence, t=52.0))).slots) == 3


def test_what_can_never_be_lent_is_refused_and_the_others_go_on(make_table):
    """Nobody waits for more slots than the pool is made of, up or not; one that is down at the moment counts."""
    table = make_table(["n0/cpu0"])
    assert table.handle(requested("early", t=0.0, n_slots=3))[0] == like(RequestUnmet, task="early", n_slots=3)
    out = table.handle(SlotsOpened(t=1.0, slots=("n0/cpu0", "n0/cpu1")))
    line = "task early would wait for ever: it wants 3 slots at once, and 2 may serve it"
    assert out == (RequestRefused(subject="early-1", reason=line, final=True),)
    (refused,) = table.handle(requested("b", t=2.0, n_slots=3))
    assert refused == like(RequestRefused, subject="b-1", final=True)
    only_one = table.handle(requested("c", t=2.0, n_slots=2, allowed=("n0/cpu1",)))
    assert only(RequestRefused, only_one).reason.endswith("it wants 2 slots at once, and 1 may serve it")
    table.handle(requested("gang", t=3.0, n_slots=2))
    assert table.handle(SlotsOpened(t=3.5, slots=("n0/cpu0", "n0/cpu1"))) == (), "it may be met"
    assert len(only(LeaseGranted, table.handle(slot_added("n0/cpu1", t=4.0))).slots) == 2


def test_a_gang_makes_do_with_fewer_slots_only_where_no_more_are_up(make_table):
    """It waits for one that another task holds, not for one that died; that is said once, until the slot is back."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    gang = {"n_slots": 2, "n_least": 1}
    a = grant(table, requested("a", t=0.0))
    assert not of(LeaseGranted, table.handle(requested("gang", t=1.0, **gang))), "the other one is up, and held"
    lent = only(LeaseGranted, table.handle(returned(a.fence, t=2.0)))
    assert len(lent.slots) == 2
    table.handle(slot_failed("n0/cpu0", t=3.0))  # its lease is over; the survivor drains, and is waited for
    assert not of(LeaseGranted, table.handle(requested("gang", t=4.0, round=2, **gang)))
    out = table.handle(idled("n0/cpu1", t=5.0, fence=lent.fence))
    lent = only(LeaseGranted, out)
    assert lent.slots == ("n0/cpu1",)
    unmet = only(RequestUnmet, out)
    assert (unmet.n_slots, unmet.n_allowed, unmet.waits) == (2, 1, False)
    assert unmet.text == "task gang computes on 1 of its 2 slots for now: no more can be lent"
    out = table.handle(returned(lent.fence, t=6.0)) + table.handle(requested("gang", t=6.0, round=3, **gang))
    assert len(only(LeaseGranted, out).slots) == 1
    assert not of(RequestUnmet, out), "it has been said"
    table.handle(slot_added("n0/cpu0", t=7.0, epoch=2))
    table.handle(returned(only(LeaseGranted, out).fence, t=8.0))
    assert len(grant(table, requested("gang", t=9.0, round=4, **gang)).slots) == 2


def test_a_gang_that_waits_is_served_when_the_slot_that_it_lacks_dies(make_table):
    """The one that is free serves it then; with less than it needs it waits, and says so."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    grant(table, requested("a", t=0.0))
    table.handle(requested("gang", t=1.0, n_slots=2, n_least=1))
    (held,) = [name for name, slot in table.snapshot()["slots"].items() if slot["state"] == "granted"]
    assert len(only(LeaseGranted, table.handle(slot_failed(held, t=2.0))).slots) == 1
    out = table.handle(requested("more", t=3.0, n_slots=3, n_least=2))
    assert only(RequestUnmet, out).text == "task more waits: it wants 3 slots at once, and 1 may serve it now"


def test_slots_are_kept_for_a_gang_that_makes_do(make_table):
    """As many as are up: it runs with the last of them, without the one that died meanwhile."""
    table = make_table(["n0/cpu0", "n0/cpu1", "n0/cpu2"])
    holders = [grant(table, requested(task, t=0.0)) for task in "abc"]
    table.handle(requested("gang", t=1.0, n_slots=3, n_least=1))
    table.handle(requested("d", t=2.0))
    assert only(SlotsReserved, table.handle(returned(holders[0].fence, t=40.0))).slots == holders[0].slots
    assert not of(LeaseGranted, table.handle(slot_failed(holders[1].slots[0], t=41.0)))
    lent = only(LeaseGranted, table.handle(returned(holders[2].fence, t=42.0)))
    assert (lent.task, set(lent.slots)) == ("gang", {*holders[0].slots, *holders[2].slots})


@pytest.mark.parametrize("n_least", [-1, 3])
def test_what_does_is_at_most_what_is_wanted(make_table, n_least):
    """The limits are named."""
    refused = only(RequestRefused, make_table(["n0/a"]).handle(requested("a", t=0.0, n_slots=2, n_least=n_least)))
    assert refused.reason == f"n_least must be in 0..n_slots = 2, got {n_least}"


def test_a_lease_is_not_ended_by_seconds_of_other_slots(make_table):
    """As many numbers as slots; the lease goes on."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    lease = grant(table, requested("gang", t=0.0, n_slots=2))
    refused = only(RequestRefused, table.handle(returned(lease.fence, t=1.0, computed_s=(0.5,))))
    assert refused.reason == "computed_s has 1 numbers for 2 slots"
    assert table.handle(returned(lease.fence, t=2.0, computed_s=(0.5, 0.25)))[0].computed_s == (0.5, 0.25)


def test_a_gang_loses_all_of_its_slots_with_one(make_table):
    """When the executor of one slot fails, the lease is over: the others drain."""
    table = make_table(["n0/cpu0", "n0/cpu1"])
    grant(table, requested("gang", t=0.0, n_slots=2))
    table.handle(slot_failed("n0/cpu0", t=1.0))
    assert {name: slot["state"] for name, slot in table.snapshot()["slots"].items()} == {
        "n0/cpu0": "failed",
        "n0/cpu1": "draining",
    }


def test_a_request_for_no_slot_is_refused(make_table):
    """Limit and value are named."""
    assert only(RequestRefused, make_table().handle(requested("a", t=0.0, n_slots=0))).reason == (
        "n_slots must be >= 1, got 0"
    )


# ------------------------------------------------------------------ places that are lost
def test_without_lost_polls_a_place_is_never_lost(make_table):
    """`lost_polls=0`: silent for an hour, and first in the queue still."""
    table = make_table(["n0/cpu0"], ttl_s=10_000.0, max_hold_s=10_000.0, lost_polls=0)
    lease = grant(table, requested("x", t=0.0))
    table.handle(requested("a", t=1.0))
    assert not of(RequestRefused, table.handle(reap(t=3600.0)))
    assert only(LeaseGranted, table.handle(returned(lease.fence, t=3601.0))).task == "a"


def test_who_stops_polling_loses_its_place(make_table):
    """Three long polls of 20 s without a word; a poll just before keeps the place."""
    table = make_table(["n0/cpu0"], ttl_s=1000.0)
    grant(table, requested("x", t=0.0))
    table.handle(requested("a", t=1.0))
    table.handle(requested("b", t=1.0))
    assert table.handle(polled("b-1", t=40.0)) == ()
    assert not of(RequestRefused, table.handle(reap(t=61.0)))
    assert only(RequestRefused, table.handle(reap(t=61.5))) == RequestRefused(
        subject="a-1", reason="place lost: its requester is silent"
    )
    assert queue_of(table) == ["b-1"]
    assert only(RequestRefused, table.handle(polled("a-1", t=62.0))).reason == "is not open"


def test_a_silent_request_is_not_granted(make_table):
    """Where no lease is held nothing ticks: the place is lost when the slot comes."""
    table = make_table()
    table.handle(requested("a", t=0.0))
    table.handle(requested("b", t=30.0))
    out = table.handle(slot_added("n0/cpu0", t=61.0))
    assert only(RequestRefused, out).subject == "a-1"
    assert only(LeaseGranted, out).task == "b"
