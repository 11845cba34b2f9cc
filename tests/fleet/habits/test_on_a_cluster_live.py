"""Habits with collectors in other processes: what counts there, and what names the way."""

import csv
import time
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import drlnb
from drlnb.records.errors import ConfigError

pytestmark = pytest.mark.cluster

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "n_envs": 2, "seed": 0, "policy_kwargs": {"net_arch": [8]}}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Open a fleet for all tests here; it has trained: whatever lives as long as it does is there before each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("runs"))
        with drlnb.Fleet(slots=1) as fleet:
            fleet.train(drlnb.Task("CartPole-v1", total_timesteps=64, **SMALL)).wait(60)
            yield fleet


def made(**of):
    """Return an object of a class that no other process has, as a notebook's cell defines it."""

    class Levels(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, level):
            self.level, self.steps = level, 0

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return np.zeros(3, np.float32), {}

        def step(self, action):
            self.steps += 1
            return np.zeros(3, np.float32), float(self.level), self.steps >= 10, False, {}

    return Levels(**of)


class Monitor(gymnasium.Wrapper):
    """What Stable-Baselines3's is to a script: it has begun a file."""

    def __init__(self, env, path):
        super().__init__(env)
        path.write_text("#{}\nr,l,t\n")
        self.results_writer = SimpleNamespace(file_handler=SimpleNamespace(name=str(path)))
        self.info_keywords, self.t_start = (), time.time()


class Steps(drlnb.BaseCallback):
    """Calls a function at each step."""

    def __init__(self, function):
        super().__init__()
        self.function, self.heard = function, []

    def _on_step(self):
        self.heard.append((self.n_calls, self.num_timesteps))
        self.function(self)


def test_what_a_script_sets_counts_in_other_processes(fleet, tmp_path, capsys):
    """A level between two budgets, and the file of a monitor; the line about steps comes once for each budget."""
    env, path = Monitor(made(level=1), tmp_path / "monitor.csv"), tmp_path / "monitor.csv"
    model = drlnb.PPO("MlpPolicy", env, fleet=fleet, **SMALL)
    callback = Steps(lambda self: None)
    model.learn(64, callback)
    env.unwrapped.level = 5
    model.learn(64, reset_num_timesteps=False)
    rows = [(row["r"], row["l"]) for row in csv.DictReader(path.read_text().splitlines()[1:])]
    assert rows == [("10.0", "10")] * 3 + [("50.0", "10")] * 3
    assert callback.heard == [(i, 2 * i) for i in range(1, 33)]
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("drlnb: steps are made in other processes")]) == 1
    here = drlnb.PPO("MlpPolicy", made(level=1), n_collectors=2, **SMALL)
    here.learn(64, local=True)
    here.set_env(made(level=5))
    assert np.array_equal(model.parameters, here.learn(64, local=True, reset_num_timesteps=False).parameters)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda self: self.locals["infos"], "locals has no 'infos': .* with local=True also infos, rewards, dones"),
        (lambda self: self.training_env, r"training_env is at hand in this process alone: learn\(..., local=True\)"),
        (lambda self: setattr(self.model, "gamma", 0.5), r"rl.gamma cannot change in a running task"),
        (lambda self: setattr(self.model, "env", 3), "set_env"),
    ],
    ids=["infos", "training_env", "gamma", "env"],
)
def test_what_is_not_there_is_told_and_ends_the_training(fleet, function, said):
    """One line that names the way; no bare KeyError."""
    model = drlnb.PPO("MlpPolicy", "CartPole-v1", fleet=fleet, **SMALL)
    with pytest.raises((ConfigError, AttributeError), match=said):
        model.learn(10**6, Steps(function))
    assert model.num_timesteps < 10**6
