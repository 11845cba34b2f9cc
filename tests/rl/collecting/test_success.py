"""`info["is_success"]` becomes success rates, in training and in evaluations, under Stable-Baselines3's names."""

from collections import deque

import gymnasium
import numpy as np
import pytest

import drlnb
from drlnb.fleet.callbacks.base import BaseCallback
from drlnb.records.episodes import episode, rolling, success, success_rate
from drlnb.rl import evaluate
from drlnb.rl.checkpoints.files import pack, unpack
from drlnb.runtime.master.work import rounds_of

SMALL = {"n_steps": 6, "batch_size": 6, "n_epochs": 1, "seed": 3, "policy_kwargs": {"net_arch": [4]}}


class Goals(gymnasium.Env):
    """Episodes of two steps, each second one a success, which its last step says; others say so in the step before."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, says=True):
        self._n, self._t, self._says = 0, 0, says

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._n, self._t = self._n + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._t += 1
        good = (self._n % 2 == 0) if self._t == 2 else True
        return np.zeros(1, np.float32), 1.0, self._t == 2, False, {"is_success": np.bool_(good)} if self._says else {}


class Notes(BaseCallback):
    def __init__(self):
        super().__init__()
        self.rounds = []

    def on_round_end(self, metrics):
        self.rounds.append(metrics)


@pytest.mark.parametrize("wrappers", [[], ["FlattenObservation"]], ids=["plain", "wrapped"])
def test_the_rate_is_the_mean_over_the_latest_episodes(wrappers):
    """Three episodes a round: one of the first three succeeds, three of the first six; where none says so, no rate."""
    notes = Notes()
    drlnb.PPO("MlpPolicy", Goals, env_wrappers=wrappers, **SMALL).learn(12, notes, local=True)
    assert [metrics["rollout/success_rate"] for metrics in notes.rounds] == [1 / 3, 0.5]
    silent = Notes()
    model = drlnb.PPO("MlpPolicy", Goals, env_kwargs={"says": False}, env_wrappers=wrappers, **SMALL)
    model.learn(12, silent, local=True)
    assert not [name for metrics in silent.rounds for name in metrics if "success" in name]
    assert evaluate(model, n_episodes=2).success_rate is None


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("make", [drlnb.PPO, drlnb.DQN])
def test_the_window_is_as_long_as_it_is_said(make, window, tmp_path):
    """Six episodes, each second one a success: means, buffers and a saved model hold the latest of them alone."""
    notes = Notes()
    kwargs = SMALL if make is drlnb.PPO else {"train_freq": 6, "seed": 0}
    model = make("MlpPolicy", Goals, stats_window_size=window, **kwargs).learn(12, notes, local=True)
    latest = [True, False, True][-window:]
    assert [metrics["rollout/success_rate"] for metrics in notes.rounds] == [[0.0, 1.0], [1 / 3, 2 / 3]][window > 1]
    assert rounds_of(model.spec)["stats_window_size"] == window  # what a cluster counts by
    again = make.load(model.save(tmp_path / "m"), trust=True)
    for each in (model, again):
        assert (list(each.ep_success_buffer), each.ep_success_buffer.maxlen) == (latest, window)
        assert (len(each.ep_info_buffer), each.ep_info_buffer.maxlen) == (window, window)
    assert make.load(tmp_path / "m", trust=True, stats_window_size=1).ep_success_buffer == deque([True])


@pytest.mark.parametrize("wrappers", [[], ["FlattenObservation"]], ids=["plain", "wrapped"])
def test_evaluations_have_a_rate(wrappers):
    """Four episodes in one environment each begin with a reset: the first is none, or all where each has its own."""
    callback = drlnb.EvalCallback(eval_freq=6, n_eval_episodes=16, verbose=0)
    model = drlnb.PPO("MlpPolicy", Goals, env_wrappers=wrappers, **SMALL).learn(6, callback, local=True)
    assert [evaluation.success_rate for evaluation in callback.evaluations] == [0.5]  # two in each of 8 environments
    outcome = evaluate(model, n_episodes=16)
    assert outcome.successes == (0.0,) * 8 + (1.0,) * 8
    assert outcome.episodes[8] == (2.0, 2, 1.0)


def test_successes_are_in_a_checkpoint():
    """What was judged before a stop is in the mean after it."""
    model = drlnb.PPO("MlpPolicy", Goals, **SMALL).learn(6, local=True)
    trained = unpack(*pack(model.spec, model.trained), "here")[1]
    assert trained.episodes == model.trained.episodes == ((2.0, 2, 0.0), (2.0, 2, 1.0), (2.0, 2, 0.0))


def test_episodes_by_hand():
    """Those without a word count for return and length alone."""
    episodes = [episode([4, 2.0]), episode([2, 4, True]), episode((0, 3, 0.0))]
    assert rolling(episodes) == {"rollout/ep_rew_mean": 2.0, "rollout/ep_len_mean": 3.0, "rollout/success_rate": 0.5}
    assert rolling(episodes[:1]) == {"rollout/ep_rew_mean": 4.0, "rollout/ep_len_mean": 2.0}
    assert (rolling([]), success_rate(episodes[:1])) == ({}, None)
    assert (success({}), success(None), success({"is_success": np.True_})) == ((), (), (1.0,))
