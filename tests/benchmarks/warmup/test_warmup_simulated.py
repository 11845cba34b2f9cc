"""What `python -m benchmarks warmup` makes of simulated rounds."""

import json

import pytest

from benchmarks.benches import BENCHES
from benchmarks.efforts import SimulatedWarmup
from benchmarks.warmup import simulated
from drlnb.sim.report import Comparison


class Run:
    """An outcome with known figures."""

    def __init__(self, wait_s, idle_s):
        self.wait_s, self.idle_s = wait_s, idle_s


@pytest.fixture
def known(monkeypatch):
    """Two seeds; cold waits 2 s, saa .5 s and is idle .5 s, keep is idle 6 s, the others are between."""
    figures = {
        "cold": (2.0, 0.0), "keep": (0.0, 6.0), "patent": (0.7, 0.3), "saa": (0.5, 0.5),
    }  # fmt: skip
    asked = []

    def compare(planners, works, run):
        asked.append((tuple(planners), [work.seed for work in works]))
        return tuple(Comparison(name, (Run(*figures[name]),) * 2) for name in planners)

    monkeypatch.setattr(simulated, "compare", compare)
    return asked


def test_waits_are_shown_as_shares_of_colds(known):
    """.5 / 2 = .25 keeps .30; the patent's rule has no bar."""
    rows = {row.id: row for row in simulated.wait(SimulatedWarmup(rounds=24, repeats=2))}
    assert (rows["w1-saa"].ratio, rows["w1-saa"].holds) == (0.25, True)
    assert (rows["w1-saa-idle"].value, rows["w1-saa-idle"].holds) == (0.5, True)
    assert rows["w1-patent"].bar is None
    assert rows["w1-patent-idle"].bar is None
    assert rows["w1-saa"].binding
    assert {row.origin for row in rows.values()} == {"simulated"}


def test_a_cell_compares_with_the_best_simple_rule(known):
    """At rho 1 patent is best with .7 + .3 = 1: saa's .5 + .5 is as good; at rho 10 keep with 6: 5.5 / 6."""
    rows = {row.id: row for row in simulated.cells(SimulatedWarmup(rounds=24, repeats=2))}
    assert len(rows) == 12
    assert (rows["w2-jitter-spawn-rho1"].ratio, rows["w2-jitter-spawn-rho1"].against[-6:]) == (1.0, "patent")
    assert rows["w2-shifts-zygote-rho10"].ratio == pytest.approx(5.5 / 6)
    assert rows["w2-shifts-zygote-rho10"].against == "the best of cold, keep, patent: keep"
    assert all(row.holds and row.binding for row in rows.values())


def test_a_plan_is_timed(monkeypatch):
    """64 rounds of 8 workers, in milliseconds."""
    monkeypatch.setattr(simulated, "_PLANS", 3)
    (row,) = simulated.plan(SimulatedWarmup())
    assert (row.id, row.unit, len(row.samples), row.origin) == ("w5-plan", "ms", 3, "measured")
    assert row.bar.at_most == 2.0


@pytest.mark.thorough
def test_rows_are_measured_and_written(tmp_path, capsys, monkeypatch):
    """A real, short run of two groups; the file has the form that every bench shares."""
    monkeypatch.setattr(simulated, "SHAPES", ("jitter",))
    path = tmp_path / "warmup.json"
    assert (
        BENCHES["warmup"].main(["--rounds", "20", "--repeats", "1", "--rows", "cells,plan", "--json", str(path)]) == 0
    )
    report = json.loads(path.read_text())
    assert report["bench"] == "warmup"
    assert [row["id"] for row in report["rows"]] == [
        "w2-jitter-spawn-rho1", "w2-jitter-spawn-rho10", "w2-jitter-zygote-rho1", "w2-jitter-zygote-rho10", "w5-plan",
    ]  # fmt: skip
    assert all(row["value"] is not None for row in report["rows"])
    assert "w5-plan" in capsys.readouterr().out
