"""DQN finds what is known: a chain by hand in seconds, CartPole and MountainCar in minutes."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_actor
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.collecting.evaluation import evaluate_parameters as evaluate
from drlnb.rl.envs.make import probe
from drlnb.rl.local.train import train_local

N_STATES, GAMMA = 5, 0.9


class Chain(gymnasium.Env):
    """Five states in a row; right from the last but one ends with reward 1, 12 steps are the limit."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (N_STATES,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._state, self._t = int(self.np_random.integers(N_STATES - 1)), 0
        return np.eye(N_STATES, dtype=np.float32)[self._state], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._state = max(self._state + (1 if action == 1 else -1), 0)
        self._t += 1
        end = self._state == N_STATES - 1
        return np.eye(N_STATES, dtype=np.float32)[self._state], float(end), end, self._t >= 12, {}


@pytest.fixture(autouse=True)
def _prepared() -> Iterator[None]:
    gymnasium.register("rl/Chain-v0", entry_point=Chain)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    gymnasium.registry.pop("rl/Chain-v0")


@pytest.mark.thorough
@pytest.mark.parametrize("double_q", [False, True])
def test_chain_values_are_those_by_hand(double_q, make_dqn_spec):
    """Q*(s, right) = 0.9^(3 - s), Q*(s, left) = 0.9 max Q*(s - 1): within 0.05, learnt from random steps alone."""
    spec = make_dqn_spec(
        "rl/Chain-v0",
        total_timesteps=1200,
        n_envs=4,
        double_q=double_q,
        policy_kwargs={"net_arch": []},
        learning_rate="lin_0.05",
        gamma=GAMMA,
        batch_size=64,
        buffer_size=1200,
        gradient_steps=8,
        target_update_interval=16,
        exploration_final_eps=1.0,
    )
    actor = make_actor(spec)
    actor.load(train_local(spec).parameters)
    found = actor.forward(np.eye(N_STATES, dtype=np.float32)[: N_STATES - 1])
    right = GAMMA ** np.arange(3, -1, -1)
    left = GAMMA * np.array([right[0], right[0], right[1], right[2]])
    np.testing.assert_allclose(found, np.stack((left, right), 1), atol=0.05)


def trained(env: str, seed: int) -> float:
    found = resolve(env, "dqn")
    spec = RlWork(
        name="a",
        env=env,
        algo="dqn",
        seed=seed,
        n_envs=found.n_envs,
        total_timesteps=found.total_timesteps,
        hyperparameters=found.hyperparameters,
        **probe(env),
    )
    return evaluate(spec, train_local(spec).parameters, n_episodes=40).mean


@pytest.mark.slow
@pytest.mark.parametrize("seed", [300, 301, 302])
def test_cartpole_is_balanced(seed):
    """With the shipped settings and 50,000 steps 40 greedy episodes average at least 475."""
    assert resolve("CartPole-v1", "dqn").total_timesteps == 50_000
    assert trained("CartPole-v1", seed) >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_mountain_car_arrives(seed):
    """The zoo's settings, 120,000 steps: 40 greedy episodes average at least -130."""
    assert trained("MountainCar-v0", seed) >= -130
