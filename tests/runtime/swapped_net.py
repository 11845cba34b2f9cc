"""A policy whose gradient step saves more than it has parameters: what a byte budget can bind within milliseconds."""

from itertools import pairwise

import torch
from torch import nn

__all__ = ["Wide", "wide"]


class Wide(nn.Module):
    """Three layers of 128 units that policy and value share."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        sizes = (observation_space.shape[0], 128, 128, 128)
        layers = [[nn.Linear(a, b), nn.Tanh()] for a, b in pairwise(sizes)]
        self.body = nn.Sequential(*(layer for pair in layers for layer in pair))
        self.pi, self.vf = nn.Linear(128, int(action_space.n)), nn.Linear(128, 1)

    def both(self, obs):
        features = self.body(obs)
        return self.pi(features), self.vf(features)[:, 0]

    def actor(self, obs):
        return self.both(obs)[0]

    def critic(self, obs):
        return self.both(obs)[1]


def wide(observation_space, action_space):
    """Return the policy, the same one each time: a learner seeds torch before."""
    assert torch.is_grad_enabled()
    return Wide(observation_space, action_space)
