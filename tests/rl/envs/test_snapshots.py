"""A snapshot is trusted only where a copy goes on exactly as the original does."""

import gymnasium
import numpy as np
import pytest

from drlnb.rl.envs.make import make_env
from drlnb.rl.envs.snapshots import freeze, restorable, thaw
from drlnb.rl.pickled import pack
from tests.rl.conftest import Clock

#: How often each instance was closed, by the order in which they were made.
_CLOSED: list[int] = []


class Odd(Clock):
    """Keeps everything in a pickle but what `forgets` says; sometimes it cannot be pickled at all."""

    def __init__(self, forgets="nothing"):
        super().__init__(end_after=100)
        self._forgets, self._starts = forgets, 0

    def reset(self, *, seed=None, options=None):
        self._starts += 1
        obs, info = super().reset(seed=seed, options=options)
        return obs + self._starts, info

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        if self._forgets == "its end" and getattr(self, "copied", False):
            terminated = self._t == 10
        return obs, float(self.np_random.random()), terminated, truncated, info

    def __getstate__(self):
        if self._forgets == "everything":
            raise RuntimeError("a simulator in C cannot be copied")
        kept = {**self.__dict__, "copied": True}
        if self._forgets == "its chance":
            kept["_np_random"] = np.random.default_rng(7)
        if self._forgets == "its starts":
            kept["_starts"] = 0
        return kept

    def close(self):
        _CLOSED.append(id(self))


@pytest.mark.parametrize(
    ("forgets", "trusted"),
    [("nothing", True), ("its chance", False), ("its starts", False), ("its end", False), ("everything", False)],
)
def test_a_copy_that_differs_in_anything_is_not_trusted(forgets, trusted):
    """A reward, an end or the next episode's first observation that differs shows; so does a pickle that fails."""
    _CLOSED.clear()
    assert restorable({"env": "odd", "env_factory": pack(lambda: Odd(forgets))}) is trusted
    assert len(set(_CLOSED)) == (1 if forgets == "everything" else 2), "the original and the copy are closed"


def test_taking_a_snapshot_changes_nothing():
    """Pendulum goes on after each snapshot as its untouched twin does, and so does every copy."""
    pendulum, twin = make_env("Pendulum-v1"), make_env("Pendulum-v1")
    for env in (pendulum, twin):
        env.reset(seed=3)
    copies = []
    torque = np.array([0.5], np.float32)
    for _ in range(5):
        copies.append(thaw(freeze(pendulum)))
        expected = twin.step(torque)[:2]
        for env in (pendulum, *copies):
            obs, reward, *_ = env.step(torque)
            assert (obs.tolist(), reward) == (expected[0].tolist(), expected[1])
    for env in (pendulum, twin, *copies):
        env.close()


def test_an_environment_that_raises_is_not_trusted():
    """A step that fails in the trial means no snapshots, never an error of the trial."""

    class Fails(gymnasium.Env):
        observation_space, action_space = Clock.observation_space, Clock.action_space

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            raise ZeroDivisionError("the simulator")

    assert restorable({"env": "fails", "env_factory": pack(Fails)}) is False
