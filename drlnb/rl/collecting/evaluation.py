"""Evaluate policies: whole episodes with frozen statistics, raw rewards, and seeds of their own.

Each environment gets its number of episodes beforehand: taking whichever finish first would favour short ones.  An
episode that reaches the task's ``eval_max_steps`` is cut there: not every environment ends by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import gymnasium
import numpy as np

from drlnb.records.episodes import Episode, success, success_rate
from drlnb.records.spec import RlWork
from drlnb.rl.acting.actors import Actor
from drlnb.rl.algorithms.registry import make_actor
from drlnb.rl.envs.given import sourced
from drlnb.rl.envs.make import make_env, probe
from drlnb.rl.envs.masks import MaskSource, masked, uses_masks
from drlnb.rl.envs.monitor_files import write_episodes
from drlnb.rl.envs.wrappers import tally_of
from drlnb.rl.heads import Head
from drlnb.rl.rows import scalar
from drlnb.rl.seeding import EVAL, generator, reset_seed

__all__ = ["Evaluation", "evaluate", "evaluate_parameters"]

#: Rows of a forward pass, and most environments stepped together; more hardly help beyond.
_MOST_ENVS = 8


class Model(Protocol):
    """What ``drlnb.PPO`` and its kin are."""

    spec: RlWork
    #: As its learner published them.
    parameters: np.ndarray
    version: int


class State(Protocol):
    """What a policy's parameters are of."""

    published: np.ndarray


class Policy(Protocol):
    """What ``model.policy`` is."""

    spec: RlWork

    def parameters(self) -> object: ...

    def taken(self) -> State: ...


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
    #: Per episode whether it succeeded, 1 or 0; None where its environment does not say (``info["is_success"]``).
    successes: tuple[float | None, ...] = ()

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """Return each episode's return, length and success."""
        successes = self.successes or (None,) * len(self.returns)
        each = zip(self.returns, self.lengths, successes, strict=True)
        return tuple((r, n) if success is None else (r, n, success) for r, n, success in each)

    @property
    def success_rate(self) -> float | None:
        """The share of episodes that succeeded, of those whose environment judges that; None if none does."""
        return success_rate(self.episodes)


def evaluate(
    model: Model | Policy,
    env: object = None,
    *,
    n_episodes: int = 40,
    deterministic: bool = True,
    seed: int | None = None,
) -> Evaluation:
    """Play whole episodes with a model; its statistics stay as they are.

    Parameters
    ----------
    model
        What ``drlnb.PPO`` and its kin are, and ``run.load()`` returns; or its ``policy``.
    env
        An id, a class, a function, or an environment that was made, with the same spaces; copies of it are played.
        None: the environment that it was trained on.
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
    spec: RlWork = model.spec
    if env is not None and env != spec.env:
        moved = replace(spec, **sourced(env))
        for name, space in probe(moved).items():
            wanted = dict(getattr(spec, name) or {})
            if dict(space) != wanted:
                raise ValueError(
                    f"{moved.env} has the {name.replace('_', ' ')} {space}, the model was trained on {wanted}"
                )
        spec = moved
    parameters, version = _published(model)
    outcome = evaluate_parameters(spec, parameters, n_episodes=n_episodes, deterministic=deterministic, seed=seed)
    return replace(outcome, version=version)


def _published(model: Model | Policy) -> tuple[np.ndarray, int]:
    """Return what a model's actors need, and the version of that; a policy does not know its own."""
    if isinstance(model.parameters, np.ndarray):
        return model.parameters, model.version
    return model.taken().published, 0


def evaluate_parameters(
    spec: RlWork,
    parameters: np.ndarray,
    *,
    n_episodes: int = 20,
    deterministic: bool = True,
    seed: int | None = None,
    on_step: Callable[[], None] | None = None,
    envs: Sequence[gymnasium.Env] = (),
) -> Evaluation:
    """Play episodes with a published policy, as :func:`evaluate` does with a model.

    Each episode begins with a seed of its own and has its own row in the forward pass, so neither its start nor its
    bits depend on the others, or on the number of environments.

    Parameters
    ----------
    spec, parameters
        The task, with its spaces filled in, and what its learner published; neither is changed.
    n_episodes, deterministic, seed
        As of :func:`evaluate`; without a seed the task's.
    on_step
        Called after each step of all environments: a sign of life.
    envs
        The task's environments to play in, which end inside an episode; none: up to 8 are made, and closed.

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
    n_rows = min(n_episodes, _MOST_ENVS)
    made = [] if envs else [make_env(spec, index=spec.n_envs + i) for i in range(n_rows)]
    playing = made or envs[: next(n for n in (8, 4, 2, 1) if n <= len(envs))]
    for env in envs:
        write_episodes(env, wanted=False)  # these train otherwise
    try:
        return _play(spec, actor, playing[:n_rows], key, n_episodes, deterministic, on_step or (lambda: None))
    finally:
        for env in envs:
            write_episodes(env, wanted=True)
        for env in made:
            env.close()


class _Player:
    """One environment of an evaluation, its present episode, and what it has shown.

    Parameters
    ----------
    spec, head, seed
        The task, its policy's head, and what episodes' starts are drawn from.
    env
        Where it plays.
    """

    def __init__(self, spec: RlWork, head: Head, env: gymnasium.Env, seed: int) -> None:
        self._env, self._tally, self._mask = env, tally_of(env), MaskSource(env, head)
        self._seed, self._most = seed, spec.eval_max_steps

    def begin(self, episode: int) -> None:
        """Begin an episode."""
        self.episode, self.total, self.length = episode, 0.0, 0
        self.success: float | None = None
        self._reset(anew=True)
        if self._tally is not None:
            self._tally.drain()  # what was under way in an environment that has acted before

    def _reset(self, *, anew: bool) -> None:
        """Reset; without a seed some wrappers go on with the next life of a game instead."""
        self.obs, self._info = self._env.reset(seed=reset_seed(self._seed, EVAL, self.episode) if anew else None)

    def allowed(self) -> np.ndarray:
        """Return which actions are allowed now."""
        return self._mask(self._info)

    def step(self, action: object) -> bool:
        """Step; return whether the episode has ended, or is cut."""
        self.obs, reward, terminated, truncated, self._info = self._env.step(action)
        self.total += scalar(reward)
        self.length += 1
        cut = self.length >= self._most
        if self._tally is None or not (terminated or truncated or cut):
            self.success = next(iter(success(self._info)), None)
            return bool(terminated or truncated or cut)
        ended = self._tally.drain()
        if not ended:  # a wrapper's end: a lost life, after which the game goes on, or a limit of its own
            self._reset(anew=cut)
            ended = self._tally.drain()
        if ended:
            self.total, length, *said = ended[0]
            self.length, self.success = int(length), next(iter(said), None)
        return bool(ended)


def _play(
    spec: RlWork,
    actor: Actor,
    envs: Sequence[gymnasium.Env],
    seed: int,
    n_episodes: int,
    deterministic: bool,
    on_step: Callable[[], None],
) -> Evaluation:
    returns, lengths = [0.0] * n_episodes, [0] * n_episodes
    successes: list[float | None] = [None] * n_episodes
    playing = [_Player(spec, actor.head, env, seed) for env in envs]
    for episode, player in enumerate(playing):
        player.begin(episode)
    # An episode has its own row, however many environments there are.
    n_rows, space = min(n_episodes, _MOST_ENVS), spec.observation_space or {}
    obs = np.zeros((n_rows, *space["shape"]), np.dtype(space["dtype"]))
    allowed = np.ones((n_rows, actor.head.width), np.bool_) if uses_masks(spec) else None
    noise = np.zeros((n_rows, actor.head.noise_width), np.float32)
    rngs = [generator(seed, EVAL, k, 1) for k in range(n_episodes)]
    while playing:
        on_step()
        for player in playing:
            row = player.episode % n_rows
            obs[row] = player.obs
            if allowed is not None:
                allowed[row] = player.allowed()
            if not deterministic:
                noise[row] = actor.head.draw(rngs[player.episode], noise.shape[1:])
        outputs = actor.forward(obs)
        actions = actor.to_env(actor.sample(outputs if allowed is None else masked(outputs, allowed), noise))
        for player in tuple(playing):
            episode = player.episode
            if not player.step(actions[episode % n_rows]):
                continue
            returns[episode], lengths[episode], successes[episode] = player.total, player.length, player.success
            if episode + len(envs) < n_episodes:
                player.begin(episode + len(envs))
            else:
                playing.remove(player)
    return Evaluation(
        mean=float(np.mean(returns)),
        std=float(np.std(returns)),
        returns=tuple(returns),
        lengths=tuple(lengths),
        deterministic=deterministic,
        successes=tuple(successes),
    )
