"""Small worlds with known answers: what PPO's value function and policy must come to."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.ppo import PpoLearner
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.envs.make import describe
from drlnb.rl.networks.networks import MlpTowers
from drlnb.rl.pickled import pack


class Treadmill(gymnasium.Env):
    """Pays 1 per step, looks the same always; after 10 steps it is cut, or ends."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ends: bool) -> None:
        self._ends, self._t = ends, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self._t += 1
        over = self._t == 10
        return np.ones(1, np.float32), 1.0, over and self._ends, over and not self._ends, {}


class Chain(gymnasium.Env):
    """Five states in a row: 1 goes right, 0 stays; leaving the last pays 1 and ends.  Cut after 30 steps."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (5,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._at = self._t = 0

    def _obs(self) -> np.ndarray:
        return np.eye(5, dtype=np.float32)[min(self._at, 4)]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._at, self._t = 0, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._at += int(action)
        self._t += 1
        over = self._at == 5
        return self._obs(), float(over), over, not over and self._t == 30, {}


class Bandit(gymnasium.Env):
    """One step; the third of three arms pays most."""

    observation_space = Treadmill.observation_space
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.ones(1, np.float32), (0.2, 0.5, 1.0)[int(action)], True, False, {}


class Empty(Bandit):
    """Every arm pays the same."""

    def step(self, action: Any) -> Any:
        return np.ones(1, np.float32), 1.0, True, False, {}


def trained(make: Any, rounds: int, **hyper: Any) -> PpoLearner:
    env = make()
    settings = {"n_steps": 20, "batch_size": 80, "n_epochs": 10, "policy_kwargs": {"net_arch": []}, **hyper}
    spec = RlWork(
        name="a",
        env="small",
        env_factory=pack(make),
        seed=0,
        n_envs=4,
        total_timesteps=80 * rounds,
        hyperparameters=settings,
        observation_space=describe(env.observation_space),
        action_space=describe(env.action_space),
    )
    learner, collector = make_learner(spec), Collector(spec, env_indices=range(4))
    for number in range(1, rounds + 1):
        learner.begin(number, 80 * number)
        learner.stage(0, collector.collect(learner.published(), version=number, round=number, n_steps=20))
        learner.finish()
    collector.close()
    assert isinstance(learner, PpoLearner)
    return learner


def judged(learner: PpoLearner, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities and values."""
    assert isinstance(learner.networks, MlpTowers)
    with torch.no_grad():
        outputs, values = learner.networks.both(torch.from_numpy(obs))
    return torch.softmax(outputs, 1).numpy(), values.numpy()


@pytest.mark.parametrize(("ends", "low", "high"), [(False, 9.7, 10.3), (True, 3.0, 5.5)])
def test_a_time_limit_is_worth_what_comes_after(ends, low, high):
    """Reward 1, gamma .9: cut after 10 steps the value is 1 / (1 - .9) = 10; ended, the mean of 1 to 6.5 (4.1)."""
    learner = trained(lambda: Treadmill(ends), 25, gamma=0.9, learning_rate="lin_0.2", max_grad_norm=10.0, vf_coef=1.0)
    _, values = judged(learner, np.ones((1, 1), np.float32))
    assert low < values[0] < high


def test_a_chain_of_five_has_its_known_values():
    """Going right always, gamma .8: V = .8^4 .. 1 within .05, and right is chosen with more than .95."""
    learner = trained(Chain, 40, gamma=0.8, learning_rate="lin_0.1", max_grad_norm=5.0, gae_lambda=0.9)
    probabilities, values = judged(learner, np.eye(5, dtype=np.float32))
    assert (probabilities[:, 1] > 0.95).all()
    np.testing.assert_allclose(values, [0.4096, 0.512, 0.64, 0.8, 1.0], atol=0.05)


def test_a_bandit_finds_the_best_arm():
    """After 20 rounds the arm that pays most has more than .9."""
    learner = trained(Bandit, 20, learning_rate=0.05)
    assert judged(learner, np.ones((1, 1), np.float32))[0][0, 2] > 0.9


def test_without_information_the_policy_stays_random():
    """All arms pay the same: after 20 rounds no arm has more than .6 and the entropy is above .9 of log 3 = 1.0986."""
    learner = trained(Empty, 20, learning_rate=0.02, ent_coef=0.01)
    probabilities = judged(learner, np.ones((1, 1), np.float32))[0][0]
    assert -(probabilities * np.log(probabilities)).sum() > 0.9 * 1.0986
