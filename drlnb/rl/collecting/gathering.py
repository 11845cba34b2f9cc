"""Gather what one round of a collector shows: rows, ends, and observations as the policy sees them.

Observations that are to be normalised are so here, as they come: each environment counts its own on top of the
statistics that were published with the policy, so how environments are split over collectors does not matter.
"""

from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

import gymnasium
import numpy as np

from drlnb.records.base import Facts
from drlnb.records.errors import EnvError
from drlnb.rl.fragments import Fragment
from drlnb.rl.heads import Head
from drlnb.rl.normalise import Moments, Running
from drlnb.rl.rows import RowForm, fitting, normalised_rows

__all__ = ["Run", "Sight", "Stepping", "Told", "drained", "last_observation"]

#: Yields after each step of all environments of a collector; returns the round's fragment.
Stepping = Generator[None, None, Fragment]


class Told(NamedTuple):
    """What an environment answered to its last step, before it was reset."""

    reward: float
    terminated: bool
    truncated: bool
    info: Facts
    obs: np.ndarray
    #: Of its episode so far, in raw reward units and steps.
    returned: float
    length: int


class Sight:
    """What a policy sees of a collector's environments.

    Parameters
    ----------
    current
        What the task's environments show, a row each, which the collector keeps up to date; shape ``(n_envs, *obs)``.
    rows
        Index of the collector's environments in it.
    form
        Of its rows; None: they are arrays.
    normalised
        Statistics are kept; else what they show is what is seen.
    """

    def __init__(self, current: np.ndarray, rows: slice | list[int], form: RowForm | None, *, normalised: bool) -> None:
        self.current, self.rows, self._form = current, rows, form
        #: As `current`; environments of other collectors are 0.
        self.seen = np.zeros(current.shape, np.float32 if form is None else form.dtype) if normalised else current
        self._running: Running | None = None

    def begin(self, published: Moments) -> None:
        """Begin a round: forget the last one's statistics, go on from the published ones, and look."""
        if self.seen is not self.current:
            counted = None if self._form is None else self._form.normalised_columns
            self._running = Running(published, len(self.current[self.rows]), counted)
            self.look()

    def look(self) -> None:
        """Count what the environments show now, and see it."""
        if self._running is not None:
            shown = self.current[self.rows]
            self._running.count(self._numbers(shown))
            self.seen[self.rows] = normalised_rows(self._form, shown, self._running.mean, self._running.var)

    def one(self, obs: np.ndarray, column: int) -> np.ndarray:
        """Return another observation of one environment as it is seen now; it is not counted."""
        if self._running is None:
            return obs
        mean, var = self._running.mean[column], self._running.var[column]
        return normalised_rows(self._form, obs[None], mean, var)[0]

    def moments(self, shown: np.ndarray) -> np.ndarray:
        """Return one environment's moments of a round ``(T, *obs)`` as a fragment carries them.

        Numbers that are not normalised (choices, 0 or 1) get mean 0, variance 1.
        """
        moments = Moments.of(self._numbers(shown))
        if self._form is not None:
            others = ~self._form.normalised_columns
            moments.mean[others], moments.m2[others] = 0.0, moments.n
        return moments.row()

    def _numbers(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(len(rows), -1) if self._form is None else self._form.vector(rows)


class Run:
    """What one call of collect gathers; rows of arrays are steps."""

    def __init__(self, round: int, n_steps: int, n: int, sight: Sight, head: Head, *, masked: bool) -> None:
        self._sight, current = sight, sight.current
        rows, self.round = len(current), round
        self.obs = self.seen = np.empty((n_steps, n, *current.shape[1:]), current.dtype)
        if sight.seen is not current:
            self.seen = np.empty(self.obs.shape, sight.seen.dtype)
        self.outputs = np.empty((n_steps, rows, head.width), np.float32)
        self.masks = np.empty((n_steps, rows, head.width if masked else 0), np.bool_)
        self.actions = np.empty((n_steps, rows, *head.action_shape), head.action_dtype)
        self.rewards: list[float] = []
        self.discounted: list[float] = []
        self.terminated = np.zeros((n_steps, n), np.bool_)
        self.truncated = np.zeros((n_steps, n), np.bool_)
        self.final_obs: list[np.ndarray] = []
        self.final_at: list[tuple[int, int]] = []
        self.episodes: list[list[float]] = []
        #: How many of the observations that were cut have been seen.
        self._n_cut = 0

    def begin_step(self, t: int) -> None:
        """Keep what is acted upon."""
        self.obs[t] = self._sight.current[self._sight.rows]
        if self.seen is not self.obs:
            self.seen[t] = self._sight.seen[self._sight.rows]

    def end(self, t: int, column: int, terminated: bool, obs: np.ndarray, episode: list[float]) -> None:
        """Keep an episode that ended in step `t`, and the observation that a time limit cut it at."""
        self.episodes.append(episode)
        if terminated:  # a true end wins over a time limit in the same step
            self.terminated[t, column] = True
            return
        self.truncated[t, column] = True
        self.final_obs.append(np.array(obs))
        self.final_at.append((t, column))

    def end_step(self) -> None:
        """See what the step has shown, and the last observations that it cut."""
        self._sight.look()
        while self._n_cut < len(self.final_at):
            _, column = self.final_at[self._n_cut]
            self.final_obs[self._n_cut] = self._sight.one(self.final_obs[self._n_cut], column)
            self._n_cut += 1


def last_observation(env: gymnasium.Env, obs: np.ndarray, info: Mapping[str, object]) -> np.ndarray:
    """Return the observation that an episode ended with, also of an environment that resets itself in its last step.

    Such a one returns the next episode's first observation, and keeps the last one in its info.

    Raises
    ------
    EnvError
        If observations change on their way through a wrapper: the one in the info has not come that way.
    """
    last = next((info[key] for key in ("final_obs", "final_observation") if info.get(key) is not None), None)
    if last is None:
        return obs
    if env.observation_space is not env.unwrapped.observation_space:
        raise EnvError(
            "it resets itself in the step that ends an episode, below a wrapper that changes observations: make it "
            "without its own reset"
        )
    return fitting(last, obs.shape, obs.dtype)


def drained(steps: Stepping, on_step: Callable[[], None] | None = None) -> Fragment:
    """Step to the end of a round; return the fragment."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            fragment: Fragment = done.value
            return fragment
        if on_step is not None:
            on_step()
