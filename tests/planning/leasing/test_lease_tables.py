"""The lives of slots and leases as tables: every state meets every cause, and only what the tables have may happen."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lease_indices import CheckedTable, index_laws
from pool_words import (
    cancelled,
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
    setting,
    slot_added,
    slot_failed,
    stopped,
    tenant_lost,
)

from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.life import LEASE_LIFE, SLOT_LIFE, SLOT_STATES, Lease, Slot, TaskBook
from drlnb.planning.leasing.load import LoadBook, bound, expected_load
from drlnb.planning.leasing.queueing import RequestKind, Waiting
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.leasing.steps import expire, move, release
from drlnb.planning.leasing.steps import grant as lend
from drlnb.planning.machine import Impossible
from drlnb.records.columns.leasing import (
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    RequestRefused,
    RevokeLease,
    SlotClosed,
    SlotDrained,
    SlotFreed,
)
from drlnb.records.ids import Fence

STATES = ["free", "granted", "draining", "failed"]
REFUSED = {state: ["RequestRefused"] for state in STATES}
CAUSES = sorted({cause for _, cause in SLOT_LIFE})
#: By hand, from what may befall a slot: rows are states, columns causes.
EXPECTED = {
    "free": {"grant": "granted", "reserve": "reserved", "fail": "failed"},
    "reserved": {"unreserve": "free", "grant": "granted", "fail": "failed"},
    "granted": {"return": "free", "drain": "draining", "restart": "free", "fail": "failed"},
    "draining": {"idle": "free", "restart": "free", "fail": "failed"},
    "failed": {"restart": "free"},
}


def ledger_with(state):
    slot = Slot(name="n0/a", node="n0", device="cpu", executor_epoch=0, state=state, token=3)
    ledger = Ledger(LeasingSettings(), 1, slots={slot.name: slot})
    ledger.t = 7.0
    return ledger, slot


@pytest.mark.parametrize(("state", "cause"), list(product(SLOT_STATES, CAUSES)))
def test_a_slot_moves_as_its_table_says(state, cause):
    """What is not in the table is a defect that leaves the slot as it was; indices follow each move."""
    ledger, slot = ledger_with(state)
    after = EXPECTED[state].get(cause)
    if after is None:
        with pytest.raises(Impossible, match=f"slot n0/a {state}, {cause}"):
            move(ledger, slot, cause)
        assert (slot.state, slot.token) == (state, 3)
        return
    move(ledger, slot, cause, token=9 if after == "granted" else 0)
    assert (slot.state, slot.token) == (after, 9 if after == "granted" else 0)
    assert slot.used_t == (7.0 if state == "granted" else -1.0)
    assert slot.drains == (3 if after == "draining" else 0)
    broken = [law for holds, law in index_laws(ledger) if not holds]
    assert broken == (["slots are reserved for a gang that waits"] if after == "reserved" else [])


def test_no_timer_frees_a_slot():
    """Only its executor's word, a new executor, the holder's return or a reservation given up make it free."""
    assert {cause for (_, cause), after in SLOT_LIFE.items() if after == "free"} == {
        "return", "idle", "restart", "unreserve",
    }  # fmt: skip
    assert ("draining", "grant") not in SLOT_LIFE


def lease_in(state):
    lease = Lease(request_id="a-1", task="a", attempt=1, round=1, node="m", asked_t=1.0, state=state, token=1)
    ledger = Ledger(LeasingSettings(), 1, tasks={"a": TaskBook()}, open={"a-1": lease}, token=1)
    ledger.t = 5.0
    return ledger, lease


@pytest.mark.parametrize("state", ["pending", "granted", "released", "expired", "dropped"])
@pytest.mark.parametrize("cause", ["grant", "drop", "release", "expire"])
def test_a_lease_lives_as_its_table_says(state, cause):
    """A request is granted or dropped, a lease released or expired, once."""
    ledger, lease = lease_in(state)
    after = LEASE_LIFE.get((state, cause))
    steps = {
        "grant": lambda: lend(ledger, lease, (), [], demand=False, resident=False),
        "release": lambda: release(ledger, lease, "test", []),
        "expire": lambda: expire(ledger, lease, "silent", []),
    }
    if cause == "drop":
        return  # see the requests below
    if after is None:
        with pytest.raises(Impossible, match=f"request a-1 {state}, {cause}"):
            steps[cause]()
    else:
        steps[cause]()
        assert lease.state == after
        assert ("a-1" in ledger.open) == (after == "granted")


# ------------------------------------------------------------------ what every event is answered with in every state
def slot_in(state, make_table):
    """Return a table whose slot n0/a is in a state, and the fence under which it was lent, if it was."""
    table, fence = make_table(["n0/a"]), None
    if state in {"granted", "draining"}:
        fence = grant(table, requested("a", t=1.0)).fence
    if state == "draining":
        table.handle(returned(fence, t=2.0, clean=False))
    if state == "failed":
        table.handle(slot_failed("n0/a", t=1.0))
    return table, fence


def answer(table, event):
    return [type(record).__name__ for record in table.handle(event) if type(record).__name__ != "SetDeadline"]


@pytest.mark.parametrize(
    ("event", "answers"),
    [
        (slot_failed("n0/a", t=5.0), {"granted": ["LeaseReleased"]}),
        (slot_added("n0/a", t=5.0, epoch=1), {
            "granted": ["LeaseReleased"], "draining": ["SlotFreed"], "failed": ["SlotFreed"],
        }),
        (slot_added("n0/a", t=5.0, epoch=0), {"failed": ["RequestRefused"]}),
        (idled("n0/a", t=5.0), {
            "free": ["RequestRefused"], "granted": ["RequestRefused"], "draining": ["SlotFreed"],
            "failed": ["RequestRefused"],
        }),
        (setting("slot.drain", "n0/a", t=5.0), {state: ["SlotClosed"] for state in STATES}),
        (setting("slot.undrain", "n0/a", t=5.0), REFUSED),
        (tenant_lost("n0/a", "z", t=5.0), {}),
        (node_lost("n0", t=5.0), {"granted": ["LeaseReleased"]}),
        (node_lost("m", t=5.0), {"granted": ["LeaseReleased", "SlotDrained", "RevokeLease"]}),
        (stopped("a", t=5.0), {"granted": ["LeaseReleased", "SlotDrained", "RevokeLease"]}),
        (stopped("z", t=5.0), {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("state", STATES)
def test_a_slot_in_each_state_answers_each_event(event, answers, state, make_table):
    """By hand; a state that is not listed has nothing to say."""
    table, _ = slot_in(state, make_table)
    assert answer(table, event) == answers.get(state, [])


@pytest.mark.parametrize(
    ("event", "subject", "reason"),
    [
        (slot_failed("n9/x", t=5.0), "n9/x", "is not in the pool"),
        (idled("n9/x", t=5.0), "n9/x", "is not draining"),
        (tenant_lost("n9/x", "a", t=5.0), "n9/x", "is not in the pool"),
        (polled("none", t=5.0), "none", "is not open"),
        (cancelled("none", t=5.0), "none", "is not open"),
        (renewed(Fence(epoch=1, token=7), t=5.0), "#7", "was never granted"),
        (renewed(Fence(epoch=9, token=7), t=5.0), "#7", "is of epoch 9, this table of 1"),
        (returned(Fence(epoch=1, token=0), t=5.0), "#0", "was never granted"),
        (setting("slot.drain", "n9/x", t=5.0), "slot.drain", "slot 'n9/x' is not in the pool"),
        (setting("leasing.hold", "yield", t=5.0), None, None),
        (setting("leasing.nonsense", 1, t=5.0), "leasing.nonsense", "cannot be changed while tasks run"),
        (setting("warmup.rho", 1.0, t=5.0), "warmup.rho", "cannot be changed while tasks run"),
        (setting("task.priority", 1, t=5.0), "task.priority", "names no task"),
        (setting("task.priority", 999, t=5.0, task="a"), "task.priority",
         "task.priority must be a whole number in -100..100, got 999"),
        (requested("b", t=5.0, n_slots=0), "b-1", "n_slots must be >= 1, got 0"),
        (requested("b", t=5.0, priority=101), "b-1", "task.priority must be a whole number in -100..100, got 101"),
        (requested("b", t=5.0, request_id="a-1"), "a-1", "is taken by task a, round 1"),
        (requested("a", t=5.0, request_id="other"), "other", "another request of round 1 is open"),
        (requested("a", t=5.0, attempt=0, round=2), "a-2", "attempt 0 is over: 1 or later may ask"),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(event, subject, reason, make_table):
    """The answer names what was meant and why not."""
    table = make_table(["n0/a"])
    grant(table, requested("a", t=1.0))
    before = table.snapshot()
    out = table.handle(event)
    assert [(each.subject, each.reason) for each in of(RequestRefused, out)] == ([(subject, reason)] if subject else [])
    if subject:
        after = table.snapshot()
        assert {**after, "t": before["t"], "tasks": None} == {**before, "tasks": None}


def test_an_answer_about_the_other_lease_of_a_slot_is_refused(make_table):
    """A slot that drains from one lease is not freed by the end of another's work."""
    table, fence = slot_in("draining", make_table)
    other = Fence(epoch=1, token=fence.token + 1)
    refused = only(RequestRefused, table.handle(idled("n0/a", t=3.0, fence=other)))
    assert refused.reason == f"drains from fence {fence}, not from {other}"
    assert only(SlotFreed, table.handle(idled("n0/a", t=3.0, fence=fence))).slot == "n0/a"


def test_a_lease_that_ends_in_each_way_is_recorded_once(make_table):
    """Returned, returned with work in flight, cancelled, expired by silence and by length: one record each."""
    ends = []
    for end in ("clean", "dirty", "cancel", "silent", "long"):
        table = make_table(["n0/a"], max_hold_s=20.0, max_hold_factor=0.0)
        lent = grant(table, requested("a", t=0.0))
        if end in {"clean", "dirty"}:
            out = table.handle(returned(lent.fence, t=4.0, clean=end == "clean"))
        elif end == "cancel":
            out = table.handle(cancelled("a-1", t=4.0))
        elif end == "silent":
            out = table.handle(reap(t=10.5))
        else:
            table.handle(renewed(lent.fence, t=19.0))
            out = table.handle(reap(t=20.5))
        (ended,) = of(LeaseReleased, out) + of(LeaseExpired, out)
        ends.append((end, type(ended).__name__, ended.held_s, bool(of(SlotDrained, out)), bool(of(RevokeLease, out))))
        assert (ended.fence, ended.task, ended.slots) == (lent.fence, "a", ("n0/a",))
    assert ends == [
        ("clean", "LeaseReleased", 4.0, False, False),
        ("dirty", "LeaseReleased", 4.0, True, True),
        ("cancel", "LeaseReleased", 4.0, True, True),
        ("silent", "LeaseExpired", 10.5, True, True),
        ("long", "LeaseExpired", 20.5, True, True),
    ]


@pytest.mark.parametrize("closed_in", ["free", "granted", "draining"])
def test_a_slot_that_is_closed_comes_back_when_it_is_opened(closed_in, make_table):
    """Whatever it did when it was closed: it ends that, is lent no more, and is lent again once it is opened."""
    table, fence = slot_in(closed_in, make_table)
    assert only(SlotClosed, table.handle(setting("slot.drain", "n0/a", t=5.0))).reason == "drained by hand"
    assert table.handle(setting("slot.drain", "n0/a", t=5.0)) == ()
    if closed_in == "granted":
        table.handle(returned(fence, t=6.0))
    if closed_in == "draining":
        table.handle(idled("n0/a", t=6.0))
    assert not of(LeaseGranted, table.handle(requested("b", t=7.0)))
    assert [*table.state.slots] == ["n0/a"]
    assert of(LeaseGranted, table.handle(setting("slot.undrain", "n0/a", t=8.0)))


# ------------------------------------------------------------------ the order of those who wait
KINDS = [
    RequestKind((), 1, 1),
    RequestKind((), 2, 2),
    RequestKind((), 2, 1),
    RequestKind(("n0/a",), 1, 1),
    RequestKind(("n0/a", "n1/a"), 1, 1),
]


@given(st.lists(st.tuples(st.integers(0, 6), st.none() | st.sampled_from(KINDS), st.integers(0, 3)), max_size=60))
def test_a_queue_is_a_sorted_list(steps):
    """Whatever is entered, moved and dropped: first by rank, then by arrival, as far as its kind is wanted."""
    queue, there = Waiting(), {}
    for number, (name, kind, rank) in enumerate(steps):
        if kind is None:
            queue.drop(str(name))
            there.pop(str(name), None)
        elif str(name) in there:  # a request keeps its kind and its number
            kind, _, first = there[str(name)]
            queue.put(str(name), kind, float(rank), first)
            there[str(name)] = kind, float(rank), first
        else:
            queue.put(str(name), kind, float(rank), number)
            there[str(name)] = kind, float(rank), number
        order = sorted(there, key=lambda each: there[each][1:])
        assert list(queue) == order
        assert len(queue) == len(there)
        assert set(queue.kinds) == {kind for kind, _, _ in there.values()}
        for wanted in KINDS:
            mine = [each for each in order if there[each][0] == wanted]
            assert queue.n(wanted) == len(mine)
            assert queue.first(lambda each, wanted=wanted: each == wanted) == next(iter(mine), None)
        heads = {there[each][0]: each for each in reversed(order)}
        assert queue.heads(lambda each: True) == sorted(heads.values(), key=order.index)


# ------------------------------------------------------------------ what is expected of a load
duties = st.floats(0.001, 0.999)


@given(st.integers(1, 40), st.integers(1, 10), duties)
def test_the_machine_repairman_keeps_its_laws(n_tasks, n_slots, d):
    """Nobody works more than it may, rounds never get shorter, and work is neither lost nor made."""
    load = expected_load(n_tasks, n_slots, d)
    assert 0 < load.utilisation_frac <= load.bound_frac + 1e-12
    assert load.bound_frac == pytest.approx(min(1.0, n_tasks * d / n_slots))
    assert load.inflation >= 1 - 1e-12
    assert load.utilisation_frac * load.inflation == pytest.approx(n_tasks * d / n_slots)
    more = expected_load(n_tasks, n_slots + 1, d)
    assert more.inflation <= load.inflation + 1e-9
    assert expected_load(n_tasks + 1, n_slots, d).inflation >= load.inflation - 1e-9


@given(st.lists(duties, max_size=20), st.integers(1, 8))
def test_the_bound_never_falls_with_another_task(d, n_slots):
    """And never exceeds 1."""
    assert bound(d, n_slots) <= bound([*d, 0.5], n_slots) <= 1.0
    assert bound(d, n_slots) == bound(d[::-1], n_slots)


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=80))
def test_holds_are_remembered_as_ordered_samples(holds):
    """The 95th percentile is the smallest of the latest 32 that is not below 95 % of them; the quantum their median."""
    load, book = LoadBook(), TaskBook()
    lease = Lease(request_id="a-1", task="a", attempt=1, round=1, node="m", asked_t=0.0, slots=("n0/a",))
    for held_s in holds:
        load.ended(book, lease, held_s, 0.0)
    latest = sorted(holds[-32:])
    assert book.hold_p95_s in latest
    assert sum(value <= book.hold_p95_s for value in latest) >= 0.95 * len(latest)
    assert sum(value < book.hold_p95_s for value in latest) < 0.95 * len(latest)
    of_all = sorted(holds[-64:])
    assert load.quantum_s == of_all[len(of_all) // 2]
    assert book.turn == pytest.approx(lease.turn + holds[-1])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30))
def test_the_sum_of_duties_is_that_of_the_tasks(steps):
    """However tasks come and go."""
    load, books, rounds = LoadBook(), {task: TaskBook() for task in "abc"}, dict.fromkeys("abc", 0)
    for i, (task, goes) in enumerate(steps):
        if goes:
            load.gone(task)
            continue
        rounds[task] += 1
        lease = Lease(request_id="x", task=task, attempt=1, round=rounds[task], node="m", asked_t=10.0 * i)
        load.asked(task, books[task], lease)
        lease.granted_t = lease.asked_t
        load.ended(books[task], lease, 1.0, 1.0 + 0.1 * rounds[task])
    assert load.duty_sum == pytest.approx(sum(load.duty.values()))
    assert all(0 < duty < 1 for duty in load.duty.values())


def test_a_load_is_estimated_when_it_changes_and_at_most_once_a_second():
    """Not without a duty or a slot, nor for a change below the digits that count."""
    load = LoadBook()
    assert load.estimate(0.0, 2) is None
    load.duty, load.duty_sum = {"a": 0.5}, 0.5
    assert load.estimate(0.0, 0) is None
    first = load.estimate(0.0, 2)
    assert (first.n_tasks, first.n_slots, first.d_mean) == (1, 2, 0.5)
    load.duty_sum = 0.9
    assert load.estimate(0.5, 2) is None
    assert load.estimate(1.0, 2).d_mean == 0.9
    load.duty_sum = 0.901
    assert load.estimate(9.0, 2) is None
    assert load.estimate(9.0, 3).n_slots == 3
    load.duty_sum = 1.0
    assert load.estimate(99.0, 3) is None


def test_a_checked_table_finds_what_its_own_laws_do_not():
    """The gate of these tests turns red, too."""
    table = CheckedTable(LeasingSettings(), epoch=1)
    table.handle(slot_added("n0/a"))
    table.state.free.clear()
    with pytest.raises(AssertionError, match="lease table: not true: the free slots are on offer"):
        table.check()
