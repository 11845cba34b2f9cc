"""The settings that we ship under the zoo's name are the zoo's."""

from pathlib import Path

import pytest

from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.zoo.entries import read_entry

ZOO = Path(__file__).parents[1] / "zoo"


@pytest.mark.parametrize(
    ("algo", "env", "theirs"),
    [
        ("ppo", "Acrobot-v1", "Acrobot-v1"),
        ("ppo", "MountainCar-v0", "MountainCar-v0"),
        ("ppo", "LunarLander-v3", "LunarLanderContinuous-v3"),  # the zoo's two landers have the same settings
        ("ppo", "HalfCheetah-v5", "HalfCheetah-v4"),
        ("dqn", "MountainCar-v0", "MountainCar-v0"),
        ("dqn", "Acrobot-v1", "Acrobot-v1"),
    ],
)
def test_what_is_called_the_zoos_is_the_zoos(algo, env, theirs):
    """Entry by entry: every setting, the number of environments and the budget."""
    entry = read_entry(ZOO / f"{algo}.yml", theirs)
    given = {**entry.hyperparameters, "n_envs": entry.n_envs, "n_timesteps": entry.n_timesteps}
    ours, expected = resolve(env, algo), resolve(env, algo, entry=given)
    assert ours.hyperparameters == expected.hyperparameters
    assert (ours.n_envs, ours.total_timesteps) == (expected.n_envs, expected.total_timesteps)
