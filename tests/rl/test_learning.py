"""Does it learn?  Minutes; nightly."""

import pytest
import torch

from drlnb.records.spec import TaskSpec
from drlnb.rl.envs import probe
from drlnb.rl.evaluate import evaluate
from drlnb.rl.local import train_local
from drlnb.rl.settings import resolve


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cartpole_reaches_475_in_100k_steps(seed):
    """With the shipped settings, 20 deterministic episodes after 100 000 steps average at least 475."""
    torch.set_num_threads(1)
    env = "CartPole-v1"
    found = resolve(env)
    spec = TaskSpec(
        name="a",
        env=env,
        seed=seed,
        n_envs=found.n_envs,
        total_timesteps=found.total_timesteps,
        hyperparameters=found.hyperparameters,
        **probe(env),
    )
    assert spec.total_timesteps == 100_000
    result = train_local(spec)
    assert evaluate(spec, result.parameters, n_episodes=20).mean >= 475
