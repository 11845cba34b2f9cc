"""Environments that give a training no peace: they die, hang, take long or take memory, as their ids say."""

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np

__all__ = ["Cruel"]


class Cruel(gymnasium.Env):
    """Does something at a step of its life, counted from 1 on, or in each.

    Parameters
    ----------
    what
        ``dies`` (by a signal), ``hangs``, ``grows`` (10 MB a step), or nothing.
    at
        Step of its life at which it dies or hangs; 0: in its first reset.
    step_s
        Seconds that each step takes.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what="", at=1, step_s=0.0):
        self.what, self.at, self.step_s = what, at, step_s
        self.n_steps, self.hoard = 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # A probe, whose title has no number, must find nothing wrong.
        if self.at == 0 and "#" in Path("/proc/self/cmdline").read_text():
            self._strike()
        return self._seen(), {}

    def step(self, action):
        self.n_steps += 1
        time.sleep(self.step_s)
        if self.what == "grows":
            self.hoard.append(np.ones(10_000_000, np.uint8))
        elif self.n_steps == self.at:
            self._strike()
        reward = float(action == self.n_steps % 2)
        return self._seen(), reward, self.n_steps % 50 == 0, False, {}

    def _seen(self):
        """Return what shows how old it is, so that one that begins anew is another one."""
        return np.array([np.cos(self.n_steps), np.sin(self.n_steps)], np.float32)

    def _strike(self):
        if self.what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        while self.what == "hangs":
            time.sleep(1.0)


for name, kwargs in {
    "Dying": {"what": "dies", "at": 30},
    "DyingAtStart": {"what": "dies", "at": 0},
    "Hanging": {"what": "hangs", "at": 30},
    "HangingAtStart": {"what": "hangs", "at": 0},
    "Slow": {"step_s": 1.0},
    "Leisurely": {"step_s": 0.06},
    "Growing": {"what": "grows", "step_s": 0.05},
}.items():
    gymnasium.register(f"{name}-v0", entry_point=f"{__name__}:Cruel", kwargs=kwargs)
