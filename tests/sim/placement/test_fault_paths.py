"""When slots fail: drawn before, from a stream of each slot's own."""

import math
import statistics

import pytest

from drlnb.planning.placement import Cluster
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import FaultModel, FaultPath, load_trace, simulate

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
