"""A policy whose gradient step saves more than it has parameters: what a byte budget can bind within milliseconds.

And a slow disk below it, which the policy's maker puts into the process where the steps are made.
"""

import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from drlnb.runtime.swapping.tiers import made
from drlnb.runtime.swapping.tiers.file import FileTier

__all__ = ["SlowFile", "Wide", "wide", "wide_on_a_slow_disk"]


class SlowFile(FileTier):
    """A swap file whose copies take as long as on a disk of `bytes_per_s`, each way."""

    bytes_per_s = float("inf")

    def write(self, rest, offset):
        self._copied(super().write, rest, offset)

    def read(self, rest, offset):
        self._copied(super().read, rest, offset)

    def _copied(self, copy, rest, offset):
        done_s = time.perf_counter() + len(rest) / self.bytes_per_s
        copy(rest, offset)
        time.sleep(max(0.0, done_s - time.perf_counter()))


class _Switched(SlowFile):
    """Slow as long as a file lies there that says how slow."""

    def __init__(self, meter, folder, switch):
        super().__init__(meter, folder)
        self._switch = Path(switch)

    @property
    def bytes_per_s(self):
        return float(self._switch.read_text()) if self._switch.exists() else float("inf")


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


def wide_on_a_slow_disk(observation_space, action_space, switch):
    """Return the policy, and swap to a disk that is as slow as the file `switch` says, while it is there."""
    made.TIERS["cpu"] = lambda device, meter, folder: _Switched(meter, folder, switch)
    return wide(observation_space, action_space)
