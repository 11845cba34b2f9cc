"""Describe what callbacks hear of, and what they may ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Evaluated", "Metrics", "Session", "Written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation that was played while training."""

    #: Environment steps that its parameters were trained for.
    n_timesteps: int
    #: Version of the parameters.
    version: int
    #: Mean return over its episodes, in raw reward units, and their population standard deviation.
    mean_reward: float
    std_reward: float
    #: The most likely actions, or samples.
    deterministic: bool
    #: Return and length of each episode.
    episodes: tuple[tuple[float, int], ...]
    #: Share of episodes that succeeded; None where the environment does not say (``info["is_success"]``).
    success_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A checkpoint that is on disk."""

    #: Environment steps that its parameters were trained for.
    n_timesteps: int
    #: Version of the parameters.
    version: int
    #: Why it was written: ``periodic``, ``checkpoint`` (somebody asked), ``best``, ``pause``, ``stop`` or ``end``.
    reason: str


#: A round's scalars by their names, see ``docs/reference/rl.md``.
Metrics = Mapping[str, float]


class Session(Protocol):
    """What a callback may ask of the training that calls it."""

    def checkpoint(self) -> None:
        """Write a checkpoint soon; :meth:`BaseCallback.on_checkpoint` is called when it is there."""

    def save(self, version: int, path: str | Path, ring: Path | None = None) -> bool:
        """Save the model with the parameters of a version; return whether they are (still) at hand.

        `ring` is the file of its replay ring, where it has one; None: it is not saved.
        """
