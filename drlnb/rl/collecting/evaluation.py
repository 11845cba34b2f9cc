"""Evaluate policies: whole episodes with frozen statistics, raw rewards, and seeds of their own.

Each environment gets its number of episodes beforehand: taking whichever finish first would favour short ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import gymnasium
import numpy as np

from drlnb.records.spec import TaskSpec
from drlnb.rl.acting.actors import Actor
from drlnb.rl.algorithms.registry import make_actor
from drlnb.rl.envs.make import make_env, probe
from drlnb.rl.envs.masks import MaskSource, masked, uses_masks
from drlnb.rl.envs.wrappers import tally_of
from drlnb.rl.seeding import EVAL, generator, reset_seed

__all__ = ["Evaluation", "evaluate", "evaluate_parameters"]

#: Environments stepped together; more rows per forward pass hardly help beyond.
_MOST_ENVS = 8


class Model(Protocol):
    """What ``drlnb.PPO`` and its kin are."""

    spec: TaskSpec
    #: As its learner published them.
    parameters: np.ndarray
    version: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns of whole episodes."""

    #: Mean return, in raw reward units.
    mean: float
    #: Population standard deviation over episodes, in raw reward units.
    std: float
    #: Per episode, in the order of the episodes' numbers.
    returns: tuple[float, ...]
    #: Steps per episode, in the same order.
    lengths: tuple[int, ...]
    deterministic: bool
    #: Version of the parameters, 0 if not known.
    version: int = 0


def evaluate(
    model: Model,
    env: str | None = None,
    *,
    n_episodes: int = 40,
    deterministic: bool = True,
    seed: int | None = None,
) -> Evaluation:
    """Play whole episodes with a model; its statistics stay as they are.

    Parameters
    ----------
    model
        What ``drlnb.PPO`` and its kin are, and ``run.load()`` returns.
    env
        A gymnasium id with the same spaces; None: the environment that it was trained on.
    n_episodes
        At least 1.
    deterministic
        The most likely action instead of a sample.
    seed
        Of the episodes' starts (and samples); None: the model's.

    Returns
    -------
    Evaluation
        Raw returns.

    Raises
    ------
    ValueError
        If `n_episodes` < 1, or `env` has other spaces: both are named.
    EnvError
        If an environment cannot be made.
    """
    spec: TaskSpec = model.spec
    if env is not None and env != spec.env:
        moved = replace(spec, env=env, env_factory=None, env_kwargs={})
        for name, space in probe(moved).items():
            wanted = dict(getattr(spec, name) or {})
            if dict(space) != wanted:
                raise ValueError(f"{env} has the {name.replace('_', ' ')} {space}, the model was trained on {wanted}")
        spec = moved
    outcome = evaluate_parameters(spec, model.parameters, n_episodes=n_episodes, deterministic=deterministic, seed=seed)
    return replace(outcome, version=model.version)


def evaluate_parameters(
    spec: TaskSpec,
    parameters: np.ndarray,
    *,
    n_episodes: int = 20,
    deterministic: bool = True,
    seed: int | None = None,
    on_step: Callable[[], None] | None = None,
) -> Evaluation:
    """Play episodes with a published policy, as :func:`evaluate` does with a model.

    Episode `k` is played in environment ``k mod min(n_episodes, 8)`` from a seed of its own, so its start does not
    depend on the others.

    Parameters
    ----------
    spec, parameters
        The task, with its spaces filled in, and what its learner published; neither is changed.
    n_episodes, deterministic, seed
        As of :func:`evaluate`; without a seed the task's.
    on_step
        Called after each step of all environments: a sign of life.

    Raises
    ------
    ValueError
        If `n_episodes` < 1 or the parameters belong to another layout.
    EnvError
        If an environment cannot be made.
    """
    if n_episodes < 1:
        raise ValueError(f"n_episodes must be >= 1, got {n_episodes}")
    actor = make_actor(spec)
    actor.load(parameters)
    key = spec.seed if seed is None else seed
    envs = [make_env(spec) for _ in range(min(n_episodes, _MOST_ENVS))]
    try:
        masks = [MaskSource(env, actor.head) for env in envs] if uses_masks(spec) else []
        return _play(actor, envs, key, n_episodes, deterministic, on_step or (lambda: None), masks)
    finally:
        for env in envs:
            env.close()


def _play(
    actor: Actor,
    envs: list[gymnasium.Env],
    seed: int,
    n_episodes: int,
    deterministic: bool,
    on_step: Callable[[], None],
    masks: list[MaskSource],
) -> Evaluation:
    returns, lengths = [0.0] * n_episodes, [0] * n_episodes
    playing = dict(enumerate(range(len(envs))))  # environment -> its episode
    begun = [env.reset(seed=reset_seed(seed, EVAL, k)) for k, env in enumerate(envs)]
    obs, infos = [first[0] for first in begun], [first[1] for first in begun]
    tallies = [tally_of(env) for env in envs]
    rngs = [generator(seed, EVAL, k, 1) for k in range(n_episodes)]
    while playing:
        on_step()
        columns = list(playing)
        outputs = actor.forward(np.stack([obs[column] for column in columns]))
        outputs = masked(outputs, np.stack([masks[c](infos[c]) for c in columns])) if masks else outputs
        noise = np.zeros((len(columns), actor.head.noise_width), np.float32)
        if not deterministic:
            noise[:] = [actor.head.draw(rngs[playing[column]], noise.shape[1:]) for column in columns]
        actions = actor.to_env(actor.sample(outputs, noise))
        for column, action in zip(columns, actions, strict=True):
            obs[column], reward, terminated, truncated, infos[column] = envs[column].step(action)
            episode = playing[column]
            returns[episode] += float(reward)
            lengths[episode] += 1
            if not (terminated or truncated):
                continue
            tally = tallies[column]
            if tally is not None:
                ended = tally.drain()
                if not ended:  # a wrapper's end: a lost life, after which the game goes on, or a limit of its own
                    obs[column], infos[column] = envs[column].reset()
                    ended = tally.drain()
                if not ended:
                    continue
                returns[episode], lengths[episode] = ended[0]
            following = episode + len(envs)
            if following >= n_episodes:
                del playing[column]
            else:
                playing[column] = following
                obs[column], infos[column] = envs[column].reset(seed=reset_seed(seed, EVAL, following))
    return Evaluation(float(np.mean(returns)), float(np.std(returns)), tuple(returns), tuple(lengths), deterministic)
