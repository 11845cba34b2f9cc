"""What scripts of Stable-Baselines3's documentation do with a model, as they do it."""

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

import drlnb
from drlnb.records.errors import CheckpointError, ConfigError
from tests.fleet.compatibility.worlds import Own

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "policy_kwargs": {"net_arch": [8]}}


def ppo(env="CartPole-v1", **given):
    return drlnb.PPO("MlpPolicy", env, **{**SMALL, **given})


# -------------------------------------------------------------------- environments that are stepped by hand
def test_a_model_gives_the_same_environments_each_time():
    """They go on where they stand; others come once these are closed, or the model has others."""
    model = ppo(Own())
    assert model.env is model.get_env()
    model.get_env().reset()
    model.env.step([0])
    assert model.get_env().envs[0].unwrapped.steps == 1
    first = model.get_env()
    model.learn(16, local=True)
    assert model.get_env() is first
    model.set_env(Own(level=3))
    second = model.get_env()
    assert second.get_attr("level") == [3]
    second.close()
    assert model.get_env() is not second
    model.n_envs = 2
    assert model.get_env().num_envs == 2


def test_a_model_with_environments_in_hand_is_pickled():
    """They are no part of it."""
    env = Own()
    model = ppo(env)
    model.predict(model.env.reset())
    model.env.envs[0].lock = threading.Lock()
    assert pickle.loads(pickle.dumps(model)).predict(np.zeros(3))[1] is None
    env.lock = threading.Lock()
    assert pickle.loads(pickle.dumps(model)).seed == 0


def test_a_copy_that_a_callback_makes_has_what_was_learnt_by_then():
    """The training itself stays with the model."""
    copies = []

    class Copying(drlnb.BaseCallback):
        def _on_rollout_end(self):
            copies.append(copy.deepcopy(self.model))

    model = ppo().learn(48, Copying(), local=True)
    assert [each.num_timesteps for each in copies] == [16, 32, 48]
    assert np.array_equal(copies[-1].parameters, model.parameters)
    assert not np.array_equal(copies[0].parameters, model.parameters)
    assert copies[0].learn(16, local=True, reset_num_timesteps=False).num_timesteps == 32


def test_what_cannot_be_copied_any_more_trains_as_it_was(capsys):
    """As after a window was opened; the line says so."""
    env = Own()
    model = ppo(env)
    env.level, env.window = 7, threading.Lock()
    capsys.readouterr()
    model.learn(16, local=True)
    assert capsys.readouterr().err == (
        "drlnb: Own cannot be copied any more, so it trains as it was when the model was given it\n"
    )
    assert model.get_env().get_attr("level") == [0]


# -------------------------------------------------------------------- load
def test_an_environment_that_is_given_at_load_needs_no_trust(tmp_path):
    """The saved one's code is not run: it is left out. Without one the line names both ways."""
    path = ppo(Own(level=1)).learn(16, local=True).save(tmp_path / "m")
    loaded = drlnb.PPO.load(path, env=Own(level=2))
    assert loaded.get_env().get_attr("level") == [2]
    assert loaded.learn(16, local=True, reset_num_timesteps=False).num_timesteps == 32
    with pytest.raises(CheckpointError, match=r"trust=True if you trust them, or give the environment, env=\.\.\."):
        drlnb.PPO.load(path)


class Net(torch.nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.actor, self.value = torch.nn.Linear(3, 2), torch.nn.Linear(3, 1)

    def critic(self, obs):
        return self.value(obs).squeeze(1)


def test_a_network_of_its_authors_needs_trust_all_the_same(tmp_path):
    """An environment does not make its code the caller's."""
    path = drlnb.PPO(Net, Own(), n_steps=16, batch_size=16).save(tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"its policy came from its author's own code.*if you trust them$"):
        drlnb.PPO.load(path, env=Own())


# -------------------------------------------------------------------- export
class Exported(torch.nn.Module):
    """What scripts for Stable-Baselines3 put around a policy."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def forward(self, observation):
        return self.policy(observation, deterministic=True)


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_a_policy_is_exported_by_the_usual_wrapper(env):
    """Actions, values and log-probabilities come out of the traced program as of the policy."""
    model = ppo(env)
    obs = torch.zeros(2, *model.observation_space.shape)
    with torch.no_grad():
        traced = torch.export.export(Exported(model.policy), (obs,)).module()
        for found, wanted in zip(traced(obs), model.policy(obs, deterministic=True), strict=True):
            torch.testing.assert_close(found, wanted)


# -------------------------------------------------------------------- loggers
class Theirs:
    """What `configure(folder, formats)` returns."""

    def __init__(self):
        self.now, self.dumped, self.lock = {}, [], threading.Lock()

    def record(self, key, value, exclude=None):
        self.now[key] = value

    def record_mean(self, key, value, exclude=None):
        self.now[key] = value

    def dump(self, step=0):
        self.dumped.append((step, dict(self.now)))
        self.now.clear()


class Recording(drlnb.BaseCallback):
    def _on_step(self):
        self.logger.record("mine/last", self.n_calls)
        self.logger.record_mean("mine/mean", 1.0)
        self.logger.record("mine/figure", self, exclude="stdout")
        return True


def test_a_logger_of_theirs_gets_everything(capsys, tmp_path):
    """Scalars of rounds and of evaluations, what callbacks record, objects too; no table is printed beside it."""
    theirs, model = Theirs(), ppo(verbose=1, tensorboard_log=tmp_path / "events")
    model.set_logger(theirs)
    recording = Recording()
    model.learn(64, [recording, drlnb.EvalCallback(eval_freq=16, n_eval_episodes=1, verbose=0)], local=True)
    assert [step for step, _ in theirs.dumped] == [16, 32, 48, 64]
    assert [scalars["mine/last"] for _, scalars in theirs.dumped] == [16, 32, 48, 64]
    assert all(scalars["time/total_timesteps"] == step for step, scalars in theirs.dumped)
    assert theirs.dumped[0][1]["mine/figure"] is recording
    assert "eval/mean_reward" in theirs.dumped[1][1]
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "events").exists()
    assert pickle.loads(pickle.dumps(model)).logger.theirs is None


def test_it_dumps_as_often_as_tables_are_printed():
    """Every second round, or never."""
    for interval, steps in ((2, [32, 64]), (None, [])):
        theirs, model = Theirs(), ppo()
        model.set_logger(theirs)
        model.learn(64, log_interval=interval, local=True)
        assert [step for step, _ in theirs.dumped] == steps


def test_what_is_no_logger():
    """One line."""
    with pytest.raises(ConfigError, match=r"logger must be what Stable-Baselines3's configure\(...\) returns, got 3"):
        ppo().set_logger(3)


def test_what_is_no_number_is_left_out_with_a_word(capsys):
    """Once for each name."""
    ppo().learn(32, Recording(), local=True)
    said = [line for line in capsys.readouterr().err.splitlines() if "record" in line]
    assert said == ["drlnb: logger.record('mine/figure', ...) got no number but a Recording: it is written nowhere"]


# -------------------------------------------------------------------- pruning
class Pruning(drlnb.EvalCallback):
    """What tuners of hyper-parameters derive: it reports what its base has just evaluated."""

    def __init__(self, *args, stop_at=99, **given):
        super().__init__(*args, **given)
        self.reported, self.stop_at, self.is_pruned = [], stop_at, False

    def _on_step(self):
        if self.eval_freq > 0 and self.n_calls % self.eval_freq == 0:
            super()._on_step()
            self.reported.append((self.n_calls, self.last_mean_reward))
            if len(self.reported) == self.stop_at:
                self.is_pruned = True
                return False
        return True


@pytest.mark.parametrize("together", [False, True])
def test_a_tuner_reports_what_was_evaluated(together):
    """Each evaluation once, after it was played: the first one was reported as -inf."""
    pruning = Pruning(Own(), n_eval_episodes=2, eval_freq=32, verbose=0)
    ppo(Own()).learn(96, [pruning, Recording()] if together else pruning, local=True)
    assert pruning.reported == [(32, 10.0), (64, 10.0), (96, 10.0)]


def test_a_tuner_prunes():
    """False ends the training after the round in which it was said."""
    pruning = Pruning(Own(), n_eval_episodes=2, eval_freq=32, verbose=0, stop_at=2)
    assert ppo(Own()).learn(960, pruning, local=True).num_timesteps == 64
    assert pruning.is_pruned
