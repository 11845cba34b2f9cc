"""What `drlnb bench returns` makes of trainings, without training."""

import subprocess

import pytest

from drlnb.bench import peers, returns
from drlnb.bench.report import Bar, Row
from drlnb.records.errors import ConfigError, TrainingFailed


def test_the_worst_seed_decides():
    """500, 480 and 470 miss a bar of 475 on the worst, though the median is above."""
    row = Row(id="x", what="x", unit="reward", samples=(500.0, 480.0, 470.0), bar=Bar("worst", at_least=475))
    assert row.holds is False
    assert row.bar.text("reward") == "worst >= 475 reward"
    assert Row(id="x", what="x", samples=(475.0,), bar=Bar("worst", at_least=475)).holds is True


@pytest.mark.parametrize("limits", [{}, {"at_most": 1.0, "at_least": 0.0}])
def test_a_bar_has_one_limit(limits):
    """Neither none nor two."""
    with pytest.raises(ValueError, match="at_most or at_least"):
        Bar("value", **limits)


def test_each_seed_is_a_training_under_the_shipped_settings(monkeypatch, capsys):
    """Three seeds from 5 on; the settings are printed; the sample of a seed is its evaluation."""
    works = []

    def run(work, longest_s):
        assert longest_s > 3600  # a million steps of HalfCheetah on a busy machine
        works.append(work)
        return {"mean_reward": 400.0 + work.seed, "seconds": 1.0}

    monkeypatch.setattr(returns, "run_own", run)
    assert returns.main(["--rows", "ppo-cartpole", "--seed", "5", "--strict"]) == 1
    assert [work.seed for work in works] == [5, 6, 7]
    assert works[0].total_timesteps == 100_000
    said = capsys.readouterr().out
    assert "n_steps 32" in said
    assert "min..max 405" in said
    assert "0 of 1 bars hold; missed: ppo-cartpole" in said


def test_a_tier_chooses_its_rows(monkeypatch):
    """Without --rows the tier ci is measured, and nothing of nightly."""
    names = []
    monkeypatch.setattr(returns, "go_through", lambda report, groups, chosen, effort, path: names.extend(chosen))
    returns.main([])
    assert "ppo-cartpole" in names
    assert "ppo-acrobot" not in names


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--seeds", "0"], "--seeds must be >= 1, got 0"),
        (["--jobs", "0"], "--jobs must be >= 1, got 0"),
        (["--tier", "weekly"], "invalid choice: 'weekly'"),
        (["--rows", "ppo-cartpol"], "did you mean ppo-cartpole"),
    ],
)
def test_wrong_words_are_refused(argv, text):
    """One line with the limit and the value."""
    with pytest.raises(ConfigError, match=text):
        returns.main(argv)


def test_a_training_that_takes_too_long_is_stopped_and_named():
    """The process is killed and waited for; one line says what and after how long."""

    class Endless:
        args = ("python", "-m", "drlnb.bench.own_child")
        did: tuple[str, ...] = ()

        def communicate(self, timeout=None):
            self.did += ("waited",)
            if timeout is not None:
                raise subprocess.TimeoutExpired(self.args, timeout)

        def kill(self):
            self.did += ("killed",)

    process = Endless()
    with pytest.raises(TrainingFailed, match="own_child took more than 7 s and was stopped"):
        peers.answer(process, 7.0)
    assert process.did == ("waited", "killed", "waited")
