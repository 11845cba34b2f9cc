"""Train a task in this process: the same collectors and the same learner as on a cluster, in turn."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from drlnb.records.spec import TaskSpec
from drlnb.rl.local.loop import LocalLoop

__all__ = ["LocalResult", "train_local"]


@dataclass(frozen=True, slots=True)
class LocalResult:
    """What a training in this process left."""

    #: One mapping per round, see :data:`drlnb.rl.tracking.metrics.GLOSSARY`.
    metrics: list[dict[str, float]]
    #: The last published buffer.
    parameters: np.ndarray
    #: Wall time of the rounds, environments' construction not counted.
    seconds: float
    #: Environment steps taken.
    n_timesteps: int


def train_local(spec: TaskSpec, *, callback: Callable[[dict[str, float]], object] | None = None) -> LocalResult:
    """Train a task in this process.

    Parameters
    ----------
    spec
        The task, with its spaces filled in; its ``n_collectors`` collectors run one after the other.
    callback
        Called with each round's metrics; False ends the training.

    Returns
    -------
    LocalResult
        Metrics, final parameters, seconds.

    Raises
    ------
    EnvError
        If an environment fails.
    NonFinite
        If an update is refused.
    """
    history: list[dict[str, float]] = []
    loop = LocalLoop(spec)
    began = time.perf_counter()
    try:
        while loop.n_timesteps < spec.total_timesteps:
            history.append(loop.round())
            if callback is not None and callback(history[-1]) is False:
                break
        return LocalResult(history, loop.parameters, time.perf_counter() - began, loop.n_timesteps)
    finally:
        loop.close()
