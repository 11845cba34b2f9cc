"""A lease of two slots on the virtual clock: both work, and a task asks for no more slots than it has work for."""

import pytest

from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.leases import leases
from drlnb.sim.training.fleet import run_tasks
from tests.faults import seeded_faults

#: A gradient takes a second, all else nothing that counts.
COSTS = Costs(collect_s=0.01, compute_s=4.0, finish_s=0.5, publish_s=0.001, collect_cv=0.0, service_cv=0.0)


def run(n_learners, *, n_slots=2, n_tasks=1, n_collectors=4, n_rounds=5, hold="round", **more):
    return run_tasks(
        range(n_tasks), n_slots=n_slots, n_rounds=n_rounds, n_collectors=n_collectors, hold=hold, seed=1, costs=COSTS,
        validate=True, config={"n_learners": n_learners}, **more,
    )  # fmt: skip


def finished(task):
    """Return the collectors of each round's update, by round, of the last attempt."""
    return {command.round: command.collectors for command in task.streams[-1].of(words.FinishRound)}


def test_both_slots_of_a_lease_work_side_by_side():
    """Four gradients of 1 s: 2 s on two slots and 4 s on one, then .5 s on the first; so the round is 2 s shorter."""
    times = {}
    for n_learners in (1, 2):
        pool, (task,) = run(n_learners)
        assert task.end.state == "done"
        assert finished(task) == dict.fromkeys(range(1, 6), (0, 1, 2, 3))
        lent = [lease for lease in leases(pool.host.stream) if lease.grant.round]
        assert [len(lease.grant.slots) for lease in lent] == [n_learners] * 5
        wanted = {1: (4.5,), 2: (2.5, 2.0)}[n_learners]
        assert [lease.end.computed_s for lease in lent] == [pytest.approx(wanted, abs=0.01)] * 5
        (times[n_learners],) = {round(m.metrics["round/time_s"], 1) for m in task.streams[0].of(words.MetricsRecorded)}
        assert replay(task.streams[0]).difference is None
        assert replay(pool.host.stream).difference is None
    assert times[1] - times[2] == pytest.approx(2.0, abs=0.11)


def test_the_version_is_resident_where_it_was_made():
    """The next lease begins with the slot that holds the version; the other one must get it: not all are resident."""
    pool, (task,) = run(2)
    lent = [record for record in pool.host.stream.of(leasing.LeaseGranted) if record.round > 1]
    assert len({grant.slots[0] for grant in lent}) == 1
    assert not any(grant.resident for grant in lent)
    assert task.end.state == "done"


@pytest.mark.parametrize("hold", ["round", "yield", "last"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_dies_every_update_is_made_of_all_gradients(hold, seed):
    """Tasks of two and three learners share three slots; for what is kept no slot is asked."""
    faults = seeded_faults(6, until_s=40.0, seed=seed)
    for n_learners in (2, 3):
        pool, tasks = run(n_learners, n_slots=3, n_tasks=2, n_collectors=3, hold=hold, n_nodes=3, faults=faults)
        assert [task.end.state for task in tasks] == ["done", "done"]
        for task in tasks:
            for stream in task.streams:
                assert {command.collectors for command in stream.of(words.FinishRound)} <= {(0, 1, 2)}
                assert replay(stream).difference is None
        whole = [lease.end for lease in leases(pool.host.stream) if lease.end.slots[1:]]
        assert any(all(seconds > 0 for seconds in getattr(end, "computed_s", (0,))) for end in whole)


def test_a_task_of_more_learners_than_slots_makes_do_with_those_that_there_are():
    """Three learners on two slots, as after a resume on fewer: both have work, and that is said once."""
    pool, (task,) = run(3)
    assert task.end.state == "done"
    assert finished(task) == dict.fromkeys(range(1, 6), (0, 1, 2, 3))
    lent = [lease for lease in leases(pool.host.stream) if lease.grant.round]
    assert [len(lease.grant.slots) for lease in lent] == [2] * 5
    assert all(min(lease.end.computed_s) >= 1.0 for lease in lent)
    assert [lease.computed_s for lease in lent] == [pytest.approx(4.5, abs=0.01)] * 5
    (unmet,) = pool.host.stream.of(leasing.RequestUnmet)
    assert unmet.text == "task sim0 computes on 2 of its 3 slots for now: no more can be lent"
    assert replay(task.streams[0]).difference is None
    assert replay(pool.host.stream).difference is None


@pytest.mark.parametrize("hold", ["round", "yield", "last"])
def test_a_round_goes_on_without_a_slot_that_died_and_the_next_ones_have_it_again(hold):
    """The slot is away for 40 s, some ten rounds: they compute on the other one, and nobody waits for it.

    A gradient that had been computed beside the lead is not computed again in the round where the slot died.
    """
    struck = Fault(kind="slot", t=11.0, index=1, down_s=40.0)
    pool, (task,) = run(2, n_rounds=30, hold=hold, faults=[struck], n_nodes=1)
    assert task.end.state == "done"
    assert finished(task) == dict.fromkeys(range(1, 31), (0, 1, 2, 3))
    sizes = [len(lease.grant.slots) for lease in leases(pool.host.stream) if lease.grant.round]
    away = sizes.index(1), len(sizes) - sizes[::-1].index(1)
    assert set(sizes[: away[0]]) == set(sizes[away[1] :]) == {2}
    assert set(sizes[slice(*away)]) == {1}
    assert 5 <= away[1] - away[0] <= 12
    assert max(lease.grant.waited_s for lease in leases(pool.host.stream)) < 2.0
    kept = set()
    for computed in task.streams[0].of(words.GradientComputed):
        assert (computed.round, computed.collector) not in kept, "what lies at the master is not computed again"
        kept |= {(computed.round, computed.collector)} if computed.key else set()
    assert kept
    assert replay(task.streams[0]).difference is None
    assert replay(pool.host.stream).difference is None
