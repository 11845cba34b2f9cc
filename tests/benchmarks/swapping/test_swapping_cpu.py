"""The rows of ``python -m benchmarks swapping`` on the CPU: what they count, on networks that cost little."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.efforts import Swapping
from benchmarks.swapping import contest, cpu, subset
from benchmarks.swapping.ways import Way
from drlnb.runtime.swapping.tiers.base import Held, Meter

#: Where `benchmarks` is found by a process that starts elsewhere.
HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
EFFORT = Swapping(repeats=1)
CODE = """
import json
from benchmarks.swapping import cpu
from benchmarks.efforts import Swapping
if __name__ == "__main__":
    rows = list(cpu.memory(Swapping(repeats=1)))
    print(json.dumps([[row.id, row.samples, row.baseline_samples, row.holds] for row in rows]))
"""


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:swapping. the budget of")
def test_a_course_on_a_part_of_the_set_goes_on_where_it_was(monkeypatch):
    """Four fifths of the trials see four fifths of the batches, a file holds what they taught, then all come."""
    made, seen = [], []

    class Seen(Way):
        def __init__(self, *given, **more):
            super().__init__(*given, **more)
            made.append(self)

        def steps(self, x, n_steps):
            seen.append((made.index(self), x.data_ptr()))
            return super().steps(x, n_steps)

    monkeypatch.setattr(subset, "Way", Seen)
    monkeypatch.setattr(subset, "_TRIALS", 5)
    batches = subset.samples("nature_cnn", 10).split(1)
    monkeypatch.setattr(subset, "_SAMPLES", 1)
    course_s, last = subset._course(batches, 8)
    of = {i: [each for way, each in seen if way == i] for i in (0, 1)}
    assert set(of[0]) == {each.data_ptr() for each in batches[:8]}
    assert (len(of[0]), len(of[1])) == (4 + 16, 4 + 12)
    assert set(of[1]) == {each.data_ptr() for each in batches}
    first, then = (way.swapper._chooser._machine.state.learned for way in made)
    assert json.loads(then)["n_trials"] >= json.loads(first)["n_trials"] > 0
    assert course_s > 0
    assert len(last) == 12


def test_squeezed_bytes_are_counted_on_the_traces():
    """All three bars are kept."""
    rows = {row.id: row for row in cpu.squeezed(EFFORT)}
    ratios = {name: round(row.ratio, 2) for name, row in rows.items()}
    assert ratios == {"squeezed-alexnet_224": 0.46, "squeezed-vgg16_224": 0.57, "squeezed-impala": 0.53}
    assert [row.holds for row in rows.values()] == [True, True, True]


def test_gradients_are_compared_bit_by_bit(monkeypatch):
    """A network whose plans change nothing has no tensor that differs; one whose steps drift has."""
    monkeypatch.setattr(cpu, "_BATCHES", {"nature_cnn": 1})
    monkeypatch.setattr(cpu, "_PLANNERS", ("all", "greedy:actions=swap"))
    (row,) = cpu.gradients(EFFORT)
    assert (row.value, row.holds) == (0.0, True)

    class Drifting(Way):
        def steps(self, x, n_steps):
            took = super().steps(x, n_steps)
            next(self.net.parameters()).grad.add_(1e-3 * hasattr(self, "swapper"))
            return took

    monkeypatch.setattr(cpu, "Way", Drifting)
    (row,) = cpu.gradients(EFFORT)
    assert (row.value, row.holds) == (2.0, False)


def test_a_tier_that_waits_copies_at_once():
    """Stored is written, asked for is read: nothing is under way when the call returns."""
    tiers = []
    tier = cpu._tier(tiers, True, Meter())
    memory = torch.arange(4096, dtype=torch.uint8)
    ticket = tier.store(Held(tier.meter, memory.untyped_storage()))
    assert ticket.copy_s > 0.0
    ticket.load()
    assert tier.back.s_per_byte > 0.0
    assert bytes(ticket.wait().storage) == bytes(memory.untyped_storage())
    del ticket
    tier.close()
    assert tiers == [tier]


def test_naive_hooks_copy_what_storages_share(monkeypatch):
    """A ReLU's result is saved by itself and by the layer behind it: naive hooks copy it twice."""
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    monkeypatch.setattr(cpu, "made", lambda name: net)
    monkeypatch.setattr(cpu, "samples", lambda name, n: torch.randn(32, 64))
    monkeypatch.setattr(cpu, "_BATCHES", {"small": 32})
    _, row = cpu.hooks(EFFORT)
    result_bytes = 32 * 64 * 4
    assert row.samples == (2 * result_bytes,), "the ReLU's result, and what the loss squares; the bench has the input"
    assert row.baseline_samples == (4 * result_bytes,)


def test_what_hooks_cost_is_the_middle_of_pairs_whose_order_changes(monkeypatch):
    """Whatever comes second takes as long again: of steps that cost the same, half of the pairs say 2, half 1/2."""
    order, now_s = [], [0.0]

    class Played:
        def __init__(self, name):
            self.name = name

        def steps(self, x, n_steps):
            order.append(self.name)
            now_s[0] += 1.0 + (len(order) % 2 == 0)

    monkeypatch.setattr(cpu.time, "process_time", lambda: now_s[0])
    ways = {name: Played(name) for name in ("none", "plain")}
    shares = [cpu._relative_s(ways, torch.empty(0), turned) for turned in (False, True)]
    assert order == ["none", "plain", "plain", "none"]
    assert shares == [0.5, 2.0]


def test_the_middle_turn_of_a_prediction_counts(monkeypatch):
    """Six turns of each case: one that took twice as long says nothing; what is always 20 % off is the worst."""
    turns = {"impala": iter([0.01, 1.0, -0.01, 0.03, 0.0, 0.02]), "nature_cnn": iter([-0.2] * 6)}
    monkeypatch.setattr(cpu, "_PREDICTED", [("impala", 1), ("nature_cnn", 2)])
    monkeypatch.setattr(cpu, "_PREDICTING", ["hybrid"])
    monkeypatch.setattr(cpu, "_errors", lambda name, n, planner: (next(turns[name]), 0.0))
    rows = {row.id: row for row in cpu.predicted(Swapping())}
    assert rows["predicted-step"].samples == pytest.approx([0.015, 0.2])
    assert rows["predicted-step-worst"].value == pytest.approx(0.2)
    assert [rows[name].holds for name in ("predicted-step", "predicted-step-worst", "predicted-peak-worst")] == [
        True, False, True,
    ]  # fmt: skip


def test_a_prediction_is_of_the_plan_that_is_followed():
    """Of a policy's first steps by a planner: the peak is exact, and the seconds are those of real steps."""
    off_s, off_bytes = cpu._errors("nature_cnn", 4, "capuchin")
    assert off_bytes == 0.0
    assert -1.0 < off_s < 50.0


@pytest.mark.slow
def test_anonymous_memory_is_that_of_a_process_each(tmp_path):
    """Real processes: two rows, of which the first one compares bytes that left with bytes that were swapped."""
    (tmp_path / "rows.py").write_text(CODE, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "rows.py"], cwd=tmp_path, env=HERE, capture_output=True, timeout=300, check=True
    )
    rss, counted = json.loads(ran.stdout)
    assert rss[0] == "rss"
    assert rss[1][0] > 0
    assert rss[2][0] > 10 << 20
    assert counted[1][0] < 0.5


# ------------------------------------------------------------------ planners
def test_trials_are_counted_from_one():
    """A sweep meets the second set of types second; a walk that never meets it counts as all its trials."""
    costs = contest.np.array([3.0, 1.0, 2.0, 4.0])
    assert contest.first_met(contest.gray_sweep(2), costs) == 2.0
    assert contest.first_met([0, 2, 3], costs) == 300.0
    assert contest.first_met([1], costs) == 1.0


def test_rows_of_the_table_stand_beside_what_knows_nothing(monkeypatch):
    """One network: two counts of seeds, and trials beside a walk and a sweep."""
    monkeypatch.setattr(contest, "_TABLES", {"impala": 1.6})
    monkeypatch.setattr(contest, "_SEEDS", 20)
    monkeypatch.setattr(contest, "_TRIALS", 60)
    best, chosen, walk, sweep = contest.table(EFFORT)
    assert best.value >= chosen.value
    assert [row.against for row in (walk, sweep)] == ["random toggling", "a Gray-code sweep"]
    assert len(walk.pairs) == len(sweep.pairs) == 20
    assert {row.origin for row in (best, chosen, walk, sweep)} == {"simulated"}


def test_the_search_stands_beside_every_other_planner(monkeypatch):
    """On a small network: no slower than the best of them, and near all plans."""
    monkeypatch.setattr(contest, "CONTESTS", {"nature_cnn": (1.2,)})
    one, oracle = contest.contest(EFFORT)
    assert (one.holds, oracle.holds) == (True, True)
    assert "nature_cnn" in oracle.title
    assert len(oracle.samples) == 3
