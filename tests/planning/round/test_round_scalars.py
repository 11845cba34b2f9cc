"""Scalars of leases and starts in the metrics of a round; events are a second apart."""

import pytest
from round_words import Master, only

from drlnb.planning.round.progress import Progress
from drlnb.records.columns.warmup import WarmupMeasured, WarmupPlanned
from drlnb.records.round import MetricsRecorded


def told(records):
    """Return the scalars of leases and starts of a finished round."""
    metrics = only(MetricsRecorded, records).metrics
    return {name: value for name, value in metrics.items() if name.startswith(("lease/", "warmup/"))}


def streaming(**more):
    """Return a task of three collectors that gives its slot away on demand, at its second round."""
    master = Master(n_collectors=3, hold="yield", streams=True, switch_limit_frac=10.0, **more)
    master.at_version_1()
    for i in range(3):
        master.arrived(i)
    master.granted(waited_s=1.0)
    for i in range(3):
        master.computed(i)
    master.made()
    master.committed()
    master.completed()
    return master


def given_away(master):
    """Make a round with two leases: held from 1 to 3 and from 6 to 11 s, waits of 0 and 3 s; return the commit."""
    master.arrived(0)
    master.granted(resident=True)
    master.yield_asked()
    master.computed(0, key="g0", moved_bytes=10)
    master.arrived(1)
    master.arrived(2)
    master.granted(waited_s=3.0, resident=False)
    master.restored(moved_bytes=200)
    master.computed(1, moved_bytes=3000)
    master.computed(2)
    master.made()
    return master.committed()


def test_leases_of_a_round_by_hand():
    """Waits (0 + 3) / 2, held 2 + 5 s, one of two leases on a slot with the parameters, 3,210 bytes moved."""
    assert told(given_away(streaming())) == {
        "lease/wait_s": 1.5, "lease/held_s": 7.0, "lease/resident_hit": 0.5, "lease/moved_bytes": 3210,
    }  # fmt: skip


def test_a_round_begins_with_nothing():
    """The lease of the initial parameters is no round's; what one round moved is not the next one's."""
    master = Master()
    master.at_version_1()
    first, second = told(master.to_commit()), told([*master.completed(), *master.to_commit()])
    assert first["lease/moved_bytes"] == second["lease/moved_bytes"] == 0
    assert first["lease/held_s"] == second["lease/held_s"] == 4.0  # collector 1 sends, two gradients, made, committed
    assert "lease/resident_hit" not in first, "nobody has said"


def test_a_lost_lease_was_held_until_it_was_lost():
    """Granted, lost 1 s later; granted again, and held for 4 s until the commit."""
    master = Master(hold="last")
    master.at_version_1()
    for i in range(2):
        master.arrived(i)
    master.granted()
    master.lease_lost()
    master.granted()
    for i in range(2):
        master.computed(i)
    master.made()
    assert told(master.committed())["lease/held_s"] == 5.0


def of_starts(progress):
    """Finish a round; return what its metrics say of starts, and begin the next one."""
    progress.finished(1, 100)
    metrics = progress.metrics(1.0)
    progress.began(1.0)
    return {name: value for name, value in metrics.items() if name.startswith("warmup/")}


def plan(collector, lead_s, round_=1):
    return WarmupPlanned(round=round_, collector=collector, action="start", planner="saa", reason="", lead_s=lead_s)


def test_a_later_plan_of_a_start_takes_the_place_of_the_first():
    """Leads 2 and 4 s, the second revised to 1 s, then a third to none: mean 1.5; they count for the next round."""
    progress = Progress()
    for one in (plan(0, 2.0), plan(1, 4.0), plan(1, 1.0), plan(2, 9.0), plan(2, None), plan(0, 7.0, round_=2)):
        progress.planned(one)
    assert [of_starts(progress) for _ in range(3)] == [{}, {"warmup/lead_s": 1.5}, {"warmup/lead_s": 7.0}]


def test_early_and_late_starts_by_hand():
    """One ready 3 s early, one on the second, one 1.5 s late: two of three in time."""
    progress = Progress(n_rounds=1)
    progress.measured(
        WarmupMeasured(
            round=2, wait_s=1.5, idle_s=1.0, collectors=(0, 1, 2), early_s=(3.0, 0.0, 0.0), late_s=(0.0, 0.0, 1.5)
        )
    )
    assert of_starts(progress) == {
        "warmup/hit": pytest.approx(2 / 3), "warmup/early_s": 1.0, "warmup/late_s": 0.5,
    }  # fmt: skip
    assert of_starts(progress) == {}
    assert progress.starts == {}, "what is over is forgotten"
