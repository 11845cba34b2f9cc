"""When slots fail: drawn before, from a stream of each slot's own."""

import itertools
import math
import statistics
from dataclasses import replace

import pytest

from drlnb.planning.placement import Cluster, Pick
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import FaultModel, FaultPath, TraceJob, load_trace, simulate
from drlnb.sim.placement.faults import _either

CLUSTER = Cluster.uniform(n_nodes=8, slots_per_node=8)
DAY_S = 86_400.0


def looked_at(path, n_slots, n):
    """Return the first outages of each slot."""
    return [[path.outage(slot, k) for k in range(n)] for slot in range(n_slots)]


def test_no_planner_moves_a_fault():
    """After two planners the same faults come as on a path that nobody has played, and as on one looked at first."""
    model, window = FaultModel(mtbf_days=5), load_trace().window(n_jobs=20)
    rates = model.rates(CLUSTER, seed=1)
    paths = [model.path(rates, seed=2) for _ in range(4)]
    far = looked_at(paths[3], CLUSTER.n_slots, 40)
    for planner, path in zip(("random", "ect"), paths, strict=False):
        simulate(CLUSTER, window, planner, path, checkpoint_s=None)
    assert [looked_at(path, CLUSTER.n_slots, 40) for path in paths[:3]] == [far] * 3


def test_a_slot_has_a_stream_of_its_own():
    """More slots, or others that never fail, leave its faults as they were; another seed does not."""
    model, hz = FaultModel(), 1e-5
    alone = looked_at(model.path([hz, hz], seed=3), 2, 9)
    assert looked_at(model.path([0.0, hz, hz], seed=3), 2, 9)[1] == alone[1]
    assert looked_at(model.path([hz, hz], seed=4), 2, 9) != alone
    assert alone[0] != alone[1]
    twice = looked_at(model.path([2 * hz], seed=3), 1, 1)[0][0]
    assert twice[0] == pytest.approx(alone[0][0][0] / 2)


def test_a_slot_without_a_rate_never_fails():
    """Nor does one whose outages are told, once they are over."""
    assert FaultModel().path([0.0]).outage(0, 5) == (math.inf, math.inf)
    told = FaultPath([[(1.0, 2.0)]])
    assert [told.outage(0, k) for k in (1, 0)] == [(math.inf, math.inf), (1.0, 2.0)]
    assert told.rate_hz == (0.0,)


def test_slots_are_up_and_away_as_long_as_is_said():
    """Means of 4,000 outages: within 5 % (three standard errors) of 1 / rate and of the time to repair."""
    path, hz = FaultModel(mttr_s=500.0).path([1e-3], seed=5), 1e-3
    outages = [path.outage(0, k) for k in range(4000)]
    back = [0.0, *(end for _, end in outages)]
    assert statistics.fmean(s - b for (s, _), b in zip(outages, back, strict=False)) == pytest.approx(1 / hz, rel=0.05)
    assert statistics.fmean(end - start for start, end in outages) == pytest.approx(500.0, rel=0.05)
    assert all(b <= s <= e for (s, e), b in zip(outages, back, strict=False))


def test_the_mean_rate_is_what_is_said():
    """However far rates spread: over 300 clusters within 3 %."""
    model = FaultModel(mtbf_days=20, spread=0.9, node_spread=0.45)
    rates = [rate for seed in range(300) for rate in model.rates(CLUSTER, seed=seed)]
    assert statistics.fmean(rates) * 20 * DAY_S == pytest.approx(1.0, rel=0.03)
    logs = [math.log(rate * 20 * DAY_S) for rate in rates]
    assert statistics.pstdev(logs) == pytest.approx(math.hypot(0.9, 0.45), rel=0.03)


def test_slots_of_a_node_share_its_factor():
    """Without a spread of their own all slots of a node fail alike, and nodes differ."""
    rates = FaultModel(spread=0.0, node_spread=0.5).rates(CLUSTER, seed=1)
    assert [len({*rates[i : i + 8]}) for i in range(0, 64, 8)] == [1] * 8
    assert len({*rates}) == 8
    assert {*FaultModel(mtbf_days=2, spread=0.0, node_spread=0.0).rates(CLUSTER)} == {1 / (2 * DAY_S)}


def test_lemons_fail_so_many_times_as_often_and_nobody_else_changes():
    """5 % of 64 slots are three; the rates of the others stay, so the mean rises; a small share is at least one."""
    plain, lemons = FaultModel().rates(CLUSTER, seed=6), FaultModel(lemons=0.05).rates(CLUSTER, seed=6)
    times = sorted(b / a for a, b in zip(plain, lemons, strict=True))
    assert times == pytest.approx([1.0] * 61 + [30.0] * 3)
    assert sum(b > a for a, b in zip(plain, FaultModel(lemons=0.001).rates(CLUSTER, seed=6), strict=True)) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mtbf_days": 0}, "mtbf_days must be a number from 0.001 to 1e6, got 0"),
        ({"lemons": 1.5}, "lemons must be a number from 0 to 1, got 1.5"),
        ({"mttr_s": -1}, "mttr_s must be"),
        ({"spread": math.nan}, "spread must be"),
    ],
)
def test_wrong_numbers_are_told(given, words):
    """With name, limits and value."""
    with pytest.raises(ConfigError, match=words):
        FaultModel(**given)


def test_a_seed_is_a_whole_number_from_0_on():
    """What Philox takes as a key."""
    with pytest.raises(ConfigError, match="seed must be a whole number in 0"):
        FaultModel().path([1.0], seed=-1).outage(0, 0)
    with pytest.raises(ConfigError, match="seed must be a whole number in 0"):
        FaultModel().rates(CLUSTER, seed=-1)


# ------------------------------------------------------------------ lives that begin with a repair
def test_without_options_faults_are_what_they_were():
    """To the last bit, for a slot that often fails and one that does not."""
    path = FaultModel(mtbf_days=20).path([1e-5, 3e-6], seed=3)
    assert [path.outage(0, k) for k in (0, 1, 20)] == [
        (187504.96003923382, 188522.76283763527),
        (226524.04562212224, 240506.74955240538),
        (1899904.7225838394, 1899966.663633319),
    ]
    assert path.outage(1, 5) == (3854575.161161245, 3857503.3345200014)
    same = FaultModel(mtbf_days=20, weibull_shape=1.0, node_mtbf_days=None).path([1e-5], seed=3, cluster=Cluster((0,)))
    assert looked_at(same, 1, 21) == looked_at(path, 1, 21)


@pytest.mark.parametrize("shape", [0.7, 1.0, 2.0])
def test_lives_after_a_repair_are_weibulls(shape):
    """Their mean is 1 / rate, and (life / scale) ** shape has mean and deviation 1: of 4,000 within 6 %."""
    path, hz = FaultModel(mttr_s=500.0, weibull_shape=shape).path([1e-3], seed=5), 1e-3
    outages = [path.outage(0, k) for k in range(4000)]
    lives = [after[0] - before[1] for before, after in itertools.pairwise(outages)]
    assert statistics.fmean(lives) == pytest.approx(1 / hz, rel=0.06)
    scale = 1 / hz / math.gamma(1 + 1 / shape)
    powers = [(life / scale) ** shape for life in lives]
    assert statistics.fmean(powers) == pytest.approx(1.0, rel=0.06)
    assert statistics.pstdev(powers) == pytest.approx(1.0, rel=0.06)
    assert statistics.fmean(end - start for start, end in outages) == pytest.approx(500.0, rel=0.06)


@pytest.mark.parametrize("shape", [0.7, 1.0, 3.0])
def test_from_the_beginning_on_slots_fail_as_often_as_is_said(shape):
    """In a fifth of a mean life a fifth of a failure: with a repair at 0 it would be .33 at shape .7, and .006 at 3."""
    path = FaultModel(mttr_s=0.0, weibull_shape=shape).path([1.0] * 3000, seed=7)
    n = sum(1 for slot in range(3000) for k in range(9) if path.outage(slot, k)[0] < 0.2)
    assert n / 3000 == pytest.approx(0.2, abs=0.03)


# ------------------------------------------------------------------ outages of nodes
NODES = Cluster((0, 0, 1, 1))


def test_what_overlaps_is_one_outage():
    """Of a slot's own outages and its node's; an outage within another one adds nothing."""
    own, node = [(1.0, 3.0), (5.0, 9.0), (10.0, 11.0)], [(2.0, 4.0), (6.0, 7.0), (8.0, 9.5), (20.0, 21.0)]
    assert list(_either(iter(own), iter(node))) == [(1.0, 4.0), (5.0, 9.5), (10.0, 11.0), (20.0, 21.0)]
    assert list(_either(iter(()), iter(()))) == []


def test_a_node_takes_all_its_slots_and_no_other():
    """Slots that never fail themselves are away together, each node by a stream of its own, as often as is said."""
    path = FaultModel(node_mtbf_days=2, mttr_s=3600.0).path([0.0] * 4, seed=1, cluster=NODES)
    first, second, third, fourth = looked_at(path, 4, 2000)
    assert (first, third) == (second, fourth)
    assert first[0] != third[0]
    up = [after[0] - before[1] for before, after in itertools.pairwise(first)]
    assert statistics.fmean(up) == pytest.approx(2 * DAY_S, rel=0.08)
    assert statistics.fmean(end - start for start, end in first) == pytest.approx(3600.0, rel=0.08)
    assert path.rate_hz == (1 / (2 * DAY_S),) * 4


def test_a_slot_is_away_when_it_or_its_node_is():
    """At 3,000 moments, beside the paths of each alone; planners are told of the sum of both rates."""
    model, rates = FaultModel(mttr_s=40_000.0, node_mtbf_days=1), [2e-5, 1e-5, 0.0, 3e-5]
    both = model.path(rates, seed=4, cluster=NODES)
    own, nodes = replace(model, node_mtbf_days=None).path(rates, seed=4), model.path([0.0] * 4, seed=4, cluster=NODES)
    assert both.rate_hz == pytest.approx([rate + 1 / DAY_S for rate in rates])

    for slot in range(4):
        ways = [looked_at(path, 4, 40)[slot] for path in (both, own, nodes)]
        assert min(outages[-1][0] for outages in ways) > 20 * DAY_S
        for t in (20 * DAY_S * i / 750 for i in range(750)):
            is_away, *of_each = (any(start <= t < end for start, end in outages) for outages in ways)
            assert is_away == any(of_each), (slot, t)


def test_an_outage_stops_the_gangs_of_its_node_and_no_other():
    """Of two gangs within a node each and one on both the first and the last are broken as node 0 goes."""
    six = Cluster((0, 0, 0, 1, 1, 1))
    path = FaultModel(node_mtbf_days=3, mttr_s=10.0).path([0.0] * 6, seed=2, cluster=six)
    at_0, at_1 = path.outage(0, 0)[0], path.outage(5, 0)[0]
    assert at_0 + 200 < at_1  # else take another seed
    picks = {"a": (0, 1), "b": (3, 4), "c": (2, 5)}

    class Given:
        name = "given"

        def plan(self, view):
            job = view.window[0].job
            return Pick(job, picks.pop(job, tuple(view.free()[:2])))

    jobs = [TraceJob(name, 0.0, 2, at_0 + 100.0) for name in picks]
    outcome = simulate(six, jobs, Given(), path, checkpoint_s=None)
    assert sorted(each.job for each in outcome.attempts if each.ended_s == at_0 and not each.finished) == ["a", "c"]
    assert [each.ended_s for each in outcome.attempts if each.job == "b"] == [at_0 + 100.0]


def test_outages_of_nodes_ask_where_slots_are():
    """In one line that says what to give."""
    with pytest.raises(ConfigError, match=r"node_mtbf_days needs path\(rates, cluster=\.\.\.\) with .* 3 slots"):
        FaultModel(node_mtbf_days=5).path([1.0] * 3)
    with pytest.raises(ConfigError, match="with the cluster of 3 slots"):
        FaultModel(node_mtbf_days=5).path([1.0] * 3, cluster=NODES)
