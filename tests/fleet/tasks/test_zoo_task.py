"""A zoo entry becomes a task; what the file says wins over our tuned settings, what the caller says over the file."""

from pathlib import Path

import pytest

from drlnb.cli.main import main
from drlnb.fleet.tasks.task import Task
from drlnb.records.errors import ConfigError

ZOO = Path(__file__).parents[2] / "rl" / "zoo"
PPO, DQN = ZOO / "ppo.yml", ZOO / "dqn.yml"


def test_the_entry_wins_over_our_tuned_settings():
    """Our CartPole has gae_lambda 0.9, the zoo's 0.8; what the entry leaves open is SB3's default, not ours."""
    spec = Task.from_zoo(PPO, "CartPole-v1").spec
    assert (spec.n_envs, spec.n_collectors, spec.total_timesteps) == (8, 2, 100_000)
    assert spec.hyperparameters["gae_lambda"] == 0.8
    assert spec.hyperparameters["vf_coef"] == 0.5
    assert spec.origin == "entry CartPole-v1 of ppo.yml"
    assert Task("CartPole-v1").spec.hyperparameters["gae_lambda"] == 0.9


def test_what_an_entry_leaves_open_is_sb3s_default(tmp_path):
    """An entry of one line does not inherit the 8 environments, 100k steps and schedules of our own CartPole."""
    file = tmp_path / "ppo.yml"
    file.write_text("CartPole-v1: {gamma: 0.5}\n", encoding="utf-8")
    spec = Task.from_zoo(file, "CartPole-v1").spec
    assert (spec.n_envs, spec.n_collectors, spec.total_timesteps) == (1, 1, 1_000_000)
    assert (spec.hyperparameters["learning_rate"], spec.hyperparameters["n_steps"]) == (3e-4, 2048)


@pytest.mark.parametrize(("file", "env"), [(PPO, "HalfCheetah-v4"), (DQN, "CartPole-v1"), (DQN, "MountainCar-v0")])
def test_an_entry_with_one_environment_gets_one_collector(file, env):
    """One environment cannot be split: one collector, whether the entry says 1 or nothing."""
    spec = Task.from_zoo(file, env).spec
    assert (spec.n_envs, spec.n_collectors) == (1, 1)
    assert spec.algo == file.stem


def test_the_caller_wins_over_the_entry():
    """Seed, budget, environments, hyper-parameters and a name of the caller's; the origin names what was changed."""
    task = Task.from_zoo(PPO, "CartPole-v1", seed=7, total_timesteps=640, n_envs=4, gamma=0.5, name="mine")
    spec = task.spec
    assert (spec.seed, spec.total_timesteps, spec.n_envs, spec.name) == (7, 640, 4, "mine")
    assert spec.hyperparameters["gamma"] == 0.5
    assert spec.origin == "entry CartPole-v1 of ppo.yml (batch_size 256 is the whole round: 128), with gamma"
    assert spec.hyperparameters["batch_size"] == 128


def test_how_a_task_is_evaluated_is_the_callers_choice():
    """20 episodes of 27,000 steps at most where nothing is said; an entry's task may do without."""
    spec = Task.from_zoo(PPO, "CartPole-v1").spec
    assert (spec.eval_episodes, spec.eval_max_steps) == (20, 27_000)
    spec = Task.from_zoo(PPO, "CartPole-v1", eval_episodes=0, eval_max_steps=9).spec
    assert (spec.eval_episodes, spec.eval_max_steps, spec.origin) == (0, 9, "entry CartPole-v1 of ppo.yml")


def test_wrappers_travel_in_the_spec(tmp_path):
    """The entry's wrappers, then its frame stack, then the caller's own; the spec survives the way through JSON."""
    file = tmp_path / "ppo.yml"
    file.write_text("CartPole-v1: {env_wrapper: rl_zoo3.wrappers.MaskVelocityWrapper, frame_stack: 4}\n", "utf-8")
    spec = Task.from_zoo(file, "CartPole-v1", env_wrappers=[{"TimeLimit": {"max_episode_steps": 9}}]).spec
    assert spec.env_wrappers == [
        {"name": "rl_zoo3.wrappers:MaskVelocityWrapper", "kwargs": {}},
        {"name": "FrameStack", "kwargs": {"n_stack": 4}},
        {"name": "TimeLimit", "kwargs": {"max_episode_steps": 9}},
    ]
    assert type(spec).from_plain(spec.to_plain()) == spec


def test_wrong_settings_are_told_with_their_lines(tmp_path):
    """Unknown, unsupported and wrong settings of an entry are one error; each has its line."""
    file = tmp_path / "ppo.yml"
    file.write_text("CartPole-v1:\n  gama: 0.9\n  use_sde: True\n  clip_range: x\n  n_steps: 0\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        Task.from_zoo(file, "CartPole-v1")
    told = "\n".join(caught.value.problems)
    assert "ppo.yml:2: unknown hyper-parameter 'gama'; did you mean 'gamma'?" in told
    assert "ppo.yml:3: hyper-parameter 'use_sde' is not supported" in told or "use_sde" not in told
    assert "ppo.yml:4: clip_range must be a number >= 0" in told
    assert "ppo.yml:5: n_steps must be a whole number >= 1, got 0" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing.yml", "CartPole-v1"], "zoo file nothing.yml cannot be read"),
        ([str(PPO), "Walker-v9"], "has no entry for Walker-v9"),
        ([str(PPO), "CartPole-v1", "--hyper", "gama=1"], "unknown hyper-parameter 'gama'"),
    ],
)
def test_the_command_line_says_what_is_wrong_in_one_line(capsys, tmp_path, words, told):
    """``drlnb train --zoo`` with wrong input: one line on standard error, exit code 2, nothing started."""
    file, *rest = words
    assert main(["train", *rest[:1], "--zoo", file, *rest[1:], "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_command_line_makes_a_task_per_environment_and_seed(monkeypatch):
    """Each environment and seed becomes a task of the file; --algo wins over the file's name."""
    from drlnb.cli import train
    from drlnb.cli.main import build_parser

    args = build_parser().parse_args(["train", "CartPole-v1", "MountainCar-v0", "--zoo", str(DQN), "--seeds", "0-1"])
    specs = [task.spec for task in train._tasks(args)]
    assert [(spec.env, spec.seed, spec.algo) for spec in specs] == [
        ("CartPole-v1", 0, "dqn"),
        ("CartPole-v1", 1, "dqn"),
        ("MountainCar-v0", 0, "dqn"),
        ("MountainCar-v0", 1, "dqn"),
    ]
    assert specs[0].origin == "entry CartPole-v1 of dqn.yml"
