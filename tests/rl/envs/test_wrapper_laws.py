"""Wrappers against what they mean, worked out from the plain environment's own record."""

import re

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records.errors import EnvError, MissingExtra
from drlnb.rl.envs import suites
from drlnb.rl.envs.suites import prepare
from drlnb.rl.envs.wrappers import tally_of, wrap


class Noise(gymnasium.Env):
    """Random observations and rewards of a seed's own, whatever is done; ends after `length` steps."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)

    def __init__(self, length, width=2):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (width,), np.float64)
        self._length, self._t = length, 0

    def _obs(self):
        return self.np_random.uniform(-1, 1, self.observation_space.shape)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action):
        self._t += 1
        return self._obs(), float(self.np_random.uniform(-1, 1)), self._t == self._length, False, {}


def played(env, seed):
    """Play one episode; return observations, rewards, actions."""
    observations, rewards, actions = [env.reset(seed=seed)[0]], [], []
    over = False
    while not over:
        actions.append(np.array([np.sin(1.0 + len(actions))]))
        obs, reward, terminated, truncated, _ = env.step(actions[-1])
        observations.append(obs)
        rewards.append(reward)
        over = terminated or truncated
    return observations, rewards, actions


def both(length, seed, name, **kwargs):
    """Play the plain environment and the wrapped one from the same seed."""
    env = wrap(Noise(length), [{"name": name, "kwargs": kwargs}])
    return played(Noise(length), seed), played(env, seed), env


_LENGTHS, _SEEDS, _FEW = st.integers(1, 12), st.integers(0, 99), st.integers(1, 5)


@given(_LENGTHS, _SEEDS, _FEW)
def test_a_stack_is_the_last_frames(length, seed, n):
    """Zeros before the first; nothing of the episode before is left in the next."""
    (plain, *_), (stacked, *_), env = both(length, seed, "FrameStack", n_stack=n)
    padded = [np.zeros(2)] * (n - 1) + plain
    for t, frames in enumerate(stacked):
        assert frames.tolist() == np.concatenate(padded[t : t + n]).tolist()
    again, *_ = played(env, seed)
    assert np.array_equal(again, stacked)


@given(_LENGTHS, _SEEDS, _FEW)
def test_repeated_actions_add_up_and_the_last_is_seen(length, seed, n):
    """The last step of an episode may be shorter; the tally beneath has the environment's own return and length."""
    (plain, rewards, _), (seen, sums, _), env = both(length, seed, "RepeatAction", num_repeats=n)
    parts = [rewards[t : t + n] for t in range(0, length, n)]
    assert sums == pytest.approx([sum(part) for part in parts])
    ends = [0, *(min(t + n, length) for t in range(0, length, n))]
    assert [row.tolist() for row in seen] == [plain[t].tolist() for t in ends]
    ((raw, steps),) = tally_of(env).drain()
    assert (raw, steps) == (pytest.approx(sum(rewards)), length)


@pytest.mark.parametrize(
    ("name", "kwargs", "env", "said"),
    [
        ("FrameStack", {"n_stack": 0}, Noise(1), "ValueError: n_stack must be >= 1, got 0"),
        ("FrameStack", {"n_stack": 2}, gymnasium.make("FrozenLake-v1"),
         "TypeError: observations must be a Box, got Discrete(16)"),
    ],
)  # fmt: skip
def test_a_wrapper_says_what_it_needs(name, kwargs, env, said):
    """The name of both, and the limit with the value."""
    around = env.spec.id if env.spec else "Noise"
    with pytest.raises(EnvError, match=re.escape(f"wrapper {name} cannot be put around {around}: {said}")):
        wrap(env, [{"name": name, "kwargs": kwargs}])


@pytest.mark.parametrize(
    ("env", "module", "extra"),
    [
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("BreakoutNoFrameskip-v4", "ale_py", "atari"),
        ("mine:LunarLander-v3", "Box2D", "box2d"),
        ("HalfCheetah-v5", "mujoco", "mujoco"),
    ],
)
def test_the_extra_that_brings_an_environment_is_a_pip_line(monkeypatch, env, module, extra):
    """Asked before anything is made; what no extra brings is left alone."""
    monkeypatch.setattr(suites, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=rf'^{env} needs {module}; install it with: pip install "drlnb\[{extra}\]"$'):
        prepare(env)
    prepare("CartPole-v1")
    prepare("nobody:Knows-v0")
