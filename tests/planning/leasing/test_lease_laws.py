"""The laws of leasing under any order of events (leasing: I1, I2, I3, I4, I5, I7, I9, I10)."""

import json

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from pool_words import (
    cancelled,
    idled,
    node_lost,
    of,
    reap,
    renewed,
    requested,
    returned,
    slot_added,
    slot_failed,
    started,
    stopped,
)

from drlnb.planning.leasing.fence import FenceGate
from drlnb.planning.leasing.machine import LeaseTable
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.common import LoopLagged, SettingChanged
from drlnb.records.ids import Fence
from drlnb.records.leasing import (
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    RequestRefused,
    SlotDrained,
    SlotFreed,
)

SLOTS = ("n0/a", "n0/b", "n1/a")
NODES = ("n0", "n1", "n2")
TASKS = ("t0", "t1", "t2", "t3")


class Witness:
    """What an onlooker knows of the pool from events and decisions alone: a second, slower bookkeeping."""

    def __init__(self):
        self.state = {}  # slot -> free, draining, failed, or the fence that holds it
        self.queue = []  # request ids in order of arrival
        self.fences = []  # in order of their grants
        self.over = set()

    def see(self, event, out):
        name = type(event).__name__
        if name == "SlotAdded" and event.slot not in self.state:
            self.state[event.slot] = "free"
        refused = {record.subject for record in of(RequestRefused, out)}
        if name == "SlotRequested" and event.request_id not in refused:
            held = event.request_id in {fence_id for _, fence_id in self.fences if fence_id not in self.over}
            if event.request_id not in self.queue and not held:
                self.queue.append(event.request_id)
        if name == "RequestCancelled" and event.request_id in self.queue:
            self.queue.remove(event.request_id)
        for record in out:
            self.decide(record, name, getattr(event, "request_id", None))
        if name == "SlotFailed" and event.slot in self.state:
            self.state[event.slot] = "failed"
        if name == "NodeLost":
            self.state |= {slot: "failed" for slot in self.state if slot.startswith(event.node)}

    def decide(self, record, cause, cause_id):
        if isinstance(record, RequestRefused) and record.subject != cause_id and record.subject in self.queue:
            self.queue.remove(record.subject)
        if isinstance(record, LeaseGranted):
            assert self.queue[0] == record.request_id, "I5: the first in the queue is served first"
            self.queue.pop(0)
            (slot,) = record.slots
            assert self.state[slot] == "free", "I2: only a free slot is lent"
            self.state[slot] = record.fence
            assert all(record.fence > fence for fence, _ in self.fences), "I3: fences rise"
            self.fences.append((record.fence, record.request_id))
        if isinstance(record, LeaseReleased | LeaseExpired):
            (slot,) = record.slots
            assert self.state[slot] == record.fence, "I9: a lease ends once, and only by its own fence"
            self.state[slot] = "free"
            self.over |= {request_id for fence, request_id in self.fences if fence == record.fence}
        if isinstance(record, SlotDrained):
            assert self.state[record.slot] == "free", "only a lease that ended a moment ago drains"
            self.state[record.slot] = "draining"
        if isinstance(record, SlotFreed):
            assert self.state[record.slot] in {"draining", "failed"}
            assert cause in {"ExecutorIdled", "ExecutorStarted", "SlotAdded"}, "no timer frees a slot"
            self.state[record.slot] = "free"


class TableRules(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self):
        super().__init__()
        self.table = LeaseTable(LeasingSettings(), epoch=1)
        self.witness = Witness()
        self.gates = {slot: FenceGate() for slot in SLOTS}
        self.t = 0.0
        self.epochs = dict.fromkeys(SLOTS, 0)
        self.history = []
        self.snapshots = [(0, self.table.snapshot())]

    def tell(self, event):
        before = self.table.snapshot()
        stale = type(event).__name__.startswith("Lease") and event.fence not in self.witness.state.values()
        out = self.table.handle(event)
        self.history.append((event, out))
        self.witness.see(event, out)
        if stale:
            assert out == (RequestRefused.match(subject=str(event.fence)),), "I9: what is over stays over"
            assert without_story(self.table.snapshot()) == without_story(before) | {"t": event.t}
        return [record.fence for record in of(LeaseGranted, out)]

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
            node = data.draw(st.sampled_from(NODES))
            grants += self.tell(requested(task, t=self.t, attempt=attempt, round=round, node=node, request_id=name))
        return grants[-1]

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
        granted = {record.fence: record.slots for _, out in self.history for record in of(LeaseGranted, out)}
        if fence is not None:
            (slot,) = granted[fence]
            later = [other for other, slots in granted.items() if slots == (slot,) and other > fence]
            for other in later:
                self.gates[slot].admit(other)
            assert (self.gates[slot].admit(fence) is None) == (not later)

    @rule(dt=st.sampled_from([0.25, 1.0, 4.0, 9.0, 60.0]), ticks=st.booleans())
    def wait(self, dt, ticks):
        self.t += dt
        if ticks:
            self.tell(reap(t=self.t))

    @rule(
        slot=st.sampled_from(SLOTS), how=st.sampled_from(["idle", "idle", "add", "start", "fail"]), newer=st.booleans()
    )
    def move(self, slot, how, newer):
        self.epochs[slot] += newer
        words = {
            "idle": idled(slot, t=self.t),
            "fail": slot_failed(slot, t=self.t),
            "add": slot_added(slot, t=self.t, epoch=self.epochs[slot]),
            "start": started(slot, t=self.t, epoch=self.epochs[slot]),
        }
        self.tell(words[how])

    @rule(data=st.data())
    def disturb(self, data):
        known = sorted({event.request_id for event, _ in self.history if type(event).__name__ == "SlotRequested"})
        words = [
            *[cancelled(request_id, t=self.t) for request_id in (*known[-2:], "unknown")],
            *[node_lost(node, t=self.t) for node in NODES],
            *[stopped(task, t=self.t) for task in TASKS],
            *[LoopLagged(t=self.t, lag_s=lag_s) for lag_s in (0.0, 0.5, 5.0)],
            *[SettingChanged(t=self.t, key="leasing.ttl_s", value=ttl_s, task=None) for ttl_s in (9.0, 12.0, 3.0)],
        ]
        self.tell(data.draw(st.sampled_from(words)))

    @rule()
    def save(self):
        self.snapshots.append((len(self.history), json.loads(json.dumps(self.table.snapshot()))))

    @invariant()
    def holds(self):
        self.table.check()
        slots = {slot["name"]: slot for slot in self.table.snapshot()["slots"]}
        ours = {name: slot["token"] if slot["state"] == "granted" else slot["state"] for name, slot in slots.items()}
        theirs = {slot: getattr(state, "token", state) for slot, state in self.witness.state.items()}
        assert ours == theirs, "I1: every slot is in the one state that the records tell"
        assert self.table.snapshot()["waiting"] == self.witness.queue, "I5"
        assert not (self.witness.queue and "free" in theirs.values()), "I7: nobody waits while a slot is free"

    def teardown(self):
        """I10: the events alone, or the rest of them after any snapshot, give the same records again."""
        for at, snapshot in self.snapshots:
            table = LeaseTable(LeasingSettings(), epoch=1)
            table.restore(snapshot)
            for event, out in self.history[at:]:
                assert table.handle(event) == out
            assert table.snapshot() == self.table.snapshot()


def without_story(snapshot):
    tasks = {name: book | {"story": None} for name, book in snapshot["tasks"].items()}
    return snapshot | {"tasks": tasks}


SHORT = hypothesis_settings(max_examples=15, stateful_step_count=25, deadline=None)
LONG = hypothesis_settings(max_examples=300, stateful_step_count=60, deadline=None)


def test_laws_hold():
    """A few short stories at every run."""
    run_state_machine_as_test(TableRules, settings=SHORT)


@pytest.mark.slow
def test_laws_hold_for_long():
    """Many long stories, at night."""
    run_state_machine_as_test(TableRules, settings=LONG)
