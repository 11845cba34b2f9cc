"""A test package's placement planner moves homes after slots failed, in simulated runs, which replay without it."""

import pytest

from drlnb.planning.placement import Placement, tasks
from drlnb.planning.registry import Planners
from drlnb.planning.replay import replay
from drlnb.records.columns.leasing import LeaseGranted, SlotAdded, SlotFailed
from drlnb.records.columns.placement import PlacementPlanned
from drlnb.records.round import ParametersCommitted
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.training.fleet import run_tasks

FIRST, OTHER = "n0/slot0", "n0/slot1"


class Away:
    """The one slot that a task may use is the one that failed least."""

    name = "away"

    def plan(self, view):
        home = min(sorted(view.homes), key=lambda slot: len(view.failures.get(slot, ())))
        return Placement(slots=(home,), allowed=(home,), collector_nodes=(view.node,) * view.n_collectors)


class Loses(Away):
    """Gives up the first time that its slot is gone."""

    def plan(self, view):
        if view.slots and view.slots[0] not in view.homes:
            raise RuntimeError(f"{view.slots[0]} is gone")
        return super().plan(view)


def run(planner, name="own:away"):
    """Return the pool of a task whose first slot fails at 5 s and is back at 9 s."""
    pool, tasks = run_tasks(
        (0,), n_slots=2, n_rounds=8, n_collectors=2, hold="round", seed=1, costs=Costs(),
        faults=(Fault(t=5.0, kind="slot", index=0, down_s=4.0),), validate=True,
        config={"planners": {"hold": "round", "placement": name}}, planners=Planners({"placement": planner}),
    )  # fmt: skip
    for stream in (pool.host.stream, *tasks[0].streams):
        assert replay(stream).difference is None
    return pool.host.stream.records, tasks[0]


def test_the_home_moves_and_every_later_lease_is_there():
    """Before the fault all leases are of the first slot, after it of the other, though the first is back."""
    records, task = run(Away())
    (lost,) = [i for i, record in enumerate(records) if isinstance(record, SlotFailed)]
    back = [i for i, record in enumerate(records) if isinstance(record, SlotAdded) and i > lost]
    assert len(back) == 1
    leases = [(i, record.slots) for i, record in enumerate(records) if isinstance(record, LeaseGranted)]
    assert {slots for i, slots in leases if i < lost} == {(FIRST,)}
    assert {slots for i, slots in leases if i > lost} == {(OTHER,)}
    assert any(i > back[0] for i, _ in leases)
    homes = [record.slots for record in records if isinstance(record, PlacementPlanned)]
    assert homes == [(FIRST,), (OTHER,), (OTHER,)]
    assert task.end.state == "done"


def test_first_stays_as_it_was_placed():
    """It is asked once, at the start."""
    records, _ = run(Away(), name="first")
    assert any(isinstance(record, SlotFailed) for record in records)
    assert [record.slots for record in records if isinstance(record, PlacementPlanned)] == [(FIRST,)]


def test_a_planner_that_raises_fails_its_task_with_one_line():
    """It names planner and what is wrong."""
    _, task = run(Loses())
    assert task.end.state == "failed"
    assert task.end.reason == f"placement planner own:away raised RuntimeError: {FIRST} is gone"


@pytest.mark.parametrize("allowed", ["any", "gang"])
@pytest.mark.parametrize("planner", ["ect", "healthiest_packed", "random:seed=3", "first"])
def test_a_gang_whose_slot_fails_computes_its_rounds_all_the_same(planner, allowed, monkeypatch):
    """Whoever plans it: every round is made once, and with a planner that follows slots no lease has fewer than two."""
    monkeypatch.setattr(tasks.Placements, "__init__", with_allowed(allowed))
    pool, (task,) = run_tasks(
        (0,), n_slots=3, n_rounds=8, n_collectors=2, hold="round", seed=1, costs=Costs(), n_nodes=2,
        faults=(Fault(t=5.0, kind="slot", index=0, down_s=9.0), Fault(t=9.0, kind="executor", index=1)), validate=True,
        config={"planners": {"hold": "round", "placement": planner}, "n_learners": 2, "streams": True},
    )  # fmt: skip
    for stream in (pool.host.stream, *task.streams):
        assert replay(stream).difference is None
    assert task.end.state == "done"
    (versions,) = [[record.version for record in stream.of(ParametersCommitted)] for stream in task.streams]
    assert versions == list(range(1, 10))
    plans = list(pool.host.stream.of(PlacementPlanned))
    assert [plan.gang_version for plan in plans] == list(range(1, len(plans) + 1))
    assert len(plans) == 1 if planner == "first" else len(plans) >= 3
    if allowed == "gang" and planner != "first":
        whole = [plan.slots for plan in plans if len(plan.slots) == 2]
        lent = {lease.slots for lease in pool.host.stream.of(LeaseGranted) if len(lease.slots) == 2}
        assert {frozenset(slots) for slots in lent} <= {frozenset(slots) for slots in whole}


def with_allowed(value):
    """Return the constructor of placements whose pool has another setting."""
    begin = tasks.Placements.__init__

    def init(self, settings=None, **more):
        begin(self, settings=settings or tasks.PlacementSettings(allowed=value), **more)

    return init
