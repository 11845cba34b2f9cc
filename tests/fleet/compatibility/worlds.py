"""Small environments: a script's own, one that pays for an echo, one of any spaces, one that shows pictures."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import drlnb

#: A small network, and a round of each algorithm that takes milliseconds.
NET = {"policy_kwargs": {"net_arch": [8]}, "seed": 0}
ROUND = {**NET, "n_steps": 16, "batch_size": 16, "n_epochs": 1}
RING = {**NET, "learning_starts": 8, "buffer_size": 64, "batch_size": 8}


TWO, THREE = Discrete(2), Discrete(3)


def ppo(env="CartPole-v1", policy="MlpPolicy", **given):
    return drlnb.PPO(policy, env, **{**ROUND, **given})


def dqn(env="CartPole-v1", policy="MlpPolicy", **given):
    return drlnb.DQN(policy, env, **{**RING, **given})


class Own(gymnasium.Env):
    """One that nobody has registered; its episodes are of ten steps, each worth `reward`."""

    observation_space, action_space = Box(-1, 1, (3,), np.float32), TWO

    def __init__(self, level=0, reward=1.0):
        self.level, self.reward, self.steps, self.closed = level, reward, 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), self.reward, self.steps >= 10, False, {"mood": "good"}

    def close(self):
        self.closed = True


class Anything(gymnasium.Env):
    """Shows samples of a space, takes actions of another, and is cut after `length` steps; each pays 1."""

    def __init__(self, observation_space, action_space=TWO, length=10):
        self.observation_space, self.action_space, self.length, self.taken = observation_space, action_space, length, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 1.0, False, self.steps == self.length, {}


class Echo(Anything):
    """Pays 1 for each action that equals what was shown, of a box within a half; ten steps make an episode."""

    def __init__(self, space):
        super().__init__(space, space)

    def reset(self, *, seed=None, options=None):
        self.shown, info = super().reset(seed=seed)
        return self.shown, info

    def step(self, action):
        shown = self.shown
        self.shown, _, ended, cut, info = super().step(action)
        near = np.abs(np.asarray(action, float) - shown).max() <= (0.5 if isinstance(self.action_space, Box) else 0)
        return self.shown, float(near), ended, cut, info


class Pictures(Anything):
    """Shows noise of 36 x 36 pixels, channels last or first."""

    def __init__(self, channels=1, first=False, actions=THREE):
        shape = (channels, 36, 36) if first else (36, 36, channels)
        super().__init__(Box(0, 255, shape, np.uint8), actions)
