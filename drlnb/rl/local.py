"""What does training cost without a cluster?  The same collectors and the same learner, in one process, in turn."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms import make_learner, make_replay, round_steps
from drlnb.rl.collect import Collector, split_envs
from drlnb.rl.fragments import Fragment
from drlnb.rl.learner import Learner

if TYPE_CHECKING:
    from drlnb.rl.replay import Replay

__all__ = ["LocalResult", "train_local"]

#: Episodes that the rolling means cover (Stable-Baselines3's ``stats_window_size``).
_WINDOW = 100


@dataclass(frozen=True, slots=True)
class LocalResult:
    """What a training in this process left."""

    #: One mapping per round, see :data:`drlnb.rl.metrics.GLOSSARY`.
    metrics: list[dict[str, float]]
    #: The last published buffer.
    parameters: np.ndarray
    #: Wall time of the rounds, environments' construction not counted.
    seconds: float
    #: Environment steps taken.
    n_timesteps: int


def train_local(spec: TaskSpec, *, callback: Callable[[dict[str, float]], Any] | None = None) -> LocalResult:
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
    n_steps = round_steps(spec)
    learner, replay = make_learner(spec), make_replay(spec)
    collectors = [Collector(spec, env_indices=share) for share in split_envs(spec.n_envs, spec.n_collectors)]
    episodes: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
    history: list[dict[str, float]] = []
    done = number = 0
    began = time.perf_counter()
    try:
        parameters = learner.published()
        while done < spec.total_timesteps:
            started = time.perf_counter()
            number += 1  # rounds count from 1, as on a cluster, where round 0 makes the first parameters
            fragments = [
                c.collect(parameters, version=number, round=number, n_steps=n_steps, n_timesteps=done)
                for c in collectors
            ]
            collected = time.perf_counter()
            for fragment in fragments:
                episodes.extend(fragment.header["episodes"])
            metrics = _learn(learner, replay, fragments, number, done)
            done += sum(fragment.header["n_samples"] for fragment in fragments)
            parameters = learner.published()
            ended = time.perf_counter()
            metrics |= {"round/time_s": ended - started, "round/collect_s": collected - started}
            metrics |= {"round/update_s": ended - collected, "time/iterations": number}
            metrics |= {"time/time_elapsed": ended - began, "time/total_timesteps": done}
            metrics |= {"time/fps": done / (ended - began), **_rolling(episodes)}
            history.append(metrics)
            if callback is not None and callback(metrics) is False:
                break
        return LocalResult(history, parameters, time.perf_counter() - began, done)
    finally:
        for collector in collectors:
            collector.close()


def _learn(
    learner: Learner, replay: "Replay | None", fragments: list[Fragment], number: int, done: int
) -> dict[str, float]:
    """Take the gradient steps of a round that began after `done` environment steps; return its metrics."""
    staged = fragments
    if replay is not None:
        block = replay.take(fragments, round=number, n_timesteps=done)
        if not block.header["n_gradient_steps"]:
            return dict(block.header["metrics"])
        staged = [block]
    learner.begin(number, done + sum(fragment.header["n_samples"] for fragment in fragments))
    for worker, fragment in enumerate(staged):
        learner.stage(worker, fragment)
    return learner.finish()


def _rolling(episodes: Iterable[tuple[float, int]]) -> dict[str, float]:
    rows = list(episodes)
    if not rows:
        return {}
    returns, lengths = zip(*rows, strict=True)
    return {"rollout/ep_rew_mean": float(np.mean(returns)), "rollout/ep_len_mean": float(np.mean(lengths))}
