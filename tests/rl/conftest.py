"""Small tasks and environments with known answers."""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils import EzPickle

from drlnb.records.spec import RlWork
from drlnb.rl.envs.make import probe
from drlnb.rl.networks.same_bits import one_thread


class Clock(gymnasium.Env):
    """Counts its steps: observation = [steps], reward 1; ends as told."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, end_after: int = 3, truncate: bool = False, both: bool = False) -> None:
        self._end_after, self._truncate, self._both = end_after, truncate, both
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._t = 0
        return np.array([0.0], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._t += 1
        end = self._t >= self._end_after
        flags = (end, end) if self._both else (end and not self._truncate, end and self._truncate)
        return np.array([self._t], np.float32), 1.0, *flags, {}


class ResetsItself(Clock):
    """Resets in the step that ends an episode, as vector environments do; the last observation is in the info."""

    def __init__(self, key: str = "final_obs") -> None:
        super().__init__(end_after=3, truncate=True)
        self._key = key

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, reward, terminated, truncated, info = super().step(action)
        if truncated:
            info[self._key], (obs, _) = obs, self.reset()
        return obs, reward, terminated, truncated, info


class Doubled(gymnasium.wrappers.TransformObservation):
    """Shows twice what an environment shows."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env, lambda obs: 2 * obs, gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32))


class Forgetful(Clock, EzPickle):
    """Pickles silently wrong: only constructor arguments travel."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        Clock.__init__(self, end_after=50)


class BadReward(Clock):
    """Pays NaN in its second step."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, _, *rest = super().step(action)
        return obs, float("nan") if self._t == 2 else 1.0, *rest


class Broken(Clock):
    """Cannot be built."""

    def __init__(self) -> None:
        raise RuntimeError("no licence for 42 seats")


class Texts(Clock):
    """Has texts as observations."""

    observation_space = gymnasium.spaces.Text(3)


ENVS = {
    "rl/Clock-v0": Clock,
    "rl/Cut-v0": lambda: Clock(end_after=3, truncate=True),
    "rl/ResetsItself-v0": ResetsItself,
    "rl/ResetsItselfOld-v0": lambda: ResetsItself("final_observation"),
    "rl/Doubled-v0": lambda: Doubled(ResetsItself()),
    "rl/Both-v0": lambda: Clock(end_after=3, both=True),
    "rl/Forgetful-v0": Forgetful,
    "rl/BadReward-v0": BadReward,
    "rl/Broken-v0": Broken,
    "rl/Texts-v0": Texts,
}


@pytest.fixture(scope="session", autouse=True)
def _registered() -> Iterator[None]:
    for name, entry in ENVS.items():
        gymnasium.register(name, entry_point=entry)
    yield
    for name in ENVS:
        gymnasium.registry.pop(name)


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    """Pay for torch's first use (its optimisers load its compiler: a second) outside the tests; one thread in them.

    So do executors and local training; on small networks several threads wait for each other.
    """
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    torch.testing.assert_close(torch.zeros(1).tanh(), torch.zeros(1))
    with one_thread():
        yield


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., RlWork]:
    """Build a small task; keywords that are no field of the spec are hyper-parameters."""

    def make(env: str = "CartPole-v1", **given: Any) -> RlWork:
        top = {"name": "a", "seed": 5, "n_envs": 4, "total_timesteps": 1000, "n_collectors": 1, **probe(env)}
        top |= {key: given.pop(key) for key in list(given) if key in top}
        hyper = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "policy_kwargs": {"net_arch": [8, 8]}, **given}
        return RlWork(env=env, hyperparameters=hyper, **top)

    return make


@pytest.fixture(scope="session")
def make_dqn_spec() -> Callable[..., RlWork]:
    """Build a small DQN task; keywords that are no field of the spec are hyper-parameters."""

    def make(env: str = "CartPole-v1", **given: Any) -> RlWork:
        top = {"name": "a", "seed": 5, "n_envs": 2, "total_timesteps": 1000, "n_collectors": 1, **probe(env)}
        top |= {key: given.pop(key) for key in list(given) if key in top}
        hyper = {"batch_size": 16, "buffer_size": 200, "learning_starts": 20, "policy_kwargs": {"net_arch": [8, 8]}}
        return RlWork(env=env, algo="dqn", hyperparameters=hyper | given, **top)

    return make
