"""The simulated rows of leasing, their bars, and the time of the table."""

import pytest

from drlnb.bench.benches import SimulatedLeasing
from drlnb.bench.leasing import events, simulated
from drlnb.sim.leasing.compare import LeasingWorkload, alone

QUICK = SimulatedLeasing(rounds=20, repeats=1)


def test_a_row_of_throughput_has_both_baselines():
    """Throughput stands beside exclusive and co-located use of the same slots."""
    few = LeasingWorkload(n_slots=1, n_workers=2, n_rounds=8)
    rows = {row.id: row for row in simulated._throughput("x", 0.3, few, (0,))}
    exclusive, colocated = rows["b3-exclusive-x"], rows["b3-colocated-x"]
    assert exclusive.bar.at_least == pytest.approx(0.85 / alone(few, 0).d, rel=0.05)
    assert exclusive.samples == colocated.samples
    assert exclusive.ratio > 1.0
    assert colocated.ratio > 0.5
    assert {row.origin for row in rows.values()} == {"simulated"}


def test_tasks_in_sequence_by_hand():
    """On two slots 3, 1, 1, 2 s: the second slot is free first, so it takes the third and the fourth task."""
    assert simulated.in_sequence([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    assert simulated.in_sequence([3.0, 1.0, 1.0, 2.0], 1) == 7.0
    assert simulated.in_sequence([3.0, 1.0], 5) == 3.0


def test_a_makespan_lies_between_a_slot_for_each_and_one_after_the_other():
    """Shared slots end no sooner than a slot for each task, and much sooner than tasks in turn."""
    few = LeasingWorkload(n_slots=1, n_workers=2, n_rounds=8)
    turns, crowd, own = simulated._makespans("x", 1.0, few, (0,))
    assert (turns.id, crowd.id, own.id) == ("makespan-turns-x", "makespan-colocated-x", "makespan-own-x")
    assert turns.samples == crowd.samples == own.samples
    assert turns.ratio < 0.5
    assert own.ratio >= 1.0
    assert own.baseline <= crowd.baseline < turns.baseline
    assert turns.bar is crowd.bar is own.bar is None


def test_the_time_of_an_event_is_that_of_the_table():
    """A cost for each number of tasks that wait, a bar at a thousand, and the growth beside log n."""
    assert 0 < events.cost_s(5, 30) < 0.01


def test_the_events_rows_tell_points_and_fit(monkeypatch):
    """Twice the cost at a thousand times the tasks: a fit that can be checked, and points to plot."""
    costs = dict(zip(events.WAITING, (1e-5, 1e-5, 2e-5, 2e-5, 2e-5, 2e-5, 2e-5), strict=True))
    monkeypatch.setattr(events, "cost_s", lambda n, n_events: costs[n])
    rows = {row.id: row for row in events.events(QUICK)}
    assert rows["events-1000"].value == pytest.approx(50_000)
    assert rows["events-1000"].holds
    assert rows["events-growth"].value == pytest.approx(2.0)
    assert rows["events-growth"].ratio == pytest.approx(0.5)
    assert len(rows) == len(events.WAITING) + 1


@pytest.mark.slow
def test_every_group_gives_rows_with_names_of_their_own():
    """Whatever the figures are, a row is measured and named once."""
    rows = [
        row
        for group in (
            simulated.utilisation,
            simulated.fairness,
            simulated.makespan,
            simulated.table,
            simulated.held_out,
        )
        for row in group(QUICK)
    ]
    assert all(row.measured for row in rows)
    assert len({row.id for row in rows}) == len(rows)
