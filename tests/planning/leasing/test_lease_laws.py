"""The laws of leasing under any order of events (leasing: I1, I2, I2', I3, I4, I5, I6, I7, I8, I9, I10)."""

import heapq
import json

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lease_indices import CheckedTable
from pool_words import (
    cancelled,
    idled,
    node_lost,
    of,
    polled,
    queue_of,
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

from drlnb.planning.leasing.fence import FenceGate, StoreGate
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.columns.leasing import (
    EpochRaised,
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    RequestRefused,
    SlotClosed,
    SlotDrained,
    SlotFreed,
)
from drlnb.records.common import LoopLagged
from drlnb.records.ids import Fence
from tests.matches import like

SLOTS = ("n0/a", "n0/b", "n1/a")
NODES = ("n0", "n1", "n2")
TASKS = ("t0", "t1", "t2", "t3")


STATES = ("free", "reserved", "granted", "draining", "failed")


class Witness:
    """What an onlooker knows of the pool from events and decisions alone: a second, slower bookkeeping."""

    def __init__(self, former=()):
        self.former = tuple(former)  # fences of the tables before
        self.computing = {}  # slot -> fence whose work may still run there, whatever became of its lease
        self.executors = {}  # slot -> epoch of its newest executor
        self.state = {}  # slot -> free, draining, failed, or the fence that holds it
        self.queue = {}  # request id -> (rank, arrival)
        self.asked = {}  # request id -> its event
        self.priority = {}  # task -> a person's word
        self.fences = []  # in order of their grants
        self.over = set()
        self.closed = set()
        self.quantum_s = LeasingSettings().age_quantum_s
        self.n = 0

    def rank(self, request_id):
        asked = self.asked[request_id]
        priority = self.priority.get(asked.task, asked.priority)
        return asked.t - self.quantum_s * priority

    def order(self):
        return sorted(self.queue, key=lambda request_id: (self.rank(request_id), self.queue[request_id]))

    def see(self, event, out):
        name = type(event).__name__
        refused = {record.subject for record in of(RequestRefused, out)}
        hear = getattr(self, f"on_{name}", None)
        if hear is not None:
            hear(event, refused)
        for record in out:
            self.decide(record, name, getattr(event, "request_id", None))
        if name == "NodeLost":
            hear(event, refused)  # what drained of a gang's slots for the loss of the first is lost, too
        for slot in self.closed:
            if self.state[slot] == "free":
                self.state[slot] = "failed"

    def on_SlotAdded(self, event, refused):
        self.state.setdefault(event.slot, "free")
        if event.executor_epoch > self.executors.setdefault(event.slot, event.executor_epoch):
            self.executors[event.slot] = event.executor_epoch
            self.rests(event.slot)

    def on_ExecutorIdled(self, event, refused):
        if self.state.get(event.slot) == "draining":
            self.rests(event.slot)

    def rests(self, slot):
        self.computing.pop(slot, None)
        if self.state.get(slot) == "draining" and slot in self.closed:
            self.state[slot] = "failed"  # nobody is told that it is free, for it is not on offer

    def on_TenantLost(self, event, refused):
        if self.computing.get(event.slot) == event.fence:
            self.computing.pop(event.slot, None)

    def on_LeaseReturned(self, event, refused):
        if event.clean and str(event.fence) not in refused:
            self.computing = {slot: fence for slot, fence in self.computing.items() if fence != event.fence}

    def on_SlotRequested(self, event, refused):
        held = event.request_id in {fence_id for _, fence_id in self.fences if fence_id not in self.over}
        if event.request_id not in refused and event.request_id not in self.queue and not held:
            self.n += 1
            self.queue[event.request_id], self.asked[event.request_id] = self.n, event

    def on_SettingChanged(self, event, refused):
        if event.key == "task.priority":
            self.priority[event.task] = event.value
        if event.key == "slot.undrain" and event.key not in refused:
            self.closed.discard(event.value)

    def on_RequestCancelled(self, event, refused):
        self.queue.pop(event.request_id, None)

    def on_SlotFailed(self, event, refused):
        if event.slot in self.state:
            self.fail(event.slot)

    def on_NodeLost(self, event, refused):
        for slot in self.state:
            if slot.startswith(event.node):
                self.fail(slot)
                self.executors[slot] = -1  # its node's next agent counts them anew

    def fail(self, slot):
        self.state[slot] = "failed"

    def decide(self, record, cause, cause_id):
        if isinstance(record, RequestRefused) and record.subject != cause_id:
            self.queue.pop(record.subject, None)
        if isinstance(record, SlotClosed):
            self.closed.add(record.slot)
            if self.state[record.slot] == "free":
                self.state[record.slot] = "failed"
        if isinstance(record, LeaseGranted):
            self.granted(record)
        if isinstance(record, LeaseReleased | LeaseExpired):
            for slot in record.slots:
                if self.state[slot] == record.fence:
                    self.state[slot] = "failed" if slot in self.closed else "free"
            assert record.fence in [fence for fence, request_id in self.fences if request_id not in self.over], "I9"
            self.over |= {request_id for fence, request_id in self.fences if fence == record.fence}
        if isinstance(record, SlotDrained):
            assert self.state[record.slot] in {"free", "failed"}, "only a lease that ended a moment ago drains"
            self.state[record.slot] = "draining"
        if isinstance(record, SlotFreed):
            assert self.state[record.slot] in {"draining", "failed"}
            assert cause in {"ExecutorIdled", "SlotAdded", "SettingChanged"}, "no timer frees a slot"
            self.state[record.slot] = "free"

    def granted(self, record):
        asked = self.asked[record.request_id]
        assert len(record.slots) == len(set(record.slots)) == self.due(asked), "I6: all of its slots or none"
        assert not asked.allowed or set(record.slots) <= set(asked.allowed), "only allowed slots"
        assert all(self.state[slot] == "free" for slot in record.slots), "I2: only a free slot is lent"
        if asked.n_slots == 1:
            mine = (self.rank(record.request_id), self.queue[record.request_id])
            for other in self.queue:
                theirs = self.asked[other]
                alike = theirs.n_slots == 1 and (theirs.allowed, theirs.n_slots) == (asked.allowed, 1)
                ahead = (self.rank(other), self.queue[other]) < mine
                assert other == record.request_id or not (alike and ahead) or self.gangs_due, (
                    "I5: in the order of ranks"
                )
        assert all(record.fence > fence for fence, _ in self.fences), "I3: fences rise"
        assert all(record.fence > fence for fence in self.former), "I3: over restarts of the table, too"
        assert not self.computing.keys() & set(record.slots), "I2': nobody computes there any more"
        self.computing |= dict.fromkeys(record.slots, record.fence)
        del self.queue[record.request_id]
        for slot in record.slots:
            self.state[slot] = record.fence
        self.fences.append((record.fence, record.request_id))

    def due(self, asked):
        """Slots that a request must get: all, or those that are up where they are fewer and it makes do with them."""
        up = {slot for slot, state in self.state.items() if state != "failed"} - self.closed
        n_up = len(up & set(asked.allowed)) if asked.allowed else len(up)
        return max(asked.n_least, min(asked.n_slots, n_up)) if asked.n_least else asked.n_slots

    @property
    def gangs_due(self):
        """A gang may have slots kept for it: then what is back in time goes before what is first."""
        return any(self.asked[request_id].n_slots > 1 for request_id in self.queue)


#: Slots that are wanted; gangs that need all of them, and some that make do with fewer.
SIZES = [{"n_slots": n} for n in (1, 1, 1, 1, 2, 3)] + [{"n_slots": n, "n_least": k} for n, k in ((2, 1), (3, 2))]


class TableRules(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.gates = {slot: FenceGate() for slot in SLOTS}
        self.stores = {}
        self.grants = {}  # fence -> its grant, of every table
        self.t = 0.0
        self.epochs = dict.fromkeys(SLOTS, 0)
        self.begin(CheckedTable(LeasingSettings(), epoch=1), Witness())

    def begin(self, table, witness):
        self.table, self.witness = table, witness
        self.began = {}
        self.seconds = dict.fromkeys(STATES, 0.0)
        self.last_t = self.t
        self.history = []
        self.snapshots = [(0, self.table.snapshot())]

    def tell(self, event):
        stale = type(event).__name__.startswith("Lease") and event.fence not in self.witness.state.values()
        if stale:
            self.tell(
                polled("nobody", t=event.t)
            )  # what time alone brings (a gang is due) is not the stale word's doing
        before = self.table.snapshot()
        self.spend(event.t, before)
        out = self.table.handle(event)
        self.history.append((event, out))
        self.witness.see(event, out)
        if stale:
            assert out == (like(RequestRefused, subject=str(event.fence)),), "I9: what is over stays over"
            assert frozen(self.table.snapshot()) == frozen(before) | {"t": event.t}
        granted = {record.fence: record for record in of(LeaseGranted, out)}
        self.grants |= granted
        return list(granted)

    def spend(self, t, snapshot):
        """I10: note in which state each slot was until now."""
        for name, slot in snapshot["slots"].items():
            self.seconds[slot["state"]] += t - self.last_t
            self.began.setdefault(name, self.last_t)
        self.last_t = t
        elapsed_s = sum(t - began for began in self.began.values())
        assert abs(sum(self.seconds.values()) - elapsed_s) < 1e-6 * max(1.0, elapsed_s)

    @initialize(n=st.integers(1, 3))
    def open(self, n):
        for slot in SLOTS[:n]:
            self.tell(slot_added(slot))

    @rule(target=leases, tasks=st.lists(st.sampled_from(TASKS), min_size=1, max_size=4, unique=True), data=st.data())
    def ask(self, tasks, data):
        grants = [None]
        for task in tasks:
            attempt, round = data.draw(st.sampled_from([1, 1, 1, 1, 2, 3])), data.draw(st.integers(1, 9))
            name = f"{task}-{attempt}-{round}" + data.draw(st.sampled_from(["", "", "", "-again"]))
            grants += self.tell(
                requested(
                    task,
                    t=self.t,
                    attempt=attempt,
                    round=round,
                    node=data.draw(st.sampled_from(NODES)),
                    request_id=name,
                    **data.draw(st.sampled_from(SIZES)),
                    priority=data.draw(st.sampled_from([0, 0, 0, 1, -2])),
                    allowed=data.draw(st.sampled_from([(), (), (), SLOTS[:1], SLOTS[1:], ("n9/x", SLOTS[0])])),
                    home=tuple(data.draw(st.lists(st.sampled_from(SLOTS), max_size=2, unique=True))),
                    yields=data.draw(st.booleans()),
                )
            )
        return grants[-1]

    @rule(data=st.data())
    def poll(self, data):
        known = sorted(self.witness.queue) or ["unknown"]
        self.tell(polled(data.draw(st.sampled_from(known)), t=self.t))

    @rule(fence=leases)
    def renew(self, fence):
        if fence is not None:
            self.tell(renewed(fence, t=self.t))

    @rule(target=leases, fence=leases, clean=st.sampled_from([True, True, False]))
    def give_back(self, fence, clean):
        grants = self.tell(returned(fence, t=self.t, clean=clean)) if fence is not None else []
        return grants[0] if grants else None

    @rule(target=leases)
    def give_all_back(self):
        grants = [None]
        for fence in [state for state in self.witness.state.values() if isinstance(state, Fence)]:
            grants += self.tell(returned(fence, t=self.t))
        return grants[-1]

    @rule(fence=leases)
    def submit(self, fence):
        """Let a holder, live or not, work on its slot: the executor's gate admits none but the newest (I4)."""
        granted = {fence: record.slots for fence, record in self.grants.items()}
        if fence is not None:
            for slot in granted[fence]:
                later = [other for other, slots in granted.items() if slot in slots and other > fence]
                for other in later:
                    self.gates[slot].admit(other)
                assert (self.gates[slot].admit(fence) is None) == (not later)

    @rule(fence=leases)
    def publish(self, fence):
        """Let a holder, live or not, commit: only under the task's newest grant, and by exactly one version (I4)."""
        grants = self.grants
        if fence is None:
            return
        mine = grants[fence]
        store = self.stores.setdefault(mine.task, StoreGate())
        newest = None
        for other in grants.values():
            if other.task == mine.task and store.learn(other.fence, other.attempt) is None:
                newest = other.fence
        before = store.version
        refused = store.admit(fence, mine.attempt, before + 1) is not None
        assert store.admit(fence, mine.attempt, before + 3) is not None, "a gap"
        assert refused == (newest is not None and fence < newest) or mine.attempt < max(
            one.attempt for one in grants.values() if one.task == mine.task
        )
        assert store.version == before + (not refused)

    @rule(dt=st.sampled_from([0.25, 1.0, 4.0, 9.0, 60.0]), ticks=st.booleans())
    def wait(self, dt, ticks):
        self.t += dt
        if ticks:
            self.tell(reap(t=self.t))

    @rule(slot=st.sampled_from(SLOTS), how=st.sampled_from(["idle", "idle", "add", "fail"]), newer=st.booleans())
    def move(self, slot, how, newer):
        self.epochs[slot] += newer
        words = {
            "idle": idled(slot, t=self.t),
            "fail": slot_failed(slot, t=self.t),
            "add": slot_added(slot, t=self.t, epoch=self.epochs[slot]),
        }
        self.tell(words[how])

    @rule(slot=st.sampled_from(SLOTS), task=st.sampled_from(TASKS), fence=leases)
    def lose_a_tenant(self, slot, task, fence):
        """One task's process dies: only the lease that it worked under ends by it, and only once."""
        held = {state for state in self.witness.state.values() if isinstance(state, Fence)}
        mine = self.witness.state.get(slot) == fence
        self.tell(tenant_lost(slot, task, t=self.t, fence=fence))
        _, out = self.history[-1]
        ended = {record.fence for record in of(LeaseReleased, out)}
        assert ended == ({fence} if fence is not None and mine else set())
        assert ended <= held

    @rule(data=st.data())
    def disturb(self, data):
        known = sorted({event.request_id for event, _ in self.history if type(event).__name__ == "SlotRequested"})
        words = [
            *[cancelled(request_id, t=self.t) for request_id in (*known[-2:], "unknown")],
            *[node_lost(node, t=self.t) for node in NODES],
            *[stopped(task, t=self.t) for task in TASKS],
            *[LoopLagged(t=self.t, lag_s=lag_s) for lag_s in (0.0, 0.5, 5.0)],
            *[setting("leasing.ttl_s", ttl_s, t=self.t) for ttl_s in (9.0, 12.0, 3.0)],
            *[setting("task.priority", value, t=self.t, task=task) for task in TASKS[:2] for value in (-1, 2)],
            *[setting(f"slot.{how}", slot, t=self.t) for how in ("drain", "undrain") for slot in SLOTS[:2]],
        ]
        self.tell(data.draw(st.sampled_from(words)))

    @rule(more=st.integers(0, 2))
    def raise_epoch(self, more):
        """Tell of a later epoch in a journal: what is held stays held, what is granted from now on is above it."""
        before, held = self.table.state.epoch, dict(self.witness.state)
        self.tell(EpochRaised(t=self.t, epoch=before + more))
        assert self.table.state.epoch == before + more
        assert self.witness.state == held

    @precondition(lambda self: len(self.history) > 8)
    @rule(data=st.data())
    def take_over(self, data):
        """Begin a new table with the next epoch (I3): all former fences are void at once and everywhere (I4)."""
        self.replays()
        slots, former = sorted(self.witness.state), list(self.grants)
        self.begin(CheckedTable(LeasingSettings(), epoch=self.table.state.epoch + 1), Witness(former))
        for slot in slots:
            self.tell(slot_added(slot, t=self.t, epoch=self.epochs[slot]))
            (fence,) = self.tell(requested("heir", t=self.t, round=1 + slots.index(slot), allowed=(slot,)))
            assert self.gates[slot].admit(fence) is None
            assert all(self.gates[slot].admit(other) is not None for other in former)
            store = StoreGate()
            assert store.learn(fence, 1) is None
            assert all(store.admit(other, 1, 1) is not None for other in former)
        for fence in former[:3] + former[-3:]:  # the first ones have the heirs' tokens
            for word in (renewed(fence, t=self.t), returned(fence, t=self.t)):
                self.tell(word)
                assert self.history[-1][1] == (like(RequestRefused, subject=str(fence)),)
        for fence in set(self.witness.state.values()):
            self.tell(returned(fence, t=self.t, clean=data.draw(st.booleans())))

    @rule()
    def save(self):
        self.snapshots.append((len(self.history), json.loads(json.dumps(self.table.snapshot()))))

    @invariant()
    def holds(self):
        self.table.check()
        snapshot = self.table.snapshot()
        slots = snapshot["slots"]
        ours = {name: slot["token"] if slot["state"] == "granted" else slot["state"] for name, slot in slots.items()}
        ours = {name: "free" if state == "reserved" else state for name, state in ours.items()}
        theirs = {slot: getattr(state, "token", state) for slot, state in self.witness.state.items()}
        assert ours == theirs, "I1: every slot is in the one state that the records tell"
        assert queue_of(self.table) == self.witness.order(), "I5"
        free = {name for name, slot in slots.items() if slot["state"] == "free"}
        for request_id in self.witness.queue:
            asked = self.witness.asked[request_id]
            usable = free & set(asked.allowed) if asked.allowed else free
            assert len(usable) < self.witness.due(asked), "I7: nobody waits while slots are free that would do"

    def teardown(self):
        self.replays()

    def replays(self):
        """I10: the events alone, or the rest of them after any snapshot, give the same records again."""
        for at, snapshot in self.snapshots:
            table = CheckedTable(LeasingSettings(), epoch=snapshot["epoch"])
            table.restore(snapshot)
            for event, out in self.history[at:]:
                assert table.handle(event) == out
            assert table.snapshot() == self.table.snapshot()


def frozen(snapshot):
    """Return a snapshot without what every event leaves: stories, and when the load was last estimated."""
    tasks = {name: book | {"story": None} for name, book in snapshot["tasks"].items()}
    return snapshot | {"tasks": tasks, "load": None}


SHORT = hypothesis_settings(max_examples=8, stateful_step_count=25, deadline=None)
LONG = hypothesis_settings(max_examples=300, stateful_step_count=60, deadline=None)


def test_laws_hold():
    """A few short stories at every run."""
    run_state_machine_as_test(TableRules, settings=SHORT)


@pytest.mark.slow
def test_laws_hold_for_long():
    """Many long stories, at night."""
    run_state_machine_as_test(TableRules, settings=LONG)


#: Longest hold of the requests below, and a step's worth of waiting, in seconds.
H_S, QUANTUM_S = 4.0, 6.0


@given(
    n_slots=st.integers(1, 3),
    asks=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, 9.0]),  # after the one before
            st.integers(-1, 2),  # priority
            st.sampled_from([0.5, 2.0, H_S]),  # held
        ),
        min_size=1,
        max_size=25,
    ),
)
def test_nobody_waits_longer_than_the_bound(n_slots, asks):
    """I8: holders release within H: who has m ahead, or let past by ageing, waits for H x (1 + m / slots) at most."""
    table = CheckedTable(LeasingSettings(age_quantum_s=QUANTUM_S, lost_polls=0), epoch=1)
    for slot in range(n_slots):
        table.handle(slot_added(f"n0/{slot}"))
    todo, held, t = [], {}, 0.0
    for i, (pause_s, priority, hold_s) in enumerate(asks):
        t += pause_s
        held[f"t{i}"] = hold_s
        heapq.heappush(todo, (t, i, requested(f"t{i}", t=t, priority=priority)))
    asked = {event.task: event for _, _, event in todo}
    rank = {task: event.t - QUANTUM_S * event.priority for task, event in asked.items()}
    order, granted = [], {}  # tasks as they ask and are granted; when that is
    while todo:
        t, _, event = heapq.heappop(todo)
        order += [("asked", event.task)] if event in asked.values() else []
        for record in of(LeaseGranted, table.handle(event)):
            granted[record.task] = t
            order.append(("granted", record.task))
            end_t = t + held[record.task]
            heapq.heappush(todo, (end_t, len(asks) + len(granted), returned(record.fence, t=end_t)))
    assert granted.keys() == asked.keys()
    for task, event in asked.items():
        waited = slice(order.index(("asked", task)), order.index(("granted", task)))
        before = [other for what, other in order[waited] if what == "granted"]
        for other in before:
            gap = asked[other].priority - event.priority
            assert asked[other].t <= event.t + QUANTUM_S * gap, "nobody who asks a step's worth later passes"
        waiting = {other for what, other in order[: waited.start] if what == "asked"}
        waiting -= {other for what, other in order[: waited.start] if what == "granted"}
        ahead = {other for other in waiting if rank[other] <= rank[task]}
        passing = {other for other in asked if other not in waiting | {task} and event.t <= asked[other].t}
        passing = {other for other in passing if rank[other] < rank[task]}
        assert set(before) <= ahead | passing
        assert granted[task] - event.t <= H_S * (1 + len(ahead | passing) / n_slots) + 1e-9
