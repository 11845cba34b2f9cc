"""Read off an environment that the caller has made how to make another one: arguments, time limit, wrappers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

from drlnb.records.base import Facts, Row
from drlnb.records.errors import EnvError

__all__ = ["taken_apart"]

#: Arguments and wrappers that have no part in training.
_NOT_OURS, _LOOK_ON = {"render_mode"}, {"PassiveEnvChecker", "OrderEnforcing", "RecordEpisodeStatistics", "Monitor"}


def taken_apart(env: gymnasium.Env) -> tuple[str, Callable[..., gymnasium.Env] | None, Row]:
    """Return an environment's id, a function that makes another one like it, and the arguments of its constructor.

    Parameters
    ----------
    env
        As the caller made it; it is not changed.

    Returns
    -------
    tuple
        Without a function ``gymnasium.make`` of id and arguments is enough: there are no wrappers but time limits.

    Raises
    ------
    EnvError
        If ``gymnasium.make`` did not make it, or a wrapper does not tell its arguments.
    """
    spec, bare = env.spec, env.unwrapped.spec
    if spec is None or bare is None:
        name = type(env.unwrapped).__name__
        raise EnvError(f"{name} was not made by gymnasium.make: pass its class, or a function that returns it")
    kwargs = {key: value for key, value in spec.kwargs.items() if key not in _NOT_OURS}
    layers, registered = _layers(env), gymnasium.registry.get(spec.id, bare)
    if registered.additional_wrappers or not all(isinstance(layer, TimeLimit) for layer in layers):
        wrappers = [(type(layer), _arguments(layer)) for layer in layers]
        return spec.id, partial(_made, replace(bare, kwargs=kwargs), wrappers), {}
    limit = min((_arguments(layer)["max_episode_steps"] for layer in layers), default=None)
    return (
        spec.id,
        None,
        kwargs if limit == registered.max_episode_steps else kwargs | {"max_episode_steps": limit or -1},
    )


def _layers(env: gymnasium.Env) -> list[gymnasium.Wrapper]:
    """Return the wrappers around an environment that have a part in training, innermost first."""
    layers = []
    while isinstance(env, gymnasium.Wrapper):
        layers.append(env)
        env = env.env
    return [layer for layer in reversed(layers) if type(layer).__name__ not in _LOOK_ON]


def _arguments(layer: gymnasium.Wrapper) -> Facts:
    """Return what a wrapper was made with, as gymnasium's ``RecordConstructorArgs`` keeps it."""
    saved = vars(layer).get("_saved_kwargs")
    if saved is None:
        name = type(layer).__name__
        raise EnvError(f"wrapper {name} does not tell what it was made with: pass a function that makes all of it")
    return {key: value for key, value in saved.items() if key != "env"}


def _made(bare: EnvSpec, wrappers: Sequence[tuple[type, Facts]], **kwargs: object) -> gymnasium.Env:
    """Make an environment in its wrappers; those that its own constructor puts around are there already."""
    made = gymnasium.make(bare, **kwargs)
    for kind, arguments in wrappers[len(_layers(made)) :]:
        made = kind(made, **arguments)
    return made
