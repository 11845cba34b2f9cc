"""Rows of the learned planners of gangs: which jobs they are shown, and what their bars speak of."""

import json
import math
from dataclasses import replace

import pytest

from benchmarks.efforts import Placement
from benchmarks.placement import learner, weights
from drlnb.sim.placement import load_trace

MAKESPANS = {"random": 125.0, "healthiest": 116.0, "ect": 100.0, "largest+ect": 95.0, "learned": 99.0}


class Run:
    """An outcome with known figures."""

    def __init__(self, makespan_s, lost_gpu_s):
        self.makespan_s, self.lost_gpu_s = makespan_s, lost_gpu_s


@pytest.fixture
def known(monkeypatch):
    """Two windows in which each way has its makespan; return the traces and windows that were asked for."""
    asked = []

    def side_by_side(trace, cluster, model, windows, ways):
        asked.append((trace, cluster, windows))
        return [{way: [Run(MAKESPANS.get(way, 94.0), 2.0 if way == "random" else 1.0)] * 2 for way in ways}] * 2

    monkeypatch.setattr("benchmarks.placement.suite.side_by_side", side_by_side)
    monkeypatch.setattr(learner, "side_by_side", side_by_side)
    return asked


def test_bars_are_on_geometric_means_and_on_each_regime(known):
    """.99 of ect with a bar everywhere; .94 of it with the window; half of the hours of random."""
    rows = {row.id: row for row in learner.learner(Placement())}
    assert rows["r4/learned/ect"].value == pytest.approx(0.99)
    assert rows["r4/learned/ect"].bar.at_most == 1.04
    assert rows["r4/learned+window/ect"].bar is None
    assert {name: (row.bar.at_most, row.holds) for name, row in rows.items() if name.startswith("geo/learned")} == {
        "geo/learned/random": (0.82, True),
        "geo/learned/healthiest": (0.875, True),
        "geo/learned/ect": (1.02, True),
        "geo/learned+window/ect": (0.97, True),
        "geo/learned+window/largest+ect": (1.02, True),
    }
    assert rows["geo/learned+window/ect"].value == pytest.approx(0.94)
    assert rows["geo/lost/learned/random"].value == pytest.approx(0.5)
    assert rows["geo/lost/learned/random"].holds


def test_jobs_that_weights_were_trained_on_are_not_shown(known, tmp_path, monkeypatch):
    """Of the trace of the weights the last 30 %, of another one all."""
    trace = load_trace()
    monkeypatch.setattr(learner, "FOLDER", tmp_path)
    for sha256, n in ((trace.sha256, len(trace.jobs) - int(0.7 * len(trace.jobs))), ("other", len(trace.jobs))):
        (tmp_path / "learned.json").write_text(json.dumps({"trace_sha256": sha256}), encoding="utf-8")
        known.clear()
        rows = {row.id: row for row in learner.learner(Placement())}
        assert rows["learner/trace"].value == n
        assert {len(asked.jobs) for asked, _, _ in known} == {n}


def test_both_parts_of_a_trace_share_no_job():
    """Nor does any later job come before an earlier one."""
    trace = load_trace()
    before, after = weights.parts(trace)
    assert before.jobs + after.jobs == trace.jobs
    assert max(job.submitted_s for job in before.jobs) <= min(job.submitted_s for job in after.jobs)
    assert weights.parts(replace(trace, jobs=trace.jobs[:10]))[0].jobs == trace.jobs[:7]


def test_other_sizes_have_as_many_jobs_as_slots(known):
    """And gangs of half of the slots at most, or of 32."""
    rows = {row.id: row for row in learner.transfer(Placement())}
    assert [(cluster.n_slots, windows.n_jobs, windows.max_gpus) for _, cluster, windows in known] == [
        (16, 16, 8),
        (32, 32, 16),
        (128, 128, 32),
        (256, 256, 32),
    ]
    assert rows["transfer/16/learned/ect"].value == pytest.approx(0.99)
    assert rows["transfer/256/learned+window/largest+ect"].value == pytest.approx(94 / 95)


@pytest.mark.slow
def test_the_patents_network_learns_which_numbers_of_slots_fail_and_nothing_else():
    """Where three of eight slots fail each hour it is near the healthiest; where others do it is worse than chance."""
    rows = {row.id: row.value for row in learner.small(Placement())}
    assert rows["small/own/patent/random"] < 0.85
    assert rows["small/own/patent/random"] < rows["small/own/healthiest/random"] + 0.05
    assert rows["small/permuted/healthiest/random"] < 0.85
    assert rows["small/permuted/patent/random"] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("group", ["patent", "ablation"])
def test_the_patents_rows_are_of_networks_that_are_trained_here(group):
    """A second each, two plays: all rows are there, and none is compared with itself."""
    rows = {row.id: row for row in getattr(learner, group)(Placement(quick=True, seconds=10))}
    names = {
        "patent": ["patent/random", "patent/healthiest", "patent/permuted/random", "healthiest/random"],
        "ablation": [
            f"ablation/{on}{way}/random" for on in ("small/", "") for way in ("t-random", "constant", "no-ring")
        ],
    }
    assert list(rows) == names[group]
    assert all(0.3 < row.value < 3 and row.value != 1 for row in rows.values())
    assert all(math.isfinite(row.interval["high"]) for row in rows.values())
