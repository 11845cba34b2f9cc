"""Gangs that slow each other down, and gangs with checkpoints of their own: worked by hand, and by walking along."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.placement import Cluster, ClusterView, JobView, Pick, Terms
from drlnb.planning.placement.ect import log_completion_on
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import Conditions, FaultModel, FaultPath, TraceJob, simulate

#: Three nodes of two slots.
SIX = Cluster.uniform(n_nodes=3, slots_per_node=2)


def path(**outages):
    """Return the path on which slots named ``s0``, ``s1`` ... have outages, and the others none."""
    return FaultPath([outages.get(f"s{slot}", ()) for slot in range(6)])


def job(name, n_slots, work_s, submitted_s=0.0):
    return TraceJob(name, submitted_s, n_slots, work_s)


class Given:
    """A planner whose slots are given, job by job; those after a failure are the last free ones."""

    name = "given"

    def __init__(self, **slots):
        self.slots = slots

    def plan(self, view):
        first = view.window[0]
        return Pick(first.job, self.slots.pop(first.job, tuple(view.free()[-first.n_slots :])))


def ends(outcome):
    return {each.job: each.ended_s for each in outcome.attempts}


PLAIN = {"checkpoint_s": None, "restart_s": 10.0, "interference_frac": 0.5}


# ------------------------------------------------------------------ interference
def test_two_gangs_on_the_same_nodes_slow_each_other_down_while_both_are_there():
    """40 s alone, then 30 s for b's 20 s of work at 1.5: a has made 60 of its 100 s, and goes on alone: 110 s."""
    planner = Given(a=(0, 2), b=(1, 3))
    outcome = simulate(SIX, [job("a", 2, 100.0), job("b", 2, 20.0, 40.0)], planner, path(), **PLAIN)
    assert ends(outcome) == {"b": 70.0, "a": 110.0}


def test_each_other_gang_counts_once_however_many_nodes_are_shared():
    """Three gangs meet on one node, some on another, too: each is beside two others, and takes twice its work."""
    wide = Cluster.uniform(n_nodes=3, slots_per_node=3)
    planner = Given(a=(0, 3, 6), b=(1, 4), c=(5, 7))
    jobs = [job("a", 3, 100.0), job("b", 2, 100.0), job("c", 2, 100.0)]
    outcome = simulate(wide, jobs, planner, FaultPath([()] * 9), **PLAIN)
    assert ends(outcome) == {"a": 200.0, "b": 200.0, "c": 200.0}


def test_a_gang_within_a_node_is_slowed_and_slows_nobody():
    """It talks to no other node; gangs on other nodes are not concerned at all."""
    planner = Given(a=(0, 2), b=(1,), c=(4, 5), d=(3,))
    jobs = [job("a", 2, 90.0), job("b", 1, 40.0), job("c", 2, 60.0), job("d", 1, 100.0)]
    assert ends(simulate(SIX, jobs, planner, path(), **PLAIN)) == {"b": 60.0, "c": 60.0, "a": 90.0, "d": 130.0}


def test_distance_and_interference_multiply():
    """Two slots on two nodes where one would hold them, 1.2, beside one such gang, 1.5: 100 s take 180 s."""
    planner = Given(a=(0, 2), b=(1, 3))
    outcome = simulate(SIX, [job("a", 2, 100.0), job("b", 2, 100.0)], planner, path(), locality_frac=0.2, **PLAIN)
    assert ends(outcome) == pytest.approx({"a": 180.0, "b": 180.0})


def test_checkpoints_and_restarts_take_no_longer():
    """Intervals of 20 s: alone 21 s with the checkpoint; from 30 s on the 11 s that lack take 16.5 s, and 1 s."""
    saved = {"checkpoint_s": 20.0, "checkpoint_cost_s": 1.0, "restart_s": 0.0, "interference_frac": 0.5}
    jobs = [job("a", 2, 60.0), job("b", 2, 1000.0, 30.0)]
    for fails_s, kept_s in ((47.4, 20.0), (47.6, 40.0)):
        planner = Given(a=(0, 2), b=(1, 3))
        outcome = simulate(SIX, jobs, planner, path(s0=[(fails_s, 1e6)]), **saved)
        assert outcome.attempts[0].kept_s == kept_s
        assert (outcome.attempts[0].started_s, outcome.attempts[0].ended_s) == (0.0, fails_s)


def test_a_gang_that_breaks_lets_the_others_go_on_faster():
    """At 60 s a goes to a node of its own, where it begins again; b has made 40 of 100 s, and makes the rest alone."""
    planner = Given(a=(0, 2), b=(1, 3))
    jobs = [job("a", 2, 100.0), job("b", 2, 100.0)]
    outcome = simulate(SIX, jobs, planner, path(s0=[(60.0, 1e6)]), **PLAIN)
    assert ends(outcome) == {"b": 120.0, "a": 170.0}
    assert outcome.attempts[0].kept_s == 0.0


@st.composite
def crowds(draw):
    """Draw gangs of two and three on any slots, at several times, on few nodes."""
    n_nodes, size = draw(st.sampled_from([(2, 4), (3, 3), (4, 2)]))
    rows = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(10, 90), st.integers(0, 60)), min_size=1, max_size=6))
    jobs = [job(f"j{i}", n, float(work), float(at)) for i, (n, work, at) in enumerate(rows)]
    return Cluster.uniform(n_nodes, size), jobs


def walked_s(attempt, others, cluster, how, left_s, started):
    """Return the work that an attempt made and the part that was saved, walking along the gangs beside it."""
    nodes = {cluster.node_of[slot] for slot in attempt.slots}
    far = 1 + how["locality_frac"] * (len(nodes) - cluster.least_nodes(len(attempt.slots)))
    beside = []
    for other in others:
        theirs = {cluster.node_of[slot] for slot in other.slots}
        if other is not attempt and len(theirs) > 1 and theirs & nodes:
            beside.append((other.started_s, other.ended_s))
    moments = sorted({attempt.started_s, attempt.ended_s, *[t for span in beside for t in span]})
    lead_s, work_s, saved_s, saving_s = how["restart_s"] * started, 0.0, 0.0, 0.0
    for begins, stops in pairwise(moments):
        if begins < attempt.started_s or stops > attempt.ended_s:
            continue
        n = sum(start <= begins < end for start, end in beside)
        slowdown, time_s = far * (1 + how["interference_frac"] * n), stops - begins
        while time_s > 1e-9:
            if lead_s > 1e-9:
                step = min(lead_s, time_s)
                lead_s -= step
            elif saving_s > 1e-9:
                step = min(saving_s, time_s)
                saving_s -= step
                saved_s = work_s if saving_s <= 1e-9 else saved_s
            else:
                more = min(how["checkpoint_s"] or math.inf, left_s) - (work_s - saved_s)
                step = min(more * slowdown, time_s)
                work_s += step / slowdown
                if how["checkpoint_s"] and step >= more * slowdown - 1e-9 and work_s < left_s - 1e-9:
                    saving_s = how["checkpoint_cost_s"]
                elif step <= 1e-9:
                    break
            time_s -= step
    return work_s, saved_s


@given(crowds(), st.integers(0, 999), st.sampled_from([None, 7.0]), st.sampled_from([0.0, 0.3]))
def test_what_gangs_make_is_what_walking_along_them_gives(crowd, seed, checkpoint_s, locality_frac):
    """Each one's work, step by step through restarts, intervals and checkpoints, at the slowdown of each moment."""
    cluster, jobs = crowd
    how = {"checkpoint_s": checkpoint_s, "checkpoint_cost_s": 1.0, "restart_s": 3.0}
    how |= {"locality_frac": locality_frac, "interference_frac": 0.5}
    model = FaultModel(mtbf_days=0.01, mttr_s=20.0)
    outcome = simulate(cluster, jobs, f"random:seed={seed}", model.path(model.rates(cluster), seed=seed), **how)
    left_s, n = {each.job: each.work_s for each in jobs}, dict.fromkeys([each.job for each in jobs], 0)
    for each in outcome.attempts:
        work_s, saved_s = walked_s(each, outcome.attempts, cluster, how, left_s[each.job], n[each.job] > 0)
        if each.finished:
            assert work_s == pytest.approx(left_s[each.job], abs=1e-6)
        else:
            assert work_s <= left_s[each.job] + 1e-6
            assert each.kept_s == pytest.approx(saved_s, abs=1e-6)
        left_s[each.job] = max(1.0, left_s[each.job] - each.kept_s)
        n[each.job] += 1


def test_the_rule_that_knows_of_interference_gains_where_there_is_some():
    """A wide gang holds a slot of nodes 0 and 1: `interference_aware` gives node 2, `best_fit` the fullest one."""
    cluster = Cluster.uniform(n_nodes=3, slots_per_node=4)
    jobs = [job("a", 6, 100.0), job("b", 2, 100.0, 1.0)]
    outcomes = {
        name: simulate(cluster, jobs, name, FaultPath([()] * 12), **PLAIN)
        for name in ("interference_aware", "best_fit")
    }
    assert ends(outcomes["interference_aware"]) == {"a": 100.0, "b": 101.0}
    assert ends(outcomes["best_fit"]) == {"a": 100.0, "b": 1.0 + 99.0 + 100.0 - 99.0 / 1.5}


# ------------------------------------------------------------------ checkpoints of each gang's own
def test_by_young_a_gang_saves_as_often_as_costs_it_least():
    """Four slots of 1 / 80,000 s, checkpoints of 10 s: one in 632.46 s of work; one slot's, in 1,264.91 s."""
    rates = [1 / 80_000] * 6
    young = {"checkpoint_s": "young", "checkpoint_cost_s": 10.0, "restart_s": 0.0}
    never = FaultPath([()] * 6, rates)
    outcome = simulate(SIX, [job("a", 4, 2000.0), job("b", 1, 2000.0)], "first", never, **young)
    assert ends(outcome) == {"b": 2010.0, "a": 2030.0}
    broken = FaultPath([[(1300.0, 1400.0)], *[()] * 5], rates)
    outcome = simulate(SIX, [job("a", 4, 2000.0)], "first", broken, **young)
    assert outcome.attempts[0].kept_s == pytest.approx(2 * math.sqrt(2 * 10.0 * 20_000))
    assert simulate(SIX, [job("a", 6, 2000.0)], "first", path(), **young).makespan_s == 2000.0  # none ever fails


def test_by_young_candidates_are_weighed_with_their_own_checkpoints():
    """A planner expects what the simulator does: of slots of a fourth of the rate an interval twice as long."""
    view = ClusterView(
        cluster=Cluster((0, 0)),
        state=("free", "free"),
        rate_hz=(4e-5, 1e-5),
        window=(),
        terms=Conditions(checkpoint_s="young", restart_s=0.0).terms,
    )
    asked = JobView(job="a", n_slots=1, work_s=5000.0)
    for slot, rate, every_s in ((0, 4e-5, math.sqrt(5e5)), (1, 1e-5, math.sqrt(2e6))):
        n = math.ceil(5000 / every_s) - 1
        rest_s = 5000 - n * every_s
        expected_s = (n * math.expm1(rate * (every_s + 10)) + math.expm1(rate * rest_s)) / rate
        assert log_completion_on(view, asked, [slot]) == pytest.approx(math.log(expected_s))


def test_checkpoints_that_cost_nothing_have_no_best_interval():
    """They would be made without end."""
    with pytest.raises(ConfigError, match="checkpoint_s=young needs a checkpoint_cost_s above 0"):
        Conditions(checkpoint_s="young", checkpoint_cost_s=0.0)
    with pytest.raises(ConfigError, match="checkpoint_s must be a number from 1 to 1e9, none or young, got 'daly'"):
        Conditions(checkpoint_s="daly")
    assert Conditions(checkpoint_s=60.0).terms == Terms(checkpoint_s=60.0)
