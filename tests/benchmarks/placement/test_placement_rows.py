"""What `python -m benchmarks placement` makes of simulated windows."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.benches import BENCHES
from benchmarks.efforts import Placement
from benchmarks.placement import exact, suite
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import load_trace

#: Makespans of each way: hindsight takes the least of the random ones.
MAKESPANS = {"healthiest": 100.0, "random": 107.0, "ect": 90.0, "largest+ect": 81.0}


class Run:
    """An outcome with known figures."""

    def __init__(self, makespan_s, lost_gpu_s):
        self.makespan_s, self.lost_gpu_s = makespan_s, lost_gpu_s


@pytest.fixture
def known(monkeypatch):
    """Two windows of two paths in which each way has its makespan, twice as long in the second; ect loses 1 of 4."""

    def run(way, times):
        return [Run(times * MAKESPANS.get(way, 95.0), 1.0 if way == "ect" else 4.0)] * 2

    asked = []

    def side_by_side(trace, cluster, model, windows, ways):
        asked.append((cluster, model, windows, ways))
        return [{way: run(way, times) for way in ways} for times in (1.0, 2.0)]

    monkeypatch.setattr(suite, "side_by_side", side_by_side)
    return asked


def test_ratios_are_to_the_healthiest(known):
    """1.07 for random, .9 for ect and largest + ect over it; no bar on another trace than the one counted on."""
    rows = {row.id: row for row in suite.baselines(Placement())}
    assert rows["r3/random/healthiest"].value == pytest.approx(1.07)
    assert rows["r3/ect/healthiest"].value == pytest.approx(0.9)
    assert rows["r8/largest+ect/ect"].value == pytest.approx(0.9)
    assert rows["r3/best_of_random/healthiest"].value == pytest.approx(0.95)
    assert rows["geo/largest+ect/healthiest"].value == pytest.approx(0.81)
    assert rows["geo/ect/random"].value == pytest.approx(90 / 107)
    assert rows["r7/lost/ect/random"].value == rows["geo/lost/ect/random"].value == pytest.approx(0.25)
    assert all(row.bar is None for row in rows.values())
    assert rows["r3/ect/healthiest"].interval["n"] == 2
    assert rows["geo/ect/healthiest"].interval["low"] == pytest.approx(0.9)
    assert {row.origin for row in rows.values()} == {"simulated"}


def test_bars_stand_on_the_trace_that_was_counted(known, monkeypatch):
    """Random in r3 is 1.07 +- .03, ect 1.00: .9 is missed; what is not binding is shown as well."""
    monkeypatch.setattr(suite, "_DEVELOPMENT", load_trace().sha256)
    rows = {row.id: row for row in suite.baselines(Placement())}
    holds = {name: rows[f"{name}/healthiest"].holds for name in ("r3/random", "r3/ect", "r6/ect")}
    assert holds == {"r3/random": True, "r3/ect": False, "r6/ect": True}
    assert {name for name, row in rows.items() if row.binding and row.bar} == {
        f"{name}/healthiest" for name in ("r3/random", "r3/ect", "r4/ect", "r7/ect", "r7/random")
    }
    assert rows["r3/random/healthiest"].bar.text("x") == "value >= 1.04 x and <= 1.1 x"
    assert rows["r6/interference_aware/healthiest"].bar is None
    assert all(row.bar is None for row in suite.baselines(Placement(quick=True)))


def test_regimes_are_played_as_they_are_named(known):
    """R7: gangs, 20 slot-days, no checkpoints, .05, lemons; eight nodes of eight slots; rates spread by slot alone."""
    list(suite.baselines(Placement(windows=7, paths=3, seed=5)))
    cluster, model, windows, ways = known[6]
    assert (cluster.n_slots, len({*cluster.node_of})) == (64, 8)
    assert (model.mtbf_days, model.spread, model.node_spread, model.lemons, model.mttr_s) == (20, 0.9, 0.0, 0.05, 7200)
    assert (windows.family, windows.n_windows, windows.n_paths, windows.seed) == ("gang", 7, 3, 5)
    assert ways["largest+ect"] == ("ect", {"checkpoint_s": None, "locality_frac": 0.05, "order": "largest"})
    assert [windows.family for *_, windows, _ in known] == ["gang"] * 7 + ["mixed", "gang"]
    assert (Placement(quick=True).of("gang").n_windows, Placement(quick=True).of("gang").n_paths) == (12, 2)


def test_the_null_row_is_in_per_cent(known):
    """7 % is not nothing; 60 slot-days have no bar."""
    rows = {row.id: row for row in suite.null(Placement())}
    assert rows["null/337/random/healthiest"].value == pytest.approx(7.0)
    assert rows["null/337/random/healthiest"].holds is False
    assert rows["null/337/random/healthiest"].bar.text("%") == "value >= -0.5 % and <= 0.5 %"
    assert rows["null/60/random/healthiest"].bar is None


def test_the_trace_is_a_row(known):
    """With its digest and what was dropped; families that it does not have are said to be played as all."""
    rows = {row.id: row for row in suite.baselines(Placement())}
    assert load_trace().sha256 in rows["trace"].title
    assert rows["trace"].value == 2719
    assert "family gang, played as gang: mean gang 5" in rows["trace/gang"].title


@pytest.mark.slow
def test_what_is_exact_holds():
    """A tenth of all runs: within the closed form, nothing moved, no pick that does not fit, no schedule beaten."""
    rows = {row.id: row for row in exact.exact(Placement(quick=True, windows=2))}
    assert [name for name, row in rows.items() if row.holds is False] == []
    assert sum(row.bar is not None for row in rows.values()) == 9
    assert all(row.measured for row in rows.values())


def test_plans_are_timed():
    """With as many samples as plans."""
    rows = list(exact.speed(Placement(quick=True)))
    assert [(len(row.samples), row.unit, row.origin, row.bar.at_most) for row in rows] == [
        (40, "ms", "measured", 1.0),
        (40, "ms", "measured", 10.0),
    ]


def least_makespan(jobs, n_slots):
    """Return the least makespan of jobs of whole seconds by trying all starts."""
    horizon = sum(work for _, work in jobs)
    best = math.inf
    for starts in product(*[range(horizon - work + 1) for _, work in jobs]):
        ends = max(start + work for start, (_, work) in zip(starts, jobs, strict=True))
        if ends < best and all(
            sum(n for start, (n, work) in zip(starts, jobs, strict=True) if start <= t < start + work) <= n_slots
            for t in range(ends)
        ):
            best = ends
    return best


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4))
def test_the_optimum_is_the_least_of_all_schedules(jobs):
    """Against all starts at whole seconds, on three slots."""
    assert exact.optimum([(n, float(work)) for n, work in jobs], 3) == least_makespan(jobs, 3)


def test_an_optimum_that_the_longest_first_misses():
    """3 + 3 beside 2 + 2 + 2 on two slots, where the longest first takes 7 s; 3 beside 1 slots, then 2 beside 2."""
    assert exact.optimum([(1, 3.0), (1, 3.0), (1, 2.0), (1, 2.0), (1, 2.0)], 2) == 6.0
    assert exact.optimum([(3, 2.0), (2, 3.0), (2, 3.0), (1, 2.0)], 4) == 5.0
    with pytest.raises(ValueError, match="needs 5 of 4"):
        exact.optimum([(5, 1.0), (1, 1.0)], 4)


def test_the_bench_is_declared():
    """Any text names a trace; numbers have their limits."""
    bench = BENCHES["placement"]
    trained = ["patent", "ablation", "transfer"]
    assert list(bench.groups) == ["exact", "baselines", "null", "learner", "small", *trained, "speed"]
    assert [name for name in bench.groups if name not in Placement().names] == trained
    with pytest.raises(ConfigError, match="--windows must be >= 2, got 1"):
        bench.main(["--windows", "1"])


def test_a_trace_that_cannot_be_read_is_told(tmp_path, capsys):
    """In the rows that need it; the bench ends with 1."""
    assert BENCHES["placement"].main(["--rows", "null", "--trace", str(tmp_path / "none.csv")]) == 1
    assert "none.csv cannot be read" in capsys.readouterr().out
