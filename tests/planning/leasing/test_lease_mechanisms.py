"""The mechanisms of leasing by their numbers (leasing, section 2), each on a whole simulated run or at one machine."""

import itertools
from dataclasses import replace

import pytest
from pool_words import grant, made_again, of, only, reap, requested, returned, setting, slot_added
from round_words import Master

from drlnb.planning.leasing.fence import FenceGate, StoreGate
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.records import round as words
from drlnb.records.columns.distribution import SendParameters
from drlnb.records.columns.leasing import (
    AskYield,
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    SendGrant,
    SlotDrained,
    SlotRequested,
)
from drlnb.records.columns.warmup import WakeCollector
from drlnb.sim.training.report import simulate_train


@pytest.fixture(scope="module")
def run():
    """Return three tasks on one slot, which changes hands in the midst of rounds."""
    return simulate_train(3, 1, 6, 3, "yield", seed=2)


def tasks(run):
    return [stream for name, stream in run.streams.items() if name.startswith("task")]


def test_s1_several_tasks_reach_their_targets_on_one_slot(run):
    """Three tasks, K = 1: all of them are done."""
    assert set(run.ends.values()) == {"done"}


def test_s2_what_a_collector_sends_is_recorded(run):
    """Round, worker, version, number of steps, bytes and key of every fragment."""
    for stream in tasks(run):
        sent = stream.of(words.ExperienceArrived)
        assert len({one.key for one in sent}) == len(sent) == 6 * 3
        assert all(one.version == one.round and one.n_samples == 256 and one.n_bytes > 0 for one in sent)


@pytest.mark.parametrize(("hold", "n_grants"), [("round", 1), ("last", 1)])
def test_s3_one_grant_per_task_and_round(hold, n_grants):
    """The first arrival takes a slot, the others use the one that is held."""
    pool = simulate_train(2, 1, 4, 2, hold).streams["broker-e1"]
    seen = [(one.task, one.round) for one in pool.of(LeaseGranted)]
    assert all(seen.count(key) == n_grants for key in seen)


def test_s4_gradients_are_computed_one_after_the_other_in_the_order_of_arrival(run):
    """No two pieces of work overlap on the slot, of whichever tasks; a task's batches come in their order."""
    kinds = words.GradientComputed | words.ParametersReady
    work = [(event.t - event.elapsed_s, event.t) for s in tasks(run) for event in s.records if isinstance(event, kinds)]
    for (_, end), (begin, _) in itertools.pairwise(sorted(work)):
        assert begin >= end - 2e-6
    for stream in tasks(run):
        arrived = [(one.round, one.collector) for one in stream.of(words.ExperienceArrived)]
        assert [(one.round, one.collector) for one in stream.of(words.GradientComputed)] == arrived


def test_s6_the_slot_is_released_before_the_parameters_are_sent(run):
    """The return comes first in the commit's answer; nobody acts before the version is there."""
    for stream in tasks(run):
        for event, answer in stream.answers():
            if isinstance(event, words.ParametersCommitted):
                names = [type(record) for record in answer]
                assert words.ReturnLease in names
                assert SendParameters not in names[: names.index(words.ReturnLease)]
        assert all(one.version == one.round for one in stream.of(WakeCollector))


def test_o1_who_finds_no_idle_slot_queues_and_holds_nothing(run):
    """Each request is granted once, later ones of equal priority after earlier ones."""
    pool = run.streams["broker-e1"]
    asked = [event.request_id for event in pool.records if isinstance(event, SlotRequested)]
    assert [one.request_id for one in pool.of(LeaseGranted)] == asked


def test_o2_a_silent_holder_loses_its_lease_and_its_slot_drains(make_table):
    """Time takes the lease, not the slot."""
    table = make_table(["n0/a"])
    grant(table, requested("a", t=0.0))
    out = table.handle(reap(t=11.0))
    assert [type(one) for one in out[:2]] == [LeaseExpired, SlotDrained]
    assert not of(LeaseGranted, table.handle(requested("b", t=12.0)))


def test_o3_every_resource_checks_the_fence_itself(make_table):
    """Executor and store refuse the former holder; experience of another attempt is dropped, and that is recorded."""
    table = make_table(["n0/a"])
    old = grant(table, requested("a", t=0.0))
    table.handle(returned(old.fence, t=1.0))
    new = grant(table, requested("a", t=2.0, round=2))
    executor, store = FenceGate(), StoreGate()
    assert executor.admit(new.fence) is None
    assert store.learn(new.fence, 1) is None
    assert executor.admit(old.fence) is not None
    assert store.admit(old.fence, 1, 1) is not None
    master = Master()
    master.at_version_1()
    assert only(words.DropExperience, master.arrived(0, attempt=7)).reason == "attempt 7, now 1"


def test_o7_experience_is_freed_when_its_round_is_committed(run):
    """Never before: a dying executor takes nothing along that could not be computed again."""
    for stream in tasks(run):
        for event, answer in stream.answers():
            if of(words.DropExperience, answer):
                assert isinstance(event, words.ParametersCommitted)


def test_o8_demand_is_registered_before_work_is_dispatched(run):
    """A grant says who waits; one who begins to wait is told on to holders at once; so neither of two tasks hangs."""
    pool, waiting, told = run.streams["broker-e1"], set(), {}
    for event, answer in pool.answers():
        if isinstance(event, SlotRequested):
            waiting.add(event.request_id)
        for record in answer:
            if isinstance(record, SendGrant):
                waiting.discard(record.request_id)
                told[record.fence] = record.demand
            elif isinstance(record, AskYield):
                told[record.fence] = True
            elif isinstance(record, LeaseReleased):
                del told[record.fence]
        live = [demand for fence, demand in told.items() if fence.token > 3]  # initial parameters are not given away
        assert not waiting or all(live)


def test_o9_every_change_of_a_setting_is_an_event_and_replays():
    """A pool whose settings change five times decides the same again from its header and its events."""
    pool = PoolMachine(LeasingSettings(), epoch=1)
    changes = [
        setting("leasing.max_hold_s", 5.0, t=3.0),
        setting("leasing.queue", "drr", t=6.0),
        setting("task.priority", 4, t=9.0, task="c"),
        setting("leasing.age_quantum_s", 2.0, t=12.0),
        setting("slot.drain", "n0/b", t=15.0),
    ]
    history, holders, t = [], [], 0.0

    def tell(event):
        out = pool.handle(event)
        history.append((event, out))
        holders.extend(of(LeaseGranted, out))

    tell(slot_added("n0/a"))
    tell(slot_added("n0/b"))
    for k in range(1, 9):
        for task in "abcd":
            tell(requested(task, t=t, round=k))
        for _ in range(4):
            t += 0.5
            if changes and changes[0].t <= t:
                tell(replace(changes.pop(0), t=t))
            if holders:
                tell(returned(holders.pop(0).fence, t=t))
    assert not changes
    again = made_again(pool)
    assert [again.handle(event) for event, _ in history] == [out for _, out in history]
