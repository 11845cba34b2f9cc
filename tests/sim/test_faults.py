"""Holders that die or stand still, slots that go: what the pool does, and what the task goes on from."""

import functools
import itertools

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs
from drlnb.sim.driver import Clock
from drlnb.sim.faults import FAULT_KINDS, Fault, poisson_faults
from drlnb.sim.leasing.compare import FAULTS, LeasingWorkload, simulate_leasing
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.pool import Executor
from tests.faults import seeded_faults
from tests.runtime.laws import check_journal

#: Every duration as it is given: 1 s acting, 2 s of gradients, .25 s of update.
COSTS = Costs(collect_s=1.0, compute_s=2.0, finish_s=0.25, publish_s=0.01, collect_cv=0.0, service_cv=0.0)


def run(*faults, n_tasks=2, n_slots=1, n_rounds=16, hold="round", fails=False, **more):
    """Run tasks with faults to their ends, every machine checked after each event; return pool, tasks, journal."""
    pool, tasks = run_tasks(
        range(n_tasks), n_slots=n_slots, n_rounds=n_rounds, n_collectors=2, hold=hold, seed=0, costs=COSTS,
        faults=faults, validate=True, **more,
    )  # fmt: skip
    streams = (pool.host.stream, *[stream for task in tasks for stream in task.streams])
    journal = check_journal(Journal(streams={one.header.stream: one for one in streams}))
    _committed_under_live_leases(pool.host.stream, tasks)
    assert {task.end.state for task in tasks} <= {"done", "failed"}
    failed = [task.end.reason for task in tasks if task.end.state == "failed"]
    assert all(fails and reason.startswith("the executor died 3 times in one round") for reason in failed)
    return pool, tasks, journal


@functools.cache
def spared(**more):
    """Return what :func:`run` does without faults, made once."""
    return run(**more)


def _committed_under_live_leases(pool, tasks):
    """Assert that nothing was committed under a lease before its grant, or after the pool had ended it (I4)."""
    lived = {}
    for event, answer in pool.answers():
        for record in answer:
            if isinstance(record, leasing.LeaseGranted):
                lived[record.fence] = (record.task, event.t, float("inf"))
            elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired):
                lived[record.fence] = (*lived[record.fence][:2], event.t)
    for task in tasks:
        for stream in task.streams:
            for event in stream.of(words.ParametersCommitted):
                name, granted_t, ended_t = lived[event.fence]
                assert name == task.name
                assert granted_t <= event.t <= ended_t, f"{event} under a lease of {granted_t}..{ended_t} s"


def holds(pool, task, at):
    """Return (fence, begin, end) of a task's first lease after a time."""
    ends = {}
    for event, answer in pool.answers():
        ends |= {r.fence: event.t for r in answer if isinstance(r, leasing.LeaseReleased | leasing.LeaseExpired)}
    for event, answer in pool.answers():
        for record in answer:
            if isinstance(record, leasing.LeaseGranted) and record.task == task and event.t > at:
                return record.fence, event.t, ends[record.fence]
    raise AssertionError(f"{task} had no lease after {at} s")


def strike(kind, *, after=0.0, down_s=1.0, into=1.0, **more):
    """Return a fault of the holder of a lease of sim0, that long into it."""
    pool, _, _ = spared(**more)
    fence, begin, _ = holds(pool.host.stream, "sim0", after)
    return Fault(t=begin + into, kind=kind, index=0, down_s=down_s), fence


def of(stream, kind, fence):
    """Return the times of a pool's events after which it decided so about a fence."""
    return [event.t for event, answer in stream.answers() for r in answer if isinstance(r, kind) and r.fence == fence]


# ------------------------------------------------------------------ a holder dies
def test_a_killed_holder_goes_on_from_its_newest_checkpoint():
    """Ten rounds are saved; the next attempt begins with them, and takes the slot from the one that is gone."""
    fault, fence = strike("holder", after=52.0)
    pool, (task, other), journal = run(fault)
    assert [len(one.attempts) for one in (task, other)] == [2, 1]
    saved = max(one.version for one in task.streams[0].of(words.CheckpointWritten))
    opened = task.streams[1].of(words.TaskOpened)[0]
    assert (opened.attempt, opened.version, opened.n_rounds, opened.n_timesteps) == (2, saved, 10, 10 * 2 * 256)
    assert opened.t == pytest.approx(fault.t + 1.0, abs=1e-5)
    assert max(event.t for event in task.streams[0].records if hasattr(event, "t")) <= fault.t, "the dead say nothing"
    (ended,) = [r for r in journal.of(leasing.LeaseReleased) if r.fence == fence]
    assert ended.reason == "task-stopped"
    assert of(pool.host.stream, leasing.LeaseReleased, fence)[0] == pytest.approx(fault.t + 1.0, abs=0.01)
    assert [one.slot for one in journal.of(leasing.SlotDrained)] == ["n0/slot0"]
    made = [one.round for stream in task.streams for one in stream.of(words.MetricsRecorded)]
    assert made[-6:] == [11, 12, 13, 14, 15, 16]
    assert sorted(set(made)) == list(range(1, 17)), "rounds since the checkpoint are made once more"


def test_a_holder_that_dies_before_its_first_checkpoint_begins_anew():
    """Nothing was saved: version 0, round 1."""
    fault, _ = strike("holder", after=5.0)
    _, (task, _), _ = run(fault)
    opened = task.streams[1].of(words.TaskOpened)[0]
    assert (opened.version, opened.n_rounds, opened.elapsed_s) == (0, 0, 0.0)
    assert len(task.streams[1].of(words.MetricsRecorded)) == 16


def test_where_nobody_comes_back_in_time_the_lease_expires():
    """A restart after 30 s: the pool waits for 10 s after the last renewal, drains the slot, and lends it on."""
    fault, fence = strike("holder", after=52.0, down_s=30.0)
    pool, (task, other), journal = run(fault)
    (expired,) = journal.of(leasing.LeaseExpired)
    assert expired.fence == fence
    (t,) = of(pool.host.stream, leasing.LeaseExpired, fence)
    assert fault.t + 8.0 < t < fault.t + 10.0 + 0.5
    assert holds(pool.host.stream, other.name, t)[1] < fault.t + 30.0, "the other task is served meanwhile"
    assert len(task.attempts) == 2


# ------------------------------------------------------------------ a holder stands still
def test_a_frozen_holder_loses_its_lease_and_is_refused():
    """Silent for 25 s: expired, drained, lent to the other; back, it has lost it, and the pool refuses its renewal."""
    fault, fence = strike("frozen", after=52.0, down_s=25.0, into=0.0015, hold="yield")
    pool, (task, other), journal = run(fault, hold="yield")
    (expired,) = journal.of(leasing.LeaseExpired)
    assert (expired.fence, expired.task) == (fence, "sim0")
    (t,) = of(pool.host.stream, leasing.LeaseExpired, fence)
    assert holds(pool.host.stream, other.name, t)[1] < fault.t + 25.0
    assert len(task.attempts) == 1
    lost = [event for event in task.streams[0].of(words.LeaseLost) if event.fence == fence]
    assert lost[0].t == pytest.approx(fault.t + 25.0, abs=0.002)
    heard = [event.t for event in task.streams[0].records if hasattr(event, "t") and event.t > fault.t]
    assert min(heard) >= fault.t + 25.0, "it hears nothing while it stands still"
    assert not [one for one in journal.of(words.ParametersCommitted) if one.fence == fence]


@pytest.mark.thorough
def test_who_wakes_without_an_answer_renews_and_is_refused():
    """Nothing of its executor waits, so its timer comes first: the pool says that the lease is over."""
    quick = LeasingSettings(ttl_s=0.5, holder_ttl_s=0.4, renew_s=0.1)
    fault, fence = strike("frozen", after=40.0, down_s=25.0, into=0.0015, settings=quick, hold="yield", n_slots=2)
    pool, _, journal = run(fault, settings=quick, hold="yield", n_slots=2)
    refused = [
        (event.t, record.reason)
        for event, answer in pool.host.stream.answers()
        for record in answer
        if isinstance(record, leasing.RequestRefused) and record.subject == str(fence)
    ]
    assert [one.fence for one in journal.of(leasing.LeaseExpired)] == [fence]
    assert refused == [(pytest.approx(fault.t + 25.0, abs=1e-5), "is over")]


def test_a_short_pause_costs_nothing_but_itself():
    """Three seconds of silence are less than the time to live: the lease goes on to its return."""
    fault, fence = strike("frozen", after=52.0, down_s=3.0)
    _, (task, _), journal = run(fault)
    assert not journal.of(leasing.LeaseExpired)
    assert not task.streams[0].of(words.LeaseLost)
    assert [r.reason for r in journal.of(leasing.LeaseReleased) if r.fence == fence] == ["returned"]


def test_a_grant_that_comes_while_its_task_stands_still_is_asked_about_first():
    """It was taken back long ago: the task asks anew, under another id, instead of working under it."""
    pool, _, _ = spared(hold="last")
    fence, begin, _ = holds(pool.host.stream, "sim0", 52.0)
    (granted,) = [one for one in pool.host.stream.of(leasing.LeaseGranted) if one.fence == fence]
    assert granted.waited_s > 0.6, "the other task holds the slot meanwhile"
    # The first one freezes the holder, the second one sim0, which waits: the holder is not up any more.
    faults = (
        Fault(t=begin - 0.5, kind="frozen", index=0, down_s=0.6),
        Fault(t=begin - 0.4, kind="frozen", index=0, down_s=25.0),
    )
    pool, (task, _), journal = run(*faults, hold="last")
    (expired,) = journal.of(leasing.LeaseExpired)
    assert expired.task == "sim0"
    again = [one for one in journal.of(leasing.SlotRequested) if "+" in one.request_id]
    assert [one.request_id for one in again] == [f"{granted.request_id}+1"]
    assert again[0].t == pytest.approx(begin - 0.4 + 25.0, abs=0.01)
    assert expired.fence not in [one.fence for one in task.streams[0].of(words.LeaseReceived)]
    assert granted.request_id in [one.request_id for one in task.streams[0].of(words.LeaseReceived)]


def test_a_place_that_was_lost_in_a_long_pause_is_asked_for_again():
    """Nobody polled for 70 s, so the pool has dropped the request: back, the task hears that and asks anew."""
    slow = LeasingSettings(max_hold_s=1e4)
    costs = {0: COSTS, 1: Costs(**{**as_kwargs(COSTS), "compute_s": 200.0})}
    faults = [Fault(t=t, kind="frozen", index=0, down_s=down_s) for t, down_s in ((40.0, 0.5), (40.1, 100.0))]
    pool, tasks = run_tasks(
        range(2), n_slots=1, n_rounds=3, n_collectors=2, hold="round", seed=0, costs=costs, validate=True,
        settings=slow, faults=faults,
    )  # fmt: skip
    assert {task.end.state for task in tasks} == {"done"}
    refused = [one.subject for one in pool.host.stream.of(leasing.RequestRefused)]
    again = [one for one in pool.host.stream.of(leasing.SlotRequested) if "+" in one.request_id]
    assert [one.request_id for one in again] == [f"{refused[0]}+1"]
    assert again[0].t == pytest.approx(140.1, abs=20.0)


# ------------------------------------------------------------------ a slot goes
def test_a_lost_slot_comes_back_later():
    """Its holder's lease ends at once and the task asks again; nothing is lent there until it is added."""
    pool, _, _ = spared()
    fence, begin, _ = holds(pool.host.stream, "sim0", 52.0)
    fault = Fault(t=begin + 1.0, kind="slot", index=0, down_s=12.0)
    pool, (task, _), journal = run(fault)
    (released,) = [r for r in journal.of(leasing.LeaseReleased) if r.fence == fence]
    assert released.reason == "slot-failed"
    assert len(journal.of(leasing.SlotFailed)) == 1
    added = [event.t for event in pool.host.stream.of(leasing.SlotAdded)]
    assert added[1:] == pytest.approx([fault.t + 12.0])
    between = [e.t for e, answer in pool.host.stream.answers() for r in answer if isinstance(r, leasing.LeaseGranted)]
    assert not [t for t in between if fault.t < t < fault.t + 12.0]
    assert len(task.attempts) == 1


def test_an_executor_refuses_what_was_revoked():
    """Work under a lease that was taken away is not begun; neither is that under an older one."""
    clock = Clock()
    executor = Executor(clock, "n0/slot0", "n0")
    done = []
    old, new = Fence(epoch=1, token=4), Fence(epoch=1, token=5)
    executor.submit(new, 1.0, lambda: done.append("new"))
    executor.submit(old, 1.0, lambda: done.append("old"))
    assert executor.revoke(new) == 1.0
    executor.submit(new, 1.0, lambda: done.append("late"))
    clock.run()
    assert done == []
    assert executor.busy_t == 1.0


def test_no_two_jobs_are_on_a_device_at_once():
    """A slot that was lent before its former work has left the device is a broken law (I2')."""
    executor = Executor(Clock(), "n0/slot0", "n0")
    executor.submit(Fence(epoch=1, token=1), 1.0, lambda: None)
    executor.revoke(Fence(epoch=1, token=1))
    with pytest.raises(AssertionError, match="work under #2 begins while other work is on the device"):
        executor.submit(Fence(epoch=1, token=2), 1.0, lambda: None)


# ------------------------------------------------------------------ all at once
@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_the_laws_hold_under_holder_faults(seed):
    """Holders die and stand still again and again; each machine is checked after each event, each stream replayed."""
    kinds = ("holder", "frozen", "slot", "holder", "frozen", "executor")
    faults = seeded_faults(14, until_s=90.0, seed=seed, kinds=kinds)
    hold = ("yield", "round", "last")[seed % 3]
    _, tasks, journal = run(*faults, n_tasks=3, n_slots=2, n_rounds=12, hold=hold)
    assert sum(len(task.attempts) for task in tasks) > 3
    for task in tasks:
        made = {one.round for stream in task.streams for one in stream.of(words.MetricsRecorded)}
        assert made == set(range(1, 13)), "no round is skipped, whoever died"
        for before, after in itertools.pairwise(task.streams):
            rounds = [one.round for one in after.of(words.MetricsRecorded)]
            begin = after.of(words.TaskOpened)[0].n_rounds
            assert rounds == list(range(begin + 1, begin + 1 + len(rounds)))
            assert begin <= max((one.round for one in before.of(words.MetricsRecorded)), default=begin)
    assert journal.of(leasing.SlotDrained)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 260))
def test_the_laws_hold_in_many_runs(seed):
    """The same with more of everything; a task whose executor dies three times in a round fails."""
    faults = seeded_faults(60, until_s=250.0, seed=seed, kinds=FAULTS)
    run(*faults, n_tasks=4, n_slots=2, n_rounds=30, hold=("yield", "round", "last")[seed % 3], fails=True)


# ------------------------------------------------------------------ workloads with faults
BUSY = LeasingWorkload(n_tasks=3, n_slots=1, n_workers=2, n_rounds=20, compute_s=0.5, seed=2)


@pytest.mark.thorough
@pytest.mark.parametrize("hold", ["round", "yield", "last"])
def test_faults_cost_what_they_cost(hold):
    """Rounds take longer than in the same run without them; every machine is checked, every stream replayed."""
    rates = (("holder", 40.0), ("frozen", 90.0), ("executor", 30.0))
    spared = simulate_leasing(BUSY, hold, validate=True)
    run_ = simulate_leasing(LeasingWorkload(**{**as_kwargs(BUSY), "faults": rates}), hold, validate=True)
    assert (spared.n_faults, spared.n_expired, spared.n_restarts, spared.redone_frac) == (0, 0, 0, 0.0)
    assert run_.n_faults >= run_.n_restarts > 0
    assert run_.inflation > spared.inflation
    assert run_.rounds_hz < spared.rounds_hz
    assert (run_.bound_frac, run_.d_mean) == (spared.bound_frac, spared.d_mean), "alone, tasks are spared"
    assert 0.0 < run_.redone_frac < 0.5
    assert run_.n_failed == 0


def as_kwargs(workload):
    """Return a workload's fields."""
    return {name: getattr(workload, name) for name in workload.__slots__}


@pytest.mark.thorough
def test_the_same_seed_strikes_alike():
    """A run with faults is a function of its seed, too."""
    workload = LeasingWorkload(**{**as_kwargs(BUSY), "faults": (("holder", 60.0), ("slot", 60.0))})
    assert simulate_leasing(workload) == simulate_leasing(workload)


@pytest.mark.thorough
def test_faults_without_end_are_said():
    """Where executors die faster than rounds end, no task does."""
    workload = LeasingWorkload(
        n_tasks=2, n_slots=1, n_workers=1, n_rounds=3, faults=(("executor", 3600.0), ("holder", 3600.0))
    )
    with pytest.raises(ConfigError, match="faults: too many for each of 2 tasks to end, or to make 2 rounds"):
        simulate_leasing(workload)


def test_rates_are_per_hour_and_each_kind_has_its_own():
    """About as many as the rate says; another rate of one kind leaves the others where they are."""
    rates = {"holder": 30.0, "frozen": 60.0}
    hours = list(itertools.takewhile(lambda fault: fault.t < 40 * 3600.0, poisson_faults(rates, seed=1)))
    assert [fault.t for fault in hours] == sorted(fault.t for fault in hours)
    for kind, rate in rates.items():
        assert sum(fault.kind == kind for fault in hours) == pytest.approx(40 * rate, rel=0.1)
    alone = list(itertools.islice(poisson_faults({"frozen": 60.0}, seed=1), 50))
    assert alone == [fault for fault in hours if fault.kind == "frozen"][:50]
    assert list(poisson_faults({"holder": 0.0}, seed=1)) == []
    assert {fault.kind for fault in itertools.islice(poisson_faults(dict.fromkeys(FAULT_KINDS, 9.0), seed=0), 99)} == (
        set(FAULT_KINDS)
    )
