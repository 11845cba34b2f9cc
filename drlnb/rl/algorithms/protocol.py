"""Declare what the host of a learner relies on: one protocol for all algorithms."""

from collections.abc import Callable, Iterable
from typing import Literal, Protocol

import numpy as np

from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import Layout
from drlnb.rl.plain import Facts

__all__ = ["Learner", "make_learner"]


class Learner(Protocol):
    """Hold a task's parameters and improve them, one round of experience at a time."""

    #: The task, with its spaces filled in.
    spec: TaskSpec
    #: Of the flat parameters.
    layout: Layout

    @property
    def compute(self) -> Literal["epochs", "stream"]:
        """``epochs``: the gradient steps run in `finish`; ``stream``: gradients are computed as fragments arrive."""

    def set(self, name: str, value: object) -> None:
        """Change a setting from the next round on.

        Parameters
        ----------
        name
            One of the ``LIVE`` ones of the algorithm's settings.
        value
            As at the start.

        Raises
        ------
        ConfigError
            If the setting cannot change while training, or the value is wrong.
        """

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round and drop what was staged.

        Parameters
        ----------
        round
            Number of the round, at least 0; part of the shuffles' keys.
        n_timesteps
            Environment steps done once this round is collected: schedules are read there.
        """

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Stage one fragment: normalise, values, advantages; any order of arrival gives the same result.

        Returns
        -------
        float
            Seconds spent.

        Raises
        ------
        ValueError
            If one of the fragment's environments was staged in this round before.
        """

    def export_partial(self, env_indices: Iterable[int]) -> Fragment:
        """Return what is staged of some environments, gradients computed at arrival included.

        With one pass over the whole round (``compute == "stream"``) each fragment's gradient is computed at its
        arrival, and the round's step is made of their sum in the order of the environments.  So a task can give its
        slot away between two fragments and go on elsewhere: the sum has the same bits.

        Parameters
        ----------
        env_indices
            Environments of one staged fragment, in its order.

        Returns
        -------
        Fragment
            Flat arrays under ``INDEX/NAME``, and a plain header with ``round`` and ``env_indices``.
        """

    def import_partial(self, part: Fragment) -> None:
        """Stage what :meth:`export_partial` returned, here or on another learner with the same parameters.

        Raises
        ------
        ValueError
            If one of its environments is staged already.
        """

    def finish(self, on_minibatch: Callable[[int, int], None] | None = None) -> dict[str, float]:
        """Run the round's gradient steps and merge the normaliser.

        Parameters
        ----------
        on_minibatch
            Called after each gradient step with its number (from 1) and how many there will be at most.  If it
            raises, the round's update is undone and the exception passes: the round may be finished again.

        Returns
        -------
        dict
            Metrics under Stable-Baselines3's names, see :data:`drlnb.rl.tracking.metrics.GLOSSARY`.

        Raises
        ------
        NonFinite
            If a loss or gradient is NaN or infinite; parameters and optimiser are unchanged.
        ValueError
            If nothing was staged.
        """

    def published(self) -> np.ndarray:
        """Return a fresh uint8 buffer with what actors need: policy parameters and normaliser statistics."""

    def state(self) -> tuple[Facts, np.ndarray]:
        """Return plain data and a uint8 buffer: everything needed to go on exactly, between rounds."""

    def restore(self, meta: Facts, buffer: np.ndarray) -> None:
        """Go on from :meth:`state`.

        Raises
        ------
        ValueError
            If the state was made for another layout.
        """
