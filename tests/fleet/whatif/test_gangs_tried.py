"""Planners of gangs that are compared have the same jobs and faults; by hand and in the pictures likewise."""

from dataclasses import replace

import pytest

from drlnb.fleet.whatif import placement as whatif
from drlnb.planning.placement import Cluster
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import FaultPath, simulate
from drlnb.sim.placement.traces import TraceJob

HOUR = 3600.0


def case(n_jobs=16, **model):
    """Return two small windows of the sample on slots that fail often, without checkpoints."""
    given = {"mtbf_days": 5.0, "node_spread": 0.0, **model}
    return whatif.Case(
        windows=whatif.Windows(n_jobs=n_jobs, n_windows=2, n_paths=3),
        model=whatif.FaultModel(**given),
        conditions=whatif.Conditions(checkpoint_s=None),
    )


def test_the_window_that_is_drawn_is_the_one_of_its_number():
    """Windows follow each other, and share no job."""
    of, trace = case(), whatif.load(None)
    assert of.jobs == trace.window(0, 16, "gang").jobs
    assert replace(of, number=3).jobs == trace.window(48, 16, "gang").jobs
    assert replace(of, number=3).path.outage(0, 0) != of.path.outage(0, 0)
    with pytest.raises(ConfigError, match="no window of 16 from 160000"):
        _ = replace(of, number=10_000).jobs


def test_the_pictures_are_of_what_the_simulator_played():
    """Makespan, restarts, and slot seconds of all attempts are the outcome's; what is lost lies within them."""
    of = case()
    outcome, placed = of.play("ect"), of.placed("ect")
    assert placed.end_s == outcome.makespan_s
    assert sum(gang.fate == "failed" for gang in placed.gangs) == outcome.n_restarts > 0
    held = sum(len(gang.slots) * (gang.stop - gang.start) for gang in placed.gangs)
    work = sum(job.n_slots * job.work_s for job in of.jobs)
    assert outcome.ettr == pytest.approx(work / held)
    lost = sum(len(gang.slots) * gang.lost_s for gang in placed.gangs)
    assert lost == pytest.approx(outcome.lost_gpu_s), "without checkpoints all of an attempt is lost"
    assert placed.failures
    assert len(placed.slots) == len(placed.rate_hz) == 64
    assert placed.slots[9] == "n1/1"


def test_checkpoints_stand_where_the_work_was_saved():
    """A job of 5 h that saves each 2 h fails after 5 h 30 min: once saved twice, then once more after a restart."""
    how = whatif.Conditions(checkpoint_s=2 * HOUR, checkpoint_cost_s=HOUR, restart_s=HOUR / 2)
    of = whatif.Case(conditions=how, cluster=Cluster.uniform(n_nodes=1, slots_per_node=1))
    of.__dict__["jobs"] = (TraceJob("a", 0.0, 1, 5 * HOUR),)
    of.__dict__["path"] = FaultPath([[(5.5 * HOUR, 6 * HOUR)]], [1e-5])
    first, second = of.placed("first").gangs
    # 0..2 work, ..3 saved, 3..5 work, then it fails while it saves.
    assert [t / HOUR for t in first.saved] == [3.0]
    assert (first.lost_s / HOUR, first.fate) == (2.5, "failed")
    # Restart until 6.5, 2 h of work, saved at 9.5, the last hour until 10.5.
    assert [t / HOUR for t in second.saved] == [9.5]
    assert (second.stop / HOUR, second.number, second.fate) == (10.5, 2, "done")


def test_checkpoints_of_a_gangs_own_stand_where_it_saved():
    """A slot that fails once in 72,000 s, checkpoints of 10 s: one in 1,200 s of work."""
    of = whatif.Case(conditions=whatif.Conditions(checkpoint_s="young"), cluster=Cluster((0,)))
    of.__dict__["jobs"] = (TraceJob("a", 0.0, 1, 3000.0),)
    of.__dict__["path"] = FaultPath([()], [1 / 72_000])
    (gang,) = of.placed("first").gangs
    assert gang.saved == pytest.approx((1210.0, 2420.0))
    assert gang.stop == pytest.approx(3020.0)


def test_gangs_that_slow_each_other_down_are_compared_and_not_drawn():
    """Where each checkpoint stands would have to be guessed."""
    of = replace(case(n_jobs=4), conditions=whatif.Conditions(interference_frac=0.2))
    with pytest.raises(ConfigError, match="interference_frac must be 0"):
        of.placed("ect")
    assert of.compare("ect", ("ect",))[0][0].makespan_s > 0


def test_outages_of_nodes_are_drawn_on_all_their_slots():
    """At one and the same moment."""
    of = replace(case(), model=whatif.FaultModel(mtbf_days=1e6, node_mtbf_days=1.0))
    starts = [{start for slot, start, *_ in of.placed("ect").away if slot // 8 == node} for node in range(8)]
    assert len(starts[0]) >= 1
    assert all(of.path.outage(8 * node, 0) == of.path.outage(8 * node + 7, 0) for node in range(8))
    assert not set.intersection(*starts)


def test_all_planners_are_played_on_the_same_paths():
    """A planner beside itself is 1 without any spread; the hindsight of some is at most one of them."""
    of = case()
    came, awareness, bound = of.compare("ect", ("ect", "random"))
    rows = {each.planner: each for each in came}
    assert list(rows) == ["ect", "random", "healthiest", "best of 8 random"]
    assert (rows["ect"].ratio.mean, rows["ect"].ratio.low, rows["ect"].ratio.high) == (1.0, 1.0, 1.0)
    assert rows["best of 8 random"].ratio.mean <= rows["random"].ratio.mean
    assert [each.planner for each in came if each.hindsight] == ["best of 8 random"]
    random, healthiest = (rows[name].ratio.mean for name in ("random", "healthiest"))
    assert awareness.mean == pytest.approx(random / healthiest)
    assert 0 < bound < min(each.ratio.mean for each in came)


def test_slots_that_never_fail_are_a_null_regime():
    """All planners that ignore nodes come to the same; the badge is due."""
    of = case(mtbf_days=1e6)
    _, awareness, _ = of.compare("healthiest", ())
    assert awareness.null


def test_what_is_seen_of_a_slot_is_near_its_rate():
    """After a long time the interval of nearly every slot holds its own rate; the illest is the one that fails most."""
    of = case(mtbf_days=20.0, lemons=0.01)
    rows = of.health(2000.0)
    inside = sum(each.low_hz <= each.true_hz <= each.high_hz for each in rows)
    assert 52 <= inside <= 64, "90 % of 64 are 57.6"
    illest = max(rows, key=lambda each: each.mean_hz)
    assert illest.true_hz == max(each.true_hz for each in rows)
    assert all(each.low_hz < each.mean_hz < each.high_hz for each in rows)
    # A gamma distribution of shape 1 is an exponential one: its quantiles are -ln(1 - q).
    assert whatif._quantiles(1.0, (0.05, 0.95)) == pytest.approx([0.0513, 2.9957], rel=2e-3)


def test_four_jobs_by_hand_are_played_on_the_faults_of_the_planner():
    """As the planner placed them they take as long; slots that fail often cost restarts; typed in any form."""
    of = case(mtbf_days=20.0)
    jobs = of.jobs[:4]
    first = {each.job: each.slots for each in reversed(of.play("ect", 4).attempts)}
    typed = ", ".join(" ".join(of.slots[slot] for slot in first[job.job]) for job in jobs)
    (hand, ect, best), listed = of.by_hand(typed, "ect")
    assert hand.makespan_s == ect.makespan_s
    assert (hand.who, ect.who, best.who, best.ratio) == ("by hand", "ect", "best of 8 random", 1.0)
    assert len(listed) == 4
    assert of.by_hand("", "ect")[0][0].makespan_s == ect.makespan_s
    direct = min(
        simulate(of.cluster, jobs, f"random:seed={k}", of.path, checkpoint_s=None).makespan_s for k in range(8)
    )
    assert best.makespan_s == direct


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("n0/9", "slots are n0/0 to n7/7, several as n0/0-3, got 'n0/9'"),
        ("slot 3", "slots are n0/0 to n7/7, several as n0/0-3, got 'slot'"),
        ("n0/0-x", "slots are n0/0 to n7/7, several as n0/0-3, got 'n0/0-x'"),
        ("n0/3-1", "slots are n0/0 to n7/7, several as n0/0-3, got 'n0/3-1'"),
        ("n0/0-999999999999", "slots are n0/0 to n7/7, several as n0/0-3, got 'n0/0-999999999999'"),
        ("n0/0 n0/0-6", "job 1 needs 8 different slots, got n0/0 n0/0 n0/1 n0/2 n0/3 n0/4 n0/5 n0/6"),
        (",,,, n0/0", "there are 4 jobs to place, got slots for 5"),
    ],
)
def test_slots_that_cannot_be_are_refused_with_their_names(typed, said):
    """In one line that says how they are called."""
    with pytest.raises(ConfigError) as caught:
        case().by_hand(typed, "ect")
    assert str(caught.value) == said
