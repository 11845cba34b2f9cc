"""Where tasks were placed, as a table of a run and in the table of what each task was lent."""

import pytest

from drlnb.fleet.rows.tables import table_rows
from drlnb.planning.placement import Placement
from drlnb.planning.registry import Planners
from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.training.fleet import run_tasks
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.status import statuses


class Away:
    name = "away"

    def plan(self, view):
        home = min(sorted(view.homes), key=lambda slot: len(view.failures.get(slot, ())))
        return Placement(slots=(home,), allowed=(home,), collector_nodes=(view.node,) * view.n_collectors)


@pytest.fixture
def journal():
    """Return the journal of a run whose first slot fails at 5 s and is back at 9 s."""
    planners = {"hold": "round", "placement": "own:away"}
    pool, tasks = run_tasks(
        (0,), n_slots=2, n_rounds=4, n_collectors=2, hold="round", seed=1, costs=Costs(), config={"planners": planners},
        faults=(Fault(t=5.0, kind="slot", index=0, down_s=4.0),), planners=Planners({"placement": Away()}),
    )  # fmt: skip
    streams = (pool.host.stream, *tasks[0].streams)
    return Journal(streams={stream.header.stream: stream for stream in streams})


def test_each_answer_of_a_planner_is_a_row(journal):
    """At the start, when the slot fails, and when it is back; collectors are placed at the start alone."""
    first, failed, back = table_rows(journal, "placement")
    assert first | {"t_s": None} == {
        "task": "sim0", "attempt": 1, "t_s": None, "event": "PlacementAsked", "planner": "own:away",
        "gang_version": 1, "slots": "n0/slot0", "allowed": "n0/slot0", "nodes": "n0 n0", "expected_s": None,
        "candidates": "", "weighed": "", "reason": "",
    }  # fmt: skip
    moved = {"planner": "own:away", "slots": "n0/slot1", "allowed": "n0/slot1", "nodes": ""}
    for row, event in ((failed, "SlotFailed"), (back, "SlotAdded")):
        assert {key: row[key] for key in moved} == moved
        assert row["event"] == event
    assert back["t_s"] - failed["t_s"] == pytest.approx(4.0)


def test_gangs_their_alternatives_and_that_slots_are_missing_are_rows():
    """Two slots; one fails at 5 s, so the gang of two goes on with the other one, and has both again at 9 s."""
    pool, tasks = run_tasks(
        (0,), n_slots=2, n_rounds=4, n_collectors=2, hold="round", seed=1, costs=Costs(),
        config={"n_learners": 2, "streams": True}, faults=(Fault(t=5.0, kind="slot", index=0, down_s=4.0),),
    )  # fmt: skip
    streams = {stream.header.stream: stream for stream in (pool.host.stream, *tasks[0].streams)}
    first, failed, short, back = table_rows(Journal(streams=streams), "placement")
    assert [row["slots"] for row in (first, failed, back)] == ["n0/slot0 n0/slot1", "n0/slot1", "n0/slot1 n0/slot0"]
    assert [row["gang_version"] for row in (first, failed, back)] == [1, 2, 3]
    assert first["candidates"] == "best_fit 1 s: n0/slot0 n0/slot1"
    assert first["weighed"] == "n0/slot0 3.434e-08 Hz; n0/slot1 3.434e-08 Hz"  # once in 337 days
    assert {key: short[key] for key in ("task", "event", "planner", "slots", "reason")} == {
        "task": "sim0", "event": "SlotFailed", "planner": None, "slots": None, "reason": "needs 2 slots, 1 alive",
    }  # fmt: skip
    fold = Fold()
    fold.feed(entries_of(Journal(streams=streams)))
    assert statuses(fold, {})["sim0"].gang == ("n0/slot1", "n0/slot0")
