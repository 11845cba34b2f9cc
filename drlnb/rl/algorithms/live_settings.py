"""List the settings of a task that may change while it trains, and check a new value; no torch is loaded."""

import difflib
from functools import partial
from typing import Any

import numpy as np

from drlnb.records.errors import ConfigError
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.registry import settings_class
from drlnb.rl.schedules import sampled
from drlnb.rl.settings.checks import Check

__all__ = ["PREFIX", "live_keys", "live_value"]

#: Before a setting's name in ``run.set`` and in the journal.
PREFIX = "rl."


def live_keys(spec: TaskSpec) -> tuple[str, ...]:
    """Return the keys of the settings that a task's algorithm can change from one round to the next, in name order.

    Examples
    --------
    >>> live_keys(TaskSpec(name="a", env="CartPole-v1", algo="dqn", total_timesteps=1, n_envs=1))
    ('rl.learning_rate', 'rl.tau')
    """
    return tuple(sorted(PREFIX + name for name in settings_class(spec.algo).live()))


def live_value(spec: TaskSpec, key: str, value: object) -> Any:  # plain data of the setting's type
    """Check a change of a setting and return its value as plain data.

    Parameters
    ----------
    spec
        The task.
    key
        ``rl.NAME``.
    value
        As at the start; a function of the remaining progress becomes its points.

    Raises
    ------
    ConfigError
        If there is no such setting (the message has the nearest name and all that can change), the algorithm
        cannot change it while it trains, or the value is wrong.
    """
    kind, name, known = settings_class(spec.algo), key.removeprefix(PREFIX), live_keys(spec)
    can = f"while {spec.algo} trains these can change: {', '.join(known)}"
    if name not in kind.names() or name == key:
        near = difflib.get_close_matches(PREFIX + name, [PREFIX + other for other in kind.names()], n=1)
        raise ConfigError(f"unknown setting {key!r}{f'; did you mean {near[0]!r}?' if near else ''}; {can}")
    if key not in known:
        raise ConfigError(f"{key} cannot change in a running task ({spec.name}); {can}")
    try:
        plain = _plain(partial(kind.check_value, name), value)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
    if problem := kind.check_value(name, plain):
        raise ConfigError(PREFIX + problem)
    return plain


def _plain(check: Check, value: Any) -> Any:  # whatever Python has, to what JSON has
    """Turn what Python has into what a message holds; 3.0 where only whole numbers are good into 3."""
    if callable(value):
        return sampled(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and value.is_integer() and check(value) and check(int(value)) is None:
        return int(value)
    return value
