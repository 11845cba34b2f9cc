"""Implement the wrappers of Stable-Baselines3 that gymnasium lacks, and a tally of raw returns.

Each follows the meaning of the class whose name it has; what differs is in its docstring.  All randomness is the
environment's own (``np_random``), so that a seed fixes it.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing

from drlnb.records.episodes import Episode, success
from drlnb.rl.rows import scalar

__all__ = ["AtariWrapper", "FrameStack", "Tally"]

#: What an action or an observation is, is the environment's business.
_Item = Any
_Info = dict[str, object]
_Step = tuple[_Item, float, bool, bool, _Info]
_Reset = tuple[_Item, _Info]


class _Episodic(gymnasium.Wrapper):
    """A wrapper that keeps something of each episode."""

    def _begin(self) -> None:
        """Forget the last episode."""

    def reset(self, *, seed: int | None = None, options: _Info | None = None) -> _Reset:
        """Reset, and begin anew."""
        self._begin()
        return super().reset(seed=seed, options=options)


class Tally(_Episodic):
    """Count raw returns and lengths of what is beneath, whatever wrappers above do to rewards and ends.

    An episode ends when the environment beneath ends it, or when it is reset before (a time limit above).
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._return, self._length = 0.0, 0
        #: What the last step said.
        self._info: object = None
        self._finished: list[Episode] = []

    def _begin(self) -> None:
        if self._length:
            self._finished.append((self._return, self._length, *success(self._info)))
        self._return, self._length, self._info = 0.0, 0, None

    def step(self, action: _Item) -> _Step:
        """Step, and count."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += scalar(reward)
        self._length += 1
        self._info = info
        if terminated or truncated:
            self._begin()
        return obs, scalar(reward), terminated, truncated, info

    def total(self) -> float:
        """Return the raw return of all that was stepped since the last drain, the running episode included."""
        return sum(values[0] for values in self._finished) + self._return

    def drain(self) -> list[Episode]:
        """Return the episodes that ended since the last call; their lengths are the steps beneath."""
        finished, self._finished = self._finished, []
        return finished


class _Frames:
    """The last observations of one box."""

    def __init__(self, space: spaces.Space, n_stack: int, name: str) -> None:
        if not isinstance(space, spaces.Box):
            raise TypeError(f"{name} must be a Box, got {space}")
        self._flat = len(space.shape) == 2  # a grey image
        pixels = space.dtype == np.uint8 and len(space.shape) == 3 and not space.low.any() and (space.high == 255).all()
        first = pixels and int(np.argmin(space.shape)) == 0
        self._along = 0 if first else -1
        low, high = (
            np.concatenate([self._channels(bound)] * n_stack, self._along) for bound in (space.low, space.high)
        )
        width = low.shape[self._along] // n_stack
        #: All but the oldest.
        self._kept = np.s_[width:] if first else np.s_[..., width:]
        self.space = spaces.Box(np.minimum(low, 0), np.maximum(high, 0), dtype=space.dtype)
        self.begin()

    def _channels(self, obs: np.ndarray) -> np.ndarray:
        return obs[..., None] if self._flat else obs

    def begin(self) -> None:
        self._frames = np.zeros(self.space.shape, self.space.dtype)

    def add(self, observation: object) -> np.ndarray:
        # A new array each time: whoever holds the last one (a fragment, a final observation) keeps it.
        new = self._channels(np.asarray(observation))
        self._frames = np.concatenate([self._frames[self._kept], new], self._along)
        return self._frames


class FrameStack(_Episodic, gymnasium.ObservationWrapper):
    """The last `n_stack` observations along the channels, newest last, zeros before the first; of a Dict key by key.

    As Stable-Baselines3's ``VecFrameStack``: the first axis of images whose channels come first, else the last one.
    Grey images without a channel axis get one: ``(84, 84)`` becomes ``(84, 84, n_stack)``.
    """

    def __init__(self, env: gymnasium.Env, n_stack: int) -> None:
        if n_stack < 1:
            raise ValueError(f"n_stack must be >= 1, got {n_stack}")
        super().__init__(env)
        space = env.observation_space
        #: By key, where observations are dictionaries; else by the empty text alone.
        self._boxes: dict[str, _Frames] = {}
        self._keyed = isinstance(space, spaces.Dict)
        if isinstance(space, spaces.Dict):
            self._boxes = {key: _Frames(part, n_stack, f"observation {key!r}") for key, part in space.items()}
            self.observation_space = spaces.Dict({key: frames.space for key, frames in self._boxes.items()})
        else:
            self._boxes[""] = _Frames(space, n_stack, "observations")
            self.observation_space = self._boxes[""].space

    def _begin(self) -> None:
        for frames in self._boxes.values():
            frames.begin()

    def observation(self, observation: _Item) -> _Item:
        """Drop the oldest."""
        if not self._keyed:
            return self._boxes[""].add(observation)
        return {key: frames.add(observation[key]) for key, frames in self._boxes.items()}


class AtariWrapper(gymnasium.Wrapper):
    """Stable-Baselines3's ``AtariWrapper``: no-op starts, 4 frames per step, a life per episode, FIRE, 84x84, signs.

    Built on gymnasium's ``AtariPreprocessing``, which resizes the console's own grey screen instead of a grey version
    of its colours: pixels differ slightly.  Unlike its ``terminal_on_life_loss``, a lost life does not restart the
    game: the next episode goes on from there, and only the end of the game resets it.

    Parameters
    ----------
    env
        A game whose own frame skip is 1.
    noop_max
        Most no-op steps at the start of a game, 0: none.
    frame_skip
        Frames per step; the brighter of the last two is seen.
    screen_size
        Pixels per side.
    terminal_on_life_loss
        A lost life ends the episode.
    clip_reward
        Rewards are replaced by their signs.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool = True,
        clip_reward: bool = True,
    ) -> None:
        pixels = AtariPreprocessing(env, noop_max, frame_skip, screen_size, grayscale_newaxis=True)
        super().__init__(pixels)
        self._lose, self._clip = terminal_on_life_loss, clip_reward
        meanings = env.unwrapped.get_action_meanings()
        self._fires = len(meanings) >= 3 and meanings[1] == "FIRE"
        self._lives, self._over = 0, True

    def _beneath(self, action: _Item) -> _Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives, self._over = self.env.unwrapped.ale.lives(), bool(terminated or truncated)
        lost = self._lose and 0 < lives < self._lives
        self._lives = lives
        return obs, scalar(reward), bool(terminated or lost), truncated, info

    def reset(self, *, seed: int | None = None, options: _Info | None = None) -> _Reset:
        """Start a new game if the last one is over or a seed is given; else go on with the next life."""
        if self._over or seed is not None or not self._lose:
            obs, info = self._new_game(seed, options)
        else:
            obs, _, _, _, info = self._beneath(0)
            if self._over:
                obs, info = self._new_game(None, options)
        for action in (1, 2) if self._fires else ():  # as Stable-Baselines3: FIRE, then the action after it
            obs, _, _, _, info = self._beneath(action)
            if self._over:
                obs, info = self._new_game(None, options)
        return obs, info

    def _new_game(self, seed: int | None, options: _Info | None) -> _Reset:
        obs, info = self.env.reset(seed=seed, options=options)
        self._lives, self._over = self.env.unwrapped.ale.lives(), False
        return obs, info

    def step(self, action: _Item) -> _Step:
        """Step `frame_skip` frames."""
        obs, reward, terminated, truncated, info = self._beneath(action)
        return obs, float(np.sign(reward)) if self._clip else reward, terminated, truncated, info
