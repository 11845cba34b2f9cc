"""What `python -m benchmarks rl` makes of two trainings, without training."""

import json

import psutil
import pytest

from benchmarks.benches import BENCHES
from benchmarks.efforts import Peers
from benchmarks.frame.processes import Trained
from benchmarks.rl import peers
from drlnb.records.errors import MissingExtra, TrainingFailed
from tests.runtime.live import wait_until


def measured(seconds, reward):
    return [Trained(seconds, 1000, collect_s=seconds / 4, update_s=seconds / 2, mean_reward=reward)]


@pytest.fixture
def sides(monkeypatch):
    """Both sides answer at once; the order in which they were asked is noted."""
    asked = []
    monkeypatch.setattr(peers, "require_peer", lambda: None)
    monkeypatch.setattr(peers, "run_own", lambda works: asked.append(("own", *works)) or measured(1.0, 500.0))
    monkeypatch.setattr(peers, "run_peer", lambda works: asked.append(("peer", *works)) or measured(4.0, 490.0))
    return asked


def test_sides_train_in_turn_under_the_same_seeds(sides):
    """Each pair is one training of ours and one of the peer's with equal settings and seed."""
    list(peers.single(Peers(pairs=2, steps=64, seed=7), "cartpole"))
    assert [side for side, _ in sides] == ["own", "peer", "own", "peer"]
    assert [work["seed"] for _, work in sides] == [7, 7, 8, 8]
    assert all(work["total_timesteps"] == 64 and work["gamma"] == 0.98 for _, work in sides)


def test_speed_is_told_per_step_as_a_ratio_to_the_peer(sides):
    """1 s against 4 s over 1000 steps each is 1000 v 4000 us per step, ratio 1/4, below the bar of 1/2."""
    rows = {row.id: row for row in peers.single(Peers(pairs=2), "cartpole")}
    assert (rows["cartpole"].value, rows["cartpole"].baseline) == (1000.0, 4000.0)
    assert rows["cartpole"].pairs == (0.25, 0.25)
    assert rows["cartpole"].holds is True
    assert rows["cartpole-update"].value == 500.0
    assert rows["cartpole-return"].samples == [500.0, 500.0]


def test_returns_that_always_differ_miss_the_bar(sides):
    """Five seeds a side, all of one side above all of the other: p = 2/252, so 1 - p misses .95."""
    row = {row.id: row for row in peers.single(Peers(pairs=5), "cartpole")}["cartpole-return-unlike"]
    assert row.value == pytest.approx(1 - 2 / 252)
    assert row.holds is False


def test_equal_returns_are_not_unlike():
    """Where every return is equal, every relabelling is as far apart: p = 1."""
    assert peers.permutation_p([500.0] * 5, [500.0] * 5) == 1.0


@pytest.mark.parametrize(("mine", "theirs"), [([], [1.0]), ([1.0], []), ([0.0] * 11, [0.0] * 10)])
def test_permutations_need_few_values_on_both_sides(mine, theirs):
    """The message names how many there were."""
    with pytest.raises(ValueError, match=f"got {len(mine)} and {len(theirs)}"):
        peers.permutation_p(mine, theirs)


@pytest.mark.parametrize("name", list(peers.WORKS))
def test_works_are_tasks_of_ours_with_nothing_left_to_defaults(monkeypatch, name):
    """Every setting that the row names is the task's, under the same value."""
    asked = []
    monkeypatch.setattr(peers, "train_all", lambda children, **_: asked.extend(children))
    work = peers.WORKS[name]
    peers.run_own([work | {"seed": 3}])
    spec = asked[0]["spec"]
    named = {key: spec.get(key, spec["hyperparameters"].get(key)) for key in work}
    assert named == work
    assert (spec["seed"], asked[0]["n_eval_episodes"]) == (3, 40)


def test_without_the_peer_the_row_says_what_to_install(monkeypatch):
    """No Stable-Baselines3: one line with the command."""
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'pip install "drlnb\[bench\]"'):
        peers.require_peer()


def test_a_side_that_fails_is_a_row_that_was_not_measured(sides, monkeypatch, tmp_path, capsys):
    """The reason stands in the row and the exit code is 1."""

    def fails(works):
        raise TrainingFailed("sb3_child exited with 1: boom")

    monkeypatch.setattr(peers, "run_peer", fails)
    path = tmp_path / "rows.json"
    assert BENCHES["rl"].main(["--rows", "acrobot", "--json", str(path)]) == 1
    assert "sb3_child exited with 1: boom" in capsys.readouterr().out
    assert json.loads(path.read_text())["rows"][0]["value"] is None


def test_four_compares_with_the_better_of_both_ways(monkeypatch):
    """10 s against 20 s at once and 16 s by two: the binding ratio is 10 / 16."""
    monkeypatch.setattr(peers, "require_peer", lambda: None)
    monkeypatch.setattr(peers, "_whole_system", lambda works: 10.0)
    monkeypatch.setattr(peers, "_processes", lambda works, most: {4: 20.0, 2: 16.0}[most])
    rows = {row.id: row for row in peers.four(Peers(pairs=1))}
    assert rows["four"].ratio == 10 / 16
    assert rows["four"].holds is True
    assert rows["four-at-once"].ratio == 0.5


def test_a_neighbour_counts_beside_both_sides(monkeypatch):
    """Each way has one of its own, which is gone afterwards; what it counted stands beside theirs."""
    seen = []

    def way(seconds):
        def measure(*_):
            (child,) = psutil.Process().children()
            before = child.cpu_times().user
            wait_until(lambda: child.cpu_times().user > before, "the neighbour counts")
            seen.append(child)
            return seconds

        return measure

    monkeypatch.setattr(peers, "require_peer", lambda: None)
    monkeypatch.setattr(peers, "_whole_system", way(10.0))
    monkeypatch.setattr(peers, "_processes", way(16.0))
    rows = {row.id: row for row in peers.four(Peers(pairs=1), "neighbour")}
    assert (rows["neighbour"].ratio, rows["neighbour"].holds) == (10 / 16, True)
    assert "50000 steps" in rows["neighbour"].title
    counted = rows["neighbour-counts-by-two"]
    assert counted.value > 0
    assert counted.ratio > 0
    assert len(seen) == 3
    assert not any(child.is_running() for child in seen)
