"""What `python -m benchmarks returns` makes of trainings, without training."""

from benchmarks.benches import BENCHES
from benchmarks.frame.processes import Trained
from benchmarks.rl import returns


def test_each_seed_is_a_training_under_the_shipped_settings(monkeypatch, capsys):
    """Three seeds from 5 on; the settings are printed; the sample of a seed is its evaluation."""
    asked = []

    def run(works, at_once, longest_s):
        assert longest_s > 3600  # a million steps of HalfCheetah on a busy machine
        assert at_once == 2
        asked.extend(works)
        return [Trained(1.0, mean_reward=400.0 + work["seed"]) for work in works]

    monkeypatch.setattr(returns, "run_own", run)
    assert BENCHES["returns"].main(["--rows", "ppo-cartpole", "--seed", "5", "--jobs", "2", "--strict"]) == 1
    assert [work["seed"] for work in asked] == [5, 6, 7]
    assert asked[0]["total_timesteps"] == 100_000
    printed = capsys.readouterr().out
    assert "n_steps 32" in printed
    assert "min..max 405" in printed
    assert "0 of 1 bars hold; missed: ppo-cartpole" in printed
