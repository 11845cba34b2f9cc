"""Go on writing the file of a Stable-Baselines3 ``Monitor`` that the caller has put around an environment."""

import csv
import time
from collections.abc import Sequence
from pathlib import Path

import gymnasium

from drlnb.rl.rows import scalar

__all__ = ["MonitorFile", "write_episodes"]


class MonitorFile(gymnasium.Wrapper):
    """Adds a row for each episode that is trained on; between two rows the file is closed, so it can be copied.

    Parameters
    ----------
    env
        What is counted.
    path
        File that a ``Monitor`` has begun: its header is there.
    info_keywords
        Entries of an episode's last ``info`` that have columns of their own.
    started
        When the ``Monitor`` was made, in seconds since the epoch: the column ``t`` counts from there.
    """

    #: Whether rows are written: not while an environment is tried or evaluated.
    writes_episodes = False

    def __init__(self, env: gymnasium.Env, path: str, info_keywords: Sequence[str], started: float) -> None:
        super().__init__(env)
        self._path, self._keywords, self._started = Path(path), tuple(info_keywords), started
        self._return, self._length = 0.0, 0

    def reset(self, **kwargs: object) -> tuple[object, dict[str, object]]:
        """Begin an episode."""
        self._return, self._length = 0.0, 0
        answer: tuple[object, dict[str, object]] = self.env.reset(**kwargs)
        return answer

    def step(self, action: object) -> tuple[object, object, bool, bool, dict[str, object]]:
        """Count a step; at an episode's end write its return, length and time."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += scalar(reward)
        self._length += 1
        if self.writes_episodes and (terminated or truncated):
            seconds = round(time.time() - self._started, 6)
            row = [round(self._return, 6), self._length, seconds, *(info.get(name) for name in self._keywords)]
            with self._path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(row)
        return obs, reward, terminated, truncated, info


def write_episodes(env: gymnasium.Env, *, wanted: bool) -> None:
    """Have episodes of an environment written into its monitor's file from now on, where it has one; or not."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, MonitorFile):
            env.writes_episodes = wanted
        env = env.env
