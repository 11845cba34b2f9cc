"""Whole simulated lives, with faults: copies go on alike, what comes twice changes nothing, time adds up."""

import functools
import itertools
import json
from collections import defaultdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drlnb.planning.replay import fresh_machine
from drlnb.records import round as words
from drlnb.records.base import from_plain
from drlnb.records.columns import leasing
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.columns.placement import NodeLost
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.leases import inside, leases
from drlnb.sim.training.fleet import run_tasks
from tests.faults import seeded_faults
from tests.matches import like
from tests.strategies import fewer

COSTS = Costs(collect_s=1.0, compute_s=1.0, finish_s=0.1, publish_s=0.01, collect_cv=0.5)
HOLDS = ("round", "yield", "last")

#: What a message that comes twice may be about; its second coming is no news to a task.
TWICE = (
    words.ExperienceArrived, words.LeaseReceived, words.LeaseLost, words.LeaseClosed, words.GradientComputed,
    words.ParametersReady, words.ParametersCommitted, words.CheckpointGathered, words.CheckpointWritten,
    words.PlacementReceived, HostCompleted, leasing.GradientKept, leasing.GradientsRestored, NodeLost,
)  # fmt: skip


@functools.cache
def life(seed):
    """Return pool and tasks of a short run in which things go wrong."""
    faults = seeded_faults(8, until_s=30.0, seed=seed)
    return run_tasks(
        range(2), n_slots=2, n_rounds=5, n_collectors=2, hold=HOLDS[seed % 3], seed=seed, costs=COSTS, n_nodes=2,
        faults=faults,
    )  # fmt: skip


def streams(seed):
    pool, tasks = life(seed)
    return [pool.host.stream, *[stream for task in tasks for stream in task.streams]]


def fed(machine, answers):
    """Feed events to a machine; return it once it has answered each as it did."""
    for event, answer in answers:
        assert machine.handle(event) == answer
    return machine


# ------------------------------------------------------------------ copies
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_goes_on_from_any_point_of_a_life(seed):
    """From JSON, at three places of each stream: it answers every later event as the machine did, to the same end."""
    for stream in streams(seed):
        answers = list(stream.answers())
        end = fed(fresh_machine(stream.header), answers).snapshot()
        for share in (0.2, 0.5, 0.8):
            cut = int(share * len(answers))
            before = fed(fresh_machine(stream.header), answers[:cut])
            copy = fresh_machine(stream.header)
            copy.restore(from_plain(json.loads(json.dumps(before.snapshot()))))
            assert fed(copy, answers[cut:]).snapshot() == end


# ------------------------------------------------------------------ what comes twice, or late
@pytest.mark.parametrize("kind", TWICE, ids=lambda kind: kind.__name__)
def test_a_message_that_comes_twice_is_no_news_to_a_task(kind):
    """The second one is not answered, and the task goes on as if it had come once."""
    n = 0
    for seed in range(3):
        for stream in streams(seed)[1:]:
            machine = fresh_machine(stream.header)
            for event, answer in stream.answers():
                assert machine.handle(event) == answer
                if type(event) is kind:
                    n += 1
                    again = machine.handle(event)
                    assert again == (), f"{event} once more"
    assert n or kind in {leasing.GradientKept, leasing.GradientsRestored}, "the lives hold none"


@pytest.mark.parametrize("seed", range(3))
def test_experience_of_a_round_that_is_over_is_freed_and_changes_nothing_else(seed):
    """Delivered again at the end of the next round, its key is dropped: nobody reads it any more."""
    n = 0
    for stream in streams(seed)[1:]:
        machine, old = fresh_machine(stream.header), []
        for event, answer in stream.answers():
            assert machine.handle(event) == answer
            if isinstance(event, words.ParametersCommitted) and machine.phase != "ended":
                for late in old:
                    (dropped,) = machine.handle(_at(late, event.t))
                    assert dropped == like(words.DropExperience, key=late.key, collector=late.collector)
                    assert dropped.reason.startswith(f"round {late.round} under version {late.version}, now ")
                    n += 1
                old = []
            elif isinstance(event, words.ExperienceArrived):
                old.append(event)
    assert n > 5


def _at(event, t):
    return type(event)(**{name: getattr(event, name) for name in event.__slots__} | {"t": t})


@pytest.mark.parametrize("seed", range(3))
def test_what_a_pool_has_settled_stays_settled(seed):
    """A lease that has ended is ended by no second return, renewed by no renewal, and its request asks for no other."""
    pool, _ = life(seed)
    stream = pool.host.stream
    machine, asked, ended = fresh_machine(stream.header), {}, 0
    for event, answer in stream.answers():
        assert machine.handle(event) == answer
        if isinstance(event, leasing.SlotRequested):
            asked[event.request_id] = event
        for record in answer:
            if isinstance(record, leasing.LeaseGranted):
                asked[record.fence] = asked[record.request_id]
            elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired):
                ended += 1
                again = {"t": event.t, "fence": record.fence}
                for word in (
                    leasing.LeaseReturned(**again, clean=True, computed_s=(1.0,)),
                    leasing.LeaseRenewed(**again),
                ):
                    (refused,) = machine.handle(word)
                    assert (refused.subject, refused.reason) == (str(record.fence), "is over")
                request = asked[record.fence]
                (refused,) = machine.handle(_at(request, event.t))
                assert isinstance(refused, leasing.RequestRefused)
                assert refused.subject == request.request_id
                (refused,) = machine.handle(leasing.RequestPolled(t=event.t, request_id=request.request_id))
                assert refused.reason == "is not open"
    assert ended > 10


# ------------------------------------------------------------------ conservation
@pytest.mark.parametrize("seed", range(6))
def test_the_seconds_of_every_slot_are_accounted_for(seed):
    """Held + draining + free + absent = the whole run; and what is held is what the leases say, lease by lease."""
    pool, _ = life(seed)
    stream = pool.host.stream
    machine, spans, since = fresh_machine(stream.header), defaultdict(float), {}
    last_t = stream.records[0].t
    for event, _ in stream.answers():
        for name, state in since.items():
            spans[name, state] += event.t - last_t
        machine.handle(event)
        last_t = event.t
        since = {
            name: "absent" if slot.state == "failed" else slot.state
            for name, slot in machine.state.leases.slots.items()
        }
    whole_s = last_t - stream.records[0].t
    states = {state for _, state in spans}
    assert states <= {"free", "granted", "draining", "absent", "reserved"}
    for name in since:
        total_s = sum(seconds for (slot, _), seconds in spans.items() if slot == name)
        assert total_s == pytest.approx(whole_s, abs=1e-6)
    held = defaultdict(float)
    for lease in leases(stream):
        assert lease.end.held_s == pytest.approx(lease.ended_t - lease.granted_t, abs=1e-9)
        assert 0.0 <= lease.computed_s <= lease.end.held_s + 1e-6
        for slot in lease.grant.slots:
            held[slot] += lease.end.held_s
    for name in since:
        assert held[name] == pytest.approx(spans[name, "granted"], abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_no_two_leases_of_a_slot_overlap(seed):
    """In the order of their grants each begins when the one before it on that slot has ended, under a higher fence."""
    pool, _ = life(seed)
    by_slot = defaultdict(list)
    for lease in leases(pool.host.stream):
        for slot in lease.grant.slots:
            by_slot[slot].append(lease)
    for mine in by_slot.values():
        mine.sort(key=lambda lease: lease.grant.fence)
        for before, after in itertools.pairwise(mine):
            assert before.ended_t <= after.granted_t
            assert before.grant.fence < after.grant.fence


times = st.floats(-50.0, 50.0)


@given(times, times, times, times, st.floats(0.0, 20.0))
def test_what_lies_inside_a_window_adds_up(a, b, start, stop, more):
    """A span is never longer inside a window than it is; what two windows side by side hold is what both hold."""
    a, b, (start, stop) = min(a, b), max(a, b), sorted((start, stop))
    held = inside(a, b, start, stop)
    assert 0.0 <= held <= min(b - a, stop - start) + 1e-9
    assert held + inside(a, b, stop, stop + more) == pytest.approx(inside(a, b, start, stop + more), abs=1e-9)
    assert inside(a, b, a, b) == b - a


# ------------------------------------------------------------------ faults cost something
@fewer(2)
@example(faults=[("slot", 1.0), ("slot", 3.9535863818248935), ("slot", 6.0)], hold="last")
@given(
    st.lists(st.tuples(st.sampled_from(["collector", "executor", "holder", "frozen", "slot"]), st.floats(0.5, 12.0)),
             min_size=1, max_size=3),
    st.sampled_from(HOLDS),
)  # fmt: skip
def test_a_task_alone_is_never_quicker_for_a_fault(faults, hold):
    """With the same durations, whatever strikes and whenever, it is done no sooner, with as many rounds, or fails."""
    spared, (known,) = _alone(hold, ())
    struck = [_fault(kind, t) for kind, t in sorted(faults, key=lambda pair: pair[1])]
    pool, (task,) = _alone(hold, tuple(struck))
    if task.end.state == "done":
        assert _end_t(task) >= _end_t(known) - 1e-6
        made = {record.round for stream in task.streams for record in stream.of(words.MetricsRecorded)}
        assert made == {1, 2, 3}
    else:
        assert task.end.reason.endswith("would wait for ever: no slot is lent")
    assert len(pool.struck) <= len(struck)
    assert not spared.struck


def _fault(kind, t):
    return Fault(t=t, kind=kind, index=0, down_s=2.0)


def _end_t(task):
    return max(event.t for stream in task.streams for event, _ in stream.answers())


@functools.cache
def _alone(hold, faults):
    costs = Costs(collect_s=1.0, compute_s=1.0, finish_s=0.1, publish_s=0.01, collect_cv=0.0, service_cv=0.0)
    return run_tasks([0], n_slots=1, n_rounds=3, n_collectors=2, hold=hold, seed=0, costs=costs, faults=faults)
