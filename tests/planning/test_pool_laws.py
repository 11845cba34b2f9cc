"""A pool under any events: its laws hold, a copy answers alike, and what it did is decided again by a fresh one."""

import json
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from lease_indices import CheckedPool
from pool_words import (
    asked,
    cancelled,
    idled,
    node_added,
    node_lost,
    of,
    only,
    reap,
    renewed,
    requested,
    returned,
    setting,
    slot_added,
    slot_failed,
    stopped,
)

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement import Placement
from drlnb.planning.pool import PoolMachine
from drlnb.planning.registry import Planners
from drlnb.planning.replay import replay
from drlnb.records.columns.leasing import LeaseExpired, LeaseGranted, LeaseReleased, RequestRefused
from drlnb.records.columns.placement import PlacementPlanned, PlacementPostponed, SendPlacement, TaskRestarted
from drlnb.records.journal import Stream, StreamOpened

#: As a task names them; empty: `ect`.
GANG_PLANNERS = ["", "healthiest", "random:seed=1", "first", "pack"]
NODES, TASKS = ["n0", "n1", "n2"], ["a", "b", "c"]
SLOTS = [f"{node}/gpu{k}" for node in NODES for k in range(2)]
nodes, tasks, slots = st.sampled_from(NODES), st.sampled_from(TASKS), st.sampled_from(SLOTS)


class Away:
    """Allows the slots that failed least; home is the first of them."""

    name = "away"

    def plan(self, view):
        n_failed = {slot: len(view.failures.get(slot, ())) for slot in sorted(view.homes)}
        allowed = tuple(slot for slot, n in n_failed.items() if n == min(n_failed.values()))
        return Placement(
            slots=allowed[: view.n_slots], allowed=allowed, collector_nodes=(view.node,) * view.n_collectors
        )


def pool_of(kind, settings):
    return kind(settings, 1, lambda task: Planners({"placement": Away()}))


class World(RuleBasedStateMachine):
    """Nodes and slots come and go; tasks ask to be placed, for slots, and end."""

    @initialize(queue=st.sampled_from(["fifo", "drr"]), residency=st.booleans())
    def begin(self, queue, residency):
        self.settings = LeasingSettings(queue=queue, residency=residency)
        self.pool = pool_of(CheckedPool, self.settings)
        self.t, self.said, self.rounds = 0.0, [], dict.fromkeys(TASKS, 0)
        self.attempts, self.epochs, self.fences = dict.fromkeys(TASKS, 1), dict.fromkeys(SLOTS, 0), {}
        self.placed, self.up, self.versions, self.short = {}, set(), {}, {}

    def tell(self, event):
        """Feed an event to the pool, and to a copy that was restored just before."""
        copy = pool_of(PoolMachine, self.settings)
        if len(self.said) % 4 == 0:  # often enough, and not slow
            copy.restore(json.loads(json.dumps(self.pool.snapshot())))
            answer = copy.handle(event)
        out = self.pool.handle(event)
        assert len(self.said) % 4 or answer == out
        self.said += [event, *out]
        for record in out:  # in their order: one message may end a lease and lend its slot anew
            if isinstance(record, LeaseGranted):
                assert not any(set(record.slots) & set(held) for held in self.fences.values()), "a slot is lent twice"
                assert not self.fences or record.fence > max(self.seen), "fences rise"
                self.fences[record.fence] = record.slots
                self.seen = {*getattr(self, "seen", ()), record.fence}
            elif isinstance(record, LeaseReleased | LeaseExpired):
                assert self.fences.pop(record.fence) == record.slots, "a lease ends once"
        for plan in of(PlacementPlanned, out):
            assert plan.gang_version == self.versions.get(plan.task, 0) + 1, "versions rise by one"
            self.versions[plan.task] = plan.gang_version
        for sent in of(SendPlacement, out):
            self.is_placed(sent, of(PlacementPlanned, out))
        self.is_said_once(out)
        return out

    def is_said_once(self, out):
        """Check that each task that lacks slots is named once, as long as it does."""
        placed, n = self.pool.state.placement.placed, len(self.pool.state.leases.lendable)
        lacks = {(task, each.attempt): n == 0 for task, each in placed.items() if each.n_learners > n}
        lacks = {key: none for key, none in lacks.items() if not placed[key[0]].refusal}
        said = [(each.task, placed[each.task].attempt) for each in of(PlacementPostponed, out)]
        news = [key for key, none in lacks.items() if key not in self.short or none > self.short[key]]
        assert sorted(said) == sorted(news), "once that there are too few, and once that there is none"
        self.short = {key: none or self.short.get(key, False) for key, none in lacks.items()}

    def is_placed(self, sent, planned):
        """Collectors live on nodes that are up, home is a live slot, and the attempt is the newest."""
        assert sent.refusal == ""
        assert set(sent.collector_nodes) <= self.up
        assert sent.attempt >= self.attempts[sent.task]
        plan = [each for each in planned if each.task == sent.task][-1]
        assert set(plan.slots) <= set(plan.allowed)
        self.placed[sent.task] = sent.collector_nodes

    def now(self, later):
        self.t += later
        return self.t

    # -------------------------------------------------------------- nodes and slots
    @rule(node=nodes, n=st.integers(0, 4))
    def node_comes(self, node, n):
        self.up.add(node)
        self.tell(node_added(node, t=self.t, n=n))

    @rule(node=nodes)
    def node_goes(self, node):
        self.up.discard(node)
        out = self.tell(node_lost(node, t=self.t))
        assert all(not record.slots[0].startswith(f"{node}/") for record in of(LeaseGranted, out))
        self.placed = {task: where for task, where in self.placed.items() if task in self.pool.state.placement.placed}

    @rule(slot=slots)
    def slot_comes(self, slot):
        self.epochs[slot] += 1
        self.tell(slot_added(slot, t=self.t, epoch=self.epochs[slot]))

    @rule(slot=slots)
    def slot_fails(self, slot):
        self.tell(slot_failed(slot, t=self.t))

    @rule(slot=slots, key=st.sampled_from(["slot.drain", "slot.undrain"]))
    def slot_is_closed_or_opened(self, slot, key):
        self.tell(setting(key, slot, t=self.t))

    @rule(slot=slots)
    def slot_is_idle(self, slot):
        self.tell(idled(slot, t=self.t))

    @rule(n=st.sampled_from(["auto", 1, 3, 0, "many"]))
    def share_of_cpus_is_set(self, n):
        out = self.tell(setting("agent.collector_slots", n, t=self.t))
        if n in {0, "many"}:
            reason = f"agent.collector_slots must be 'auto' or a whole number in 1..1024, got {n!r}"
            assert only(RequestRefused, out).reason == reason
        else:
            assert out == ()
            assert self.pool.state.placement.cpu_slots == (0 if n == "auto" else n)

    # -------------------------------------------------------------- tasks
    @rule(task=tasks, node=nodes, n=st.integers(1, 4), again=st.booleans(), planner=st.sampled_from(GANG_PLANNERS))
    def task_asks_for_its_place(self, task, node, n, again, planner):
        self.attempts[task] += not again
        n_learners = 3 if task == "b" else 1
        if task == "c" and self.up:
            node, planner = min(self.up), "own:away"
        question = asked(task, t=self.t, attempt=self.attempts[task], node=node, n=n, n_learners=n_learners)
        out = self.tell(replace(question, planner=planner))
        waits = task in self.pool.state.placement.asked
        refused = any(one.subject == task for one in of(RequestRefused, out))  # not what a former attempt had asked for
        assert bool(of(SendPlacement, out)) != (waits or refused)

    @rule(task=tasks, late=st.booleans())
    def task_stops(self, task, late):
        attempt = self.attempts[task] - late
        self.tell(stopped(task, t=self.t, attempt=attempt))
        if not late:
            self.attempts[task] += 1
            assert task not in self.pool.state.placement.placed
            assert task not in self.pool.state.placement.asked

    @rule(task=tasks)
    def task_is_started_again(self, task):
        self.attempts[task] += 1
        self.tell(TaskRestarted(t=self.t, task=task, attempt=self.attempts[task]))

    @rule(task=tasks)
    def former_attempt_asks(self, task):
        attempt = self.attempts[task] - 2
        out = self.tell(asked(task, t=self.t, attempt=attempt)) if attempt > 0 else ()
        assert not of(PlacementPlanned, out) or self.pool.state.placement.floors[task] <= attempt

    @rule(value=st.sampled_from(["any", "nodes", "gang"]))
    def others_may_serve_a_gang(self, value):
        assert self.tell(setting("placement.allowed", value, t=self.t)) == ()

    @rule(planner=st.sampled_from(GANG_PLANNERS))
    def planner_is_chosen(self, planner):
        assert self.tell(setting("placement.planner", planner or "ect", t=self.t, task="a")) == ()

    @rule(task=tasks, node=nodes, n_slots=st.integers(1, 2), yields=st.booleans())
    def task_asks_for_a_slot(self, task, node, n_slots, yields):
        self.rounds[task] += 1
        attempt = self.attempts[task]
        self.tell(
            requested(
                task, t=self.t, attempt=attempt, round=self.rounds[task], node=node, n_slots=n_slots, yields=yields
            )
        )

    @rule(data=st.data(), clean=st.booleans(), yielded=st.booleans())
    def holder_returns(self, data, clean, yielded):
        if self.fences:
            fence = data.draw(st.sampled_from(sorted(self.fences)))
            computed_s = (0.5,) * len(self.fences[fence])
            self.tell(returned(fence, t=self.t, clean=clean, computed_s=computed_s, yielded=yielded))
            assert fence not in self.fences

    @rule(data=st.data())
    def holder_renews(self, data):
        if self.fences:
            assert self.tell(renewed(data.draw(st.sampled_from(sorted(self.fences))), t=self.t)) == ()

    @rule(data=st.data())
    def requester_gives_up(self, data):
        if names := sorted(self.pool.state.leases.open):
            name = data.draw(st.sampled_from(names))
            self.tell(cancelled(name, t=self.t))
            assert name not in self.pool.state.leases.open

    @rule(later=st.sampled_from([0.1, 1.0, 3.0, 11.0]))
    def time_passes(self, later):
        self.tell(reap(t=self.now(later)))

    # -------------------------------------------------------------- laws
    @invariant()
    def slots_are_lent_as_the_leases_say(self):
        if hasattr(self, "pool"):
            slots = self.pool.state.leases.slots.values()
            assert {slot.name for slot in slots if slot.state == "granted"} == set().union(*self.fences.values())
            assert self.pool.n_slots == sum(slot.state != "failed" for slot in slots)

    @invariant()
    def who_follows_slots_may_use_the_best_of_those_that_are_lent(self):
        if hasattr(self, "pool") and "c" in self.pool.state.placement.placed:
            state, live = self.pool.state.placement, self.pool.state.leases.lendable
            placed = state.placed["c"]
            if placed.planner == "own:away" and live:
                least = min(len(state.failures.get(slot, ())) for slot in live)
                best = [slot for slot in live if len(state.failures.get(slot, ())) == least]
                assert (placed.slots, list(placed.allowed) or list(live)) == ((best[0],), best)

    @invariant()
    def a_gang_that_follows_slots_has_all_that_it_wants_or_all_that_there_are(self):
        if hasattr(self, "pool") and "b" in self.pool.state.placement.placed:
            placed, live = self.pool.state.placement.placed["b"], self.pool.state.leases.lendable
            if placed.planner not in {"first", "pack"}:
                assert set(placed.slots) <= set(live)
                assert len(placed.slots) == min(3, len(live))
                nodes = {slot.partition("/")[0] for slot in placed.slots}
                allowed = {"gang": placed.slots, "nodes": [slot for slot in live if slot.partition("/")[0] in nodes]}
                whole = len(live) >= 3
                assert sorted(placed.allowed) == sorted(allowed.get(placed.allowed_by, ()) if whole else ())

    @invariant()
    def nobody_is_placed_on_a_node_that_is_gone_by_a_master_that_is(self):
        if hasattr(self, "pool"):
            assert set(self.pool.state.placement.nodes) == self.up

    def teardown(self):
        """All of it replays from the journal's header."""
        if hasattr(self, "pool"):
            header = StreamOpened(
                stream="broker-e1", machine="pool", config=PoolMachine(self.settings, 1).config, origin="simulated",
                version="0",
            )  # fmt: skip
            stream = Stream(header=header, records=tuple(self.said), torn=False, source="world")
            assert replay(stream).difference is None


TestWorld = pytest.mark.filterwarnings("default")(World.TestCase)
TestWorld.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
