"""Choice of slots: resident, home, allowed; slots that are drained by hand or strike out; demand and load."""

import pytest
from pool_words import (
    grant,
    idled,
    of,
    only,
    renewed,
    requested,
    returned,
    setting,
    slot_added,
    slot_failed,
    stopped,
    tenant_lost,
)

from drlnb.planning.leasing.load import expected_load
from drlnb.records.columns.leasing import (
    AskYield,
    LeaseGranted,
    LeaseReleased,
    LoadEstimated,
    RequestRefused,
    SendGrant,
    SlotClosed,
    SlotDrained,
    SlotFreed,
)
from drlnb.records.ids import Fence
from tests.matches import like

SLOTS = ["n0/a", "n0/b", "n1/a"]


# ------------------------------------------------------------------ choice
def test_the_slot_that_holds_the_version_comes_first(make_table):
    """Before home, node and rest: the slot that made the version; another round's copy is no reason (I11)."""
    table = make_table(SLOTS)
    first = grant(table, requested("a", t=0.0, home=("n1/a",)))
    assert (first.slots, first.resident) == (("n1/a",), False)
    table.handle(returned(first.fence, t=1.0))
    second = grant(table, requested("a", t=2.0, round=2, home=("n0/b",)))
    assert (second.slots, second.resident) == (("n1/a",), True)
    table.handle(returned(second.fence, t=3.0))
    skipped = grant(table, requested("a", t=4.0, round=9, home=("n0/b",)))
    assert (skipped.slots, skipped.resident) == (("n0/b",), False)


def test_after_a_yield_the_slot_holds_the_rounds_own_version(make_table):
    """The same round again: resident where it was; the slot of the round before is, too."""
    table = make_table(SLOTS)
    made = grant(table, requested("a", t=0.0, home=("n0/b",)))
    table.handle(returned(made.fence, t=1.0))
    blocker = grant(table, requested("x", t=1.0, home=("n0/b",)))
    part = grant(table, requested("a", t=2.0, round=2, home=("n1/a",)))
    assert (part.slots, part.resident) == (("n1/a",), False)
    out = table.handle(returned(part.fence, t=3.0, yielded=True))
    assert only(LeaseReleased, out).reason == "yielded"
    table.handle(returned(blocker.fence, t=3.5))
    again = grant(table, requested("a", t=4.0, round=2, request_id="a-2b"))
    assert again.resident
    assert again.slots[0] in {"n1/a", "n0/b"}


def test_a_new_executor_holds_nothing(make_table):
    """What the former process had in memory is gone, and so is what a lease that ended badly left."""
    table = make_table(["n0/a"])
    table.handle(returned(grant(table, requested("a", t=0.0)).fence, t=1.0))
    table.handle(slot_added("n0/a", t=2.0, epoch=1))
    lease = grant(table, requested("a", t=3.0, round=2))
    assert not lease.resident
    table.handle(returned(lease.fence, t=4.0, clean=False))
    table.handle(idled("n0/a", t=4.1))
    assert not grant(table, requested("a", t=5.0, round=3)).resident


def test_only_allowed_slots_serve(make_table):
    """A request waits for its own slots beside a free one, which goes to whom it may."""
    table = make_table(SLOTS)
    first = grant(table, requested("a", t=0.0, allowed=("n0/a",)))
    assert first.slots == ("n0/a",)
    assert not of(LeaseGranted, table.handle(requested("b", t=1.0, allowed=("n0/a", "n9/x"))))
    assert grant(table, requested("c", t=2.0)).slots == ("n0/b",)
    assert only(LeaseGranted, table.handle(returned(first.fence, t=3.0))).task == "b"


# ------------------------------------------------------------------ drained by hand, struck out
def test_a_person_drains_a_slot_and_takes_it_back(make_table):
    """What is held goes on to its end; then the slot is out until it is undrained."""
    table = make_table(["n0/a"])
    lease = grant(table, requested("a", t=0.0))
    assert table.handle(setting("slot.drain", "n0/a", t=1.0)) == (SlotClosed(slot="n0/a", reason="drained by hand"),)
    assert table.handle(setting("slot.drain", "n0/a", t=1.0)) == ()
    assert table.handle(renewed(lease.fence, t=1.5)) == ()
    table.handle(requested("b", t=2.0))
    assert not of(LeaseGranted, table.handle(returned(lease.fence, t=3.0)))
    assert table.state.lendable == ()
    out = table.handle(setting("slot.undrain", "n0/a", t=4.0))
    assert out[0] == SlotFreed(slot="n0/a")
    assert only(LeaseGranted, out).task == "b"
    refusal = only(RequestRefused, table.handle(setting("slot.undrain", "n0/a", t=5.0)))
    assert refusal.reason == "slot n0/a is not closed"


def test_a_drained_slot_whose_executor_is_gone_waits_for_a_new_one(make_table):
    """To undrain it is a permission, not an executor."""
    table = make_table(["n0/a"])
    table.handle(setting("slot.drain", "n0/a", t=0.0))
    table.handle(slot_failed("n0/a", t=1.0))
    assert table.handle(setting("slot.undrain", "n0/a", t=2.0)) == ()
    assert table.state.lendable == ()
    assert table.handle(slot_added("n0/a", t=3.0, epoch=1)) == (SlotFreed(slot="n0/a"),)


def test_a_slot_on_which_executors_die_under_whoever_it_is_strikes_out(make_table):
    """Three deaths in a row under two tasks close it; a later executor does not open it again."""
    table = make_table(["n0/a", "n0/b"])
    for epoch, task in enumerate(["a", "b", "a"], 1):
        grant(table, requested(task, t=float(epoch), round=epoch, home=("n0/a",)))
        out = table.handle(slot_added("n0/a", t=epoch + 0.5, epoch=epoch))
    assert only(SlotClosed, out) == SlotClosed(slot="n0/a", reason="3 executors in a row died on it")
    assert table.state.lendable == ("n0/b",)
    table.handle(slot_added("n0/a", t=9.0, epoch=9))
    assert table.state.lendable == ("n0/b",)


def test_a_task_that_kills_executors_does_not_cost_its_slot(make_table):
    """Three deaths under one and the same task are the task's fault; a lease that ends well forgets deaths."""
    table = make_table(["n0/a"])
    for epoch in (1, 2, 3):
        grant(table, requested("a", t=float(epoch), round=epoch))
        assert not of(SlotClosed, table.handle(slot_failed("n0/a", t=epoch + 0.5)))
        table.handle(slot_added("n0/a", t=epoch + 0.6, epoch=epoch))
    well = grant(table, requested("b", t=9.0))
    table.handle(returned(well.fence, t=9.5))
    for epoch in (4, 5):
        grant(table, requested("c", t=10.0 + epoch, round=epoch))
        assert not of(SlotClosed, table.handle(slot_added("n0/a", t=10.5 + epoch, epoch=epoch)))


# ------------------------------------------------------------------ one task's process of several
def test_a_lost_process_ends_the_lease_that_it_worked_under(make_table):
    """The slot goes to the next at once, its executor epoch stays: the processes of others live on."""
    table = make_table(["n0/a"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(requested("b", t=1.0))
    out = table.handle(tenant_lost("n0/a", "a", t=2.0, fence=lease.fence))
    assert out[:2] == (
        like(LeaseReleased, fence=lease.fence, held_s=2.0, reason="executor-died"),
        like(LeaseGranted, task="b", slots=("n0/a",)),
    )
    (slot,) = table.snapshot()["slots"].values()
    assert (slot["executor_epoch"], slot["gone"], slot["deaths"]) == (0, False, ["a"])


def test_a_lost_process_takes_nobody_elses_residency(make_table):
    """What b's process holds stays known; a's is gone."""
    table = make_table(["n0/a", "n0/b"])
    for task in ("a", "b"):
        lease = grant(table, requested(task, t=0.0, home=("n0/a",)))
        table.handle(returned(lease.fence, t=0.0))
    assert table.handle(tenant_lost("n0/a", "a", t=1.0, fence=Fence(epoch=1, token=1))) == ()
    mine = grant(table, requested("b", t=2.0, round=2, home=("n0/b",)))
    assert (mine.slots, mine.resident) == (("n0/a",), True)
    table.handle(returned(mine.fence, t=2.0))
    other = grant(table, requested("a", t=3.0, round=2, home=("n0/b",)))
    assert (other.slots, other.resident) == (("n0/b",), False)


@pytest.mark.parametrize("fence", [None, Fence(epoch=1, token=1), Fence(epoch=9, token=2)])
def test_a_process_that_was_idle_costs_no_lease(make_table, fence):
    """It worked under no lease, one that is over, or one of another pool: whoever holds the slot goes on."""
    table = make_table(["n0/a"])
    table.handle(returned(grant(table, requested("a", t=0.0)).fence, t=0.5))
    lease = grant(table, requested("b", t=1.0))
    assert lease.fence.token == 2
    for task in ("a", "b", "nobody"):
        assert table.handle(tenant_lost("n0/a", task, t=2.0, fence=fence)) == ()
    assert table.handle(renewed(lease.fence, t=3.0)) == ()


def test_a_process_of_a_gang_ends_its_lease_everywhere(make_table):
    """The other slots of the lease drain until they are idle."""
    table = make_table(["n0/a", "n0/b"])
    lease = grant(table, requested("a", t=0.0, n_slots=2))
    out = table.handle(tenant_lost("n0/b", "a", t=1.0, fence=lease.fence))
    assert only(LeaseReleased, out) == like(LeaseReleased, fence=lease.fence, reason="executor-died")
    assert only(SlotDrained, out).slot == "n0/a"


def test_word_of_a_death_that_its_holder_told_first_counts_as_a_death(make_table):
    """The slot drains then until it is idle; three such deaths under two tasks close it."""
    table = make_table(["n0/a"])
    for n, task in enumerate(["a", "b", "a"]):
        lease = grant(table, requested(task, t=float(n), round=n + 1))
        table.handle(returned(lease.fence, t=n + 0.2, clean=False))
        out = table.handle(tenant_lost("n0/a", task, t=n + 0.3, fence=lease.fence))
        table.handle(idled("n0/a", t=n + 0.4, fence=lease.fence))
    assert out == (SlotClosed(slot="n0/a", reason="3 executors in a row died on it"),)
    assert table.state.lendable == ()


def test_a_process_of_an_unknown_slot_is_refused(make_table):
    """Nothing is known of it."""
    refusal = RequestRefused(subject="n9/a", reason="is not in the pool")
    assert make_table(["n0/a"]).handle(tenant_lost("n9/a", "a", t=0.0)) == (refusal,)


def test_a_draining_slot_is_freed_by_the_word_about_its_own_lease(make_table):
    """The executor's word names the fence whose work has ended: one about another lease frees nothing."""
    table = make_table(["n0/a"])
    lease = grant(table, requested("a", t=0.0))
    table.handle(returned(lease.fence, t=1.0, clean=False))
    other = Fence(epoch=1, token=lease.fence.token + 1)
    refusal = only(RequestRefused, table.handle(idled("n0/a", t=2.0, fence=other)))
    assert refusal.reason == "drains from fence #1, not from #2"
    assert table.handle(idled("n0/a", t=2.0, fence=lease.fence)) == (SlotFreed(slot="n0/a"),)


# ------------------------------------------------------------------ demand
def test_who_would_give_way_hears_once_that_somebody_waits(make_table):
    """Each holder that yields is told when the first request waits, and not again; the others never are."""
    table = make_table(SLOTS)
    a = grant(table, requested("a", t=0.0, yields=True))
    grant(table, requested("b", t=0.0, yields=False))
    c = grant(table, requested("c", t=0.0, yields=True))
    out = table.handle(requested("d", t=1.0))
    assert of(AskYield, out) == [
        AskYield(fence=a.fence, task="a", node="m"),
        AskYield(fence=c.fence, task="c", node="m"),
    ]
    assert table.handle(requested("e", t=2.0)) == ()


def test_a_grant_tells_that_others_wait(make_table):
    """A holder that yields learns with its grant that somebody else waits, and is not asked later."""
    table = make_table(["n0/a"])
    first = grant(table, requested("x", t=0.0))
    table.handle(requested("a", t=1.0, yields=True))
    table.handle(requested("b", t=2.0, yields=True))
    out = table.handle(returned(first.fence, t=3.0))
    assert only(SendGrant, out).demand
    assert table.handle(requested("c", t=4.0)) == ()
    out = table.handle(returned(only(LeaseGranted, out).fence, t=5.0))
    assert only(SendGrant, out).demand
    out = table.handle(returned(only(LeaseGranted, out).fence, t=6.0))
    assert not only(SendGrant, out).demand


def test_a_holder_is_not_asked_for_a_slot_that_would_not_fit(make_table):
    """Only slots that may serve the request count."""
    table = make_table(["n0/a", "n0/b"])
    a = grant(table, requested("a", t=0.0, yields=True, home=("n0/a",)))
    grant(table, requested("b", t=0.0, yields=True, home=("n0/b",)))
    out = table.handle(requested("c", t=1.0, allowed=("n0/a",)))
    assert of(AskYield, out) == [AskYield(fence=a.fence, task="a", node="m")]


# ------------------------------------------------------------------ load
def one_round(table, task, t, k):
    """Let a task hold a slot for the first second of a round of 4 s; return all answers."""
    asked = table.handle(requested(task, t=t, round=k))
    fence = only(LeaseGranted, asked).fence
    return [*asked, *table.handle(returned(fence, t=t + 1.0, computed_s=(1.0,)))]


def test_the_load_is_estimated_from_what_the_table_sees(make_table):
    """Two tasks of duty 1/4 on one slot: theory's numbers for T = 2, K = 1, d = 1/4, at most one a second."""
    table = make_table(["n0/a"])
    said = []
    for k in range(1, 6):
        for task, at in (("a", 0.0), ("b", 2.0)):
            said += of(LoadEstimated, one_round(table, task, 4.0 * k + at, k))
    one, two = said
    assert (one.n_tasks, one.n_slots, one.d_mean) == (1, 1, 0.25)
    assert (two.n_tasks, two.d_mean, two.bound_frac) == (2, 0.25, 0.5)
    load = expected_load(n_tasks=2, n_slots=1, d=0.25)
    assert (two.expected_utilisation_frac, two.expected_inflation) == (load.utilisation_frac, load.inflation)
    assert only(LoadEstimated, table.handle(stopped("b", t=30.0))).n_tasks == 1


def test_nothing_is_expected_of_a_load_with_gangs(make_table):
    """The theory is of tasks with one slot each: silence while a task asks for two, and again once it is gone."""
    table = make_table(["n0/a", "n0/b"])
    said = [record for k in range(1, 4) for record in of(LoadEstimated, one_round(table, "a", 4.0 * k, k))]
    assert [record.n_tasks for record in said] == [1]
    for k in range(1, 4):
        t = 16.0 + 4.0 * k
        asked = table.handle(requested("gang", t=t, round=k, n_slots=2))
        fence = only(LeaseGranted, asked).fence
        given = table.handle(returned(fence, t=t + 1.0, computed_s=(0.5, 1.0)))
        other = one_round(table, "b", t + 2.0, k)
        assert not of(LoadEstimated, [*asked, *given, *other])
    assert only(LoadEstimated, table.handle(stopped("gang", t=40.0))).n_tasks == 2


def test_the_longest_hold_follows_the_tasks_own_holds(make_table):
    """A task that has held for 20 s may hold for 8 x 20 s; one that was never here for 120 s."""
    table = make_table(["n0/a"])
    table.handle(returned(grant(table, requested("a", t=0.0)).fence, t=20.0))
    grant(table, requested("a", t=20.0, round=2))
    lease = table.snapshot()["open"]["a-2"]
    assert lease["max_hold_s"] == 160.0
    fresh = make_table(["n0/a"])
    grant(fresh, requested("a", t=0.0))
    assert fresh.snapshot()["open"]["a-1"]["max_hold_s"] == pytest.approx(120.0)


def test_without_residency_the_longest_unused_slot_is_granted(make_table):
    """A task that has left its parameters on a slot gets the other one, which has rested longer."""
    table = make_table(["n0/a", "n0/b"], residency=False)
    first = grant(table, requested("x", t=0.0))
    assert first.slots == ("n0/a",)
    table.handle(returned(first.fence, t=1.0))
    second = grant(table, requested("x", t=2.0, round=2))
    assert (second.slots, second.resident) == (("n0/b",), False)
