"""The simulated rows of leasing, their bars, and the time of the table."""

import pytest

from benchmarks.efforts import SimulatedLeasing
from benchmarks.leasing import events, simulated
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


def test_the_time_of_an_event_is_that_of_the_table():
    """A cost for each number of tasks that wait, a bar at a thousand, and the growth beside log n."""
    assert 0 < events.cost_s(5, 30) < 0.01


def test_the_events_rows_tell_points_and_growth(monkeypatch):
    """Twice the cost at a thousand times the tasks: a growth that can be checked, and points to plot."""
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
    rows = [row for group in (simulated.utilisation, simulated.fairness) for row in group(QUICK)]
    assert all(row.measured for row in rows)
    assert len({row.id for row in rows}) == len(rows)
