"""A lease of two slots on the virtual clock: both work, and a task asks for no more slots than it has work for."""

import math

import pytest

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.sim.costs import Costs, Workload
from drlnb.sim.driver import Clock
from drlnb.sim.leases import leases
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task
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


def test_a_task_that_wants_more_slots_than_there_are_fails_and_the_others_go_on():
    """One line with the reason; the pool lends to the other task as if there had been nothing."""
    clock = Clock()
    pool = Pool(clock, slots={"s0": "n0", "s1": "n0"}, nodes=("n0",), settings=LeasingSettings(), validate=True)
    shape = {"n_envs": 3, "n_collectors": 3, "n_steps": 8, "total_timesteps": 3 * 3 * 8, "streams": True}
    greedy, modest = (
        Task(
            clock, pool, Workload(COSTS, seed=1, task=0, n_collectors=3), node="n0", validate=True,
            config={"task": name, "n_learners": n_learners, **shape},
        )
        for name, n_learners in (("greedy", 3), ("modest", 2))
    )  # fmt: skip
    greedy.open()
    modest.open()
    clock.run(math.inf)
    assert (greedy.end.state, modest.end.state) == ("failed", "done")
    assert greedy.end.reason == "task greedy would wait for ever: it wants 3 slots at once, and 2 may serve it"
    assert replay(pool.host.stream).difference is None
