"""Does it learn?  Minutes; nightly."""

import pytest
import torch

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.collecting.evaluation import evaluate_parameters as evaluate
from drlnb.rl.envs.make import probe
from drlnb.rl.local.train import train_local


def trained(env: str, seed: int) -> float:
    """Train with the shipped settings and return the mean of 20 deterministic episodes."""
    torch.set_num_threads(1)
    found = resolve(env)
    spec = RlWork(
        name="a",
        env=env,
        seed=seed,
        n_envs=found.n_envs,
        total_timesteps=found.total_timesteps,
        hyperparameters=found.hyperparameters,
        **probe(env),
    )
    return evaluate(spec, train_local(spec).parameters, n_episodes=20).mean


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cartpole_reaches_475_in_100k_steps(seed):
    """With the shipped settings and 100 000 steps, 20 deterministic episodes average at least 475."""
    assert resolve("CartPole-v1").total_timesteps == 100_000
    assert trained("CartPole-v1", seed) >= 475


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("env", "least"), [("Pendulum-v1", -250), ("MountainCar-v0", -130), ("Acrobot-v1", -100)])
def test_classic_control_reaches_its_bar(env, least):
    """With the shipped settings and budget, 20 deterministic episodes average at least the bar."""
    assert trained(env, 0) >= least
