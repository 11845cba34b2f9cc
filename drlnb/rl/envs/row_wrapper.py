"""Wrap an environment so that its observations are rows; see :mod:`drlnb.rl.rows`."""

import gymnasium
import numpy as np

from drlnb.rl.plain import Space
from drlnb.rl.rows import RowForm

__all__ = ["FlatRows"]

_BASIC = ("box", "discrete", "multidiscrete", "multibinary")


class FlatRows(gymnasium.ObservationWrapper):
    """An environment whose observations are rows.

    Parameters
    ----------
    env
        Its space is one that :meth:`serves` takes.
    plain
        The plain description of that space.
    """

    def __init__(self, env: gymnasium.Env, plain: Space) -> None:
        super().__init__(env)
        #: The plain description of what the environment itself returns.
        self.plain = dict(plain)
        self.form = form = RowForm.of(plain)
        low, high = (0, 255) if form.images else (-np.inf, np.inf)
        self.observation_space = gymnasium.spaces.Box(low, high, (form.width,), form.dtype.type)

    @staticmethod
    def serves(plain: Space) -> bool:
        """Return whether a plain space can be laid out: basic spaces, or a dictionary of at least one of them."""
        if plain["kind"] == "dict":
            return bool(plain.get("spaces")) and all(space["kind"] in _BASIC for _, space in plain["spaces"])
        return plain["kind"] in _BASIC and plain["kind"] != "box"

    def observation(self, observation: object) -> np.ndarray:
        """Return the row of an observation."""
        return self.form.row(observation)
