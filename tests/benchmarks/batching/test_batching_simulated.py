"""What `python -m benchmarks batching` makes of simulated splits."""

import json
import math

import numpy as np
import pytest

from benchmarks.batching import episodes, simulated, weights
from benchmarks.benches import BENCHES
from benchmarks.efforts import SimulatedBatching
from drlnb.sim.report import Comparison

EFFORT = SimulatedBatching(repeats=2, splits=20)


class Run:
    """An outcome with known figures."""

    def __init__(self, split_s, samples_hz, lost_frac=0.0):
        self.split_s, self.samples_hz, self.lost_frac = split_s, samples_hz, lost_frac


@pytest.fixture
def known(monkeypatch):
    """Two seeds; the best split takes 1 s, equal 3 s, jump-reset 1.05 and 1.07 s, ddqn .7 and .5 of it."""
    figures = {
        "clairvoyant": (Run(1.0, 100.0), Run(1.0, 100.0)),
        "equal": (Run(3.0, 33.0), Run(3.0, 33.0)),
        "jump-reset": (Run(1.05, 90.0, 0.02), Run(1.07, 92.0, 0.04)),
        "ddqn": (Run(0.7 * 1.05, 99.0), Run(0.5 * 1.07, 99.0)),
        "auto": (Run(1.06, 99.0), Run(1.08, 99.0)),
    }
    asked = []

    def compare(planners, traces, run):
        asked.append((tuple(planners), [trace.seed for trace in traces], traces[0].family, run.keywords["gang"].quorum))
        return tuple(Comparison(name, figures.get(name, figures["jump-reset"])) for name in planners)

    monkeypatch.setattr(simulated, "compare", compare)
    return asked


def test_static_rows_stand_beside_equal_and_the_optimum(known):
    """1.06 of 3 s keeps .41; 1.06 over the optimum keeps 1.07."""
    rows = {row.id: row for row in simulated.static(EFFORT)}
    assert (rows["m1-jump-reset"].ratio, rows["m1-jump-reset"].holds) == (pytest.approx(1.06 / 3), True)
    assert rows["m1-jump-reset-optimum"].value == pytest.approx(1.06)
    assert rows["m1-jump-reset-optimum"].holds
    assert rows["m1-ewma"].bar is None
    assert {row.origin for row in rows.values()} == {"simulated"}
    assert [each[1:] for each in known] == [([0, 1], "static", 1.0)]


def test_bursts_wait_for_six(known):
    """In full without a bar; with the quorum time, samples per second and the share lost."""
    rows = {row.id: row for row in simulated.bursts(EFFORT)}
    assert {quorum for *_, quorum in known} == {1.0, 6}
    assert rows["m2-dwell5-jump-reset"].value == pytest.approx(1.06)
    assert (rows["m2-dwell5-jump-reset-samples"].value, rows["m2-dwell5-jump-reset-samples"].holds) == (0.91, True)
    assert (rows["m2-dwell100-jump-reset-samples"].holds) is False
    assert rows["m2-dwell20-jump-reset-lost"].value == pytest.approx(0.03)
    assert rows["m2-dwell20-jump-reset-full"].bar is None
    assert rows["m2-dwell20-ewma"].bar is None


def test_no_harm_binds_auto_alone(known):
    """1.06 / 1.05 and 1.08 / 1.07 keep 1.02."""
    rows = {row.id: row for row in simulated.harm(EFFORT)}
    assert rows["m3-static-auto"].ratio == pytest.approx(1.07 / 1.06)
    assert all(row.holds for row in rows.values() if row.id.endswith("auto"))
    assert all(row.bar is None for row in rows.values() if not row.id.endswith("auto"))
    assert len(rows) == 4 * 3


def test_what_is_foreseen_is_told_with_its_interval(known):
    """Network `ddqn` is 1 / .7 and 1 / .5 times as fast, 1.714 on average: of two seeds nothing is certain.

    Half their difference is .286, the standard error; Student's t of one degree of freedom is 12.71.
    """
    rows = {row.id: row for row in simulated.foreseen(EFFORT)}
    row, low = rows["m4-held-out-ddqn"], rows["m4-held-out-ddqn-low"]
    assert (row.value, row.holds) == (pytest.approx((1 / 0.7 + 2) / 2), True)
    assert low.value == pytest.approx((1 / 0.7 + 2) / 2 - 12.71 * (2 - 1 / 0.7) / 2)
    assert low.holds is False
    unseen = {row.id: row for row in simulated.unseen(EFFORT)}
    assert unseen["m4-beyond-auto"].holds is False
    assert unseen["m4-held-out-12-ddqn"].holds
    assert rows["m4-held-out-seasonal"].bar is None


def test_the_patents_planner_is_shown_without_bars(known, monkeypatch):
    """Time, samples and loss apart, on four kinds of contention; in full beside the optimum alone."""
    rows = {row.id: row for row in simulated.patent(EFFORT)}
    assert len(rows) == 4 * (1 + 3 * 3)
    assert all(row.bar is None and row.origin == "simulated" for row in rows.values())
    assert rows["patent-static-jump-reset"].value == pytest.approx(1.06)
    assert rows["patent-held-out-patent-lost"].value == pytest.approx(0.03)
    assert rows["patent-correlated-ddqn-samples"].value == pytest.approx(0.99)
    assert {quorum for *_, quorum in known} == {1.0, 0.75}


def test_each_reward_has_a_network_of_its_own(known, monkeypatch):
    """Trained under the same seed, played on the same contention."""
    asked = []
    monkeypatch.setattr(simulated.weights, "trained", lambda seed, reward: asked.append((seed, reward)))
    monkeypatch.setattr(simulated, "Network", lambda weights: None)
    monkeypatch.setattr(simulated, "simulate_batching", lambda trace, planner, gang: Run(2.0, 50.0, 0.1))
    rows = {row.id: row for row in simulated.ablation(EFFORT)}
    assert asked == [(0, "objectives"), (0, "goodput"), (0, "per member")]
    assert len(rows) == 4 * 3 * 3
    assert rows["ablation-static-per-member"].value == pytest.approx(2.0)
    assert rows["ablation-held-out-goodput-samples"].value == pytest.approx(0.5)


def test_a_plan_is_timed(monkeypatch):
    """8 members with a bar, 64 without."""
    monkeypatch.setattr(simulated, "_PLANS", 3)
    eight, many = simulated.plan(EFFORT)
    assert (eight.unit, len(eight.samples), eight.origin, eight.bar.at_most) == ("ms", 3, "measured", 0.5)
    assert many.bar is None


def test_training_draws_what_no_bar_is_measured_on():
    """Other seeds, other periods; gangs of 6, 8 and 10."""
    rng = np.random.default_rng(0)
    drawn = [weights.drawn(rng) for _ in range(200)]
    assert min(trace.seed for trace in drawn) >= 1_000_000
    assert {period for trace in drawn for period in trace.periods} == {8, 9, 11, 12, 14, 15, 16}
    assert {len(trace.speeds) for trace in drawn} == {6, 8, 10}
    families = [trace.family for trace in drawn]
    assert families.count("static") == pytest.approx(200 / 7, abs=12)
    assert families.count("correlated") == pytest.approx(400 / 7, abs=18)


def test_a_reward_is_the_price_of_foreseeing_wrongly():
    """Member 0 planned at twice its speed, ln 2 too high at 3 each; member 1 at half: ln 2 too low at .6."""
    trace = weights.Contention(speeds=(100.0, 100.0), noise=0.0, n_splits=10)
    episode = episodes.Foreseen(trace)
    assert episode.seen().shape == (2, 30)
    reward = episode.split(np.array([2.0, 0.5]))
    assert reward == pytest.approx([-3 * math.log(2), -0.6 * math.log(2)])


@pytest.mark.thorough
def test_rows_are_measured_and_written(tmp_path):
    """A real, short run of all groups; the file has the form that every bench shares."""
    path = tmp_path / "batching.json"
    assert BENCHES["batching"].main(["--splits", "40", "--repeats", "1", "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["bench"] == "batching"
    assert all(row["value"] is not None for row in report["rows"])
    assert len({row["id"] for row in report["rows"]}) == len(report["rows"])
