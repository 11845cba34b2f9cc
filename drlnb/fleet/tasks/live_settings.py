"""Check a change of a setting for every task that is meant, before anything is sent."""

import json
from collections.abc import Iterable
from typing import Any

from drlnb.planning.settings import owner, unknown_setting
from drlnb.records.errors import ConfigError
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.live_settings import PREFIX, live_keys, live_value

__all__ = ["plain", "sendable"]


def plain(key: str, value: Any) -> Any:
    """Return a value of scheduling if it can be written into a journal; whether it is good the cluster says.

    Raises
    ------
    ConfigError
        If it is no plain data.
    """
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{key} must be a number, a word, true or false, got {value!r}") from None
    return value


def sendable(specs: Iterable[TaskSpec], key: str, value: Any) -> Any:
    """Return a new value as plain data, checked as far as it can be without asking the cluster.

    A setting of the algorithm is checked for every task; one of scheduling is judged by the cluster, beside what is in
    force there.

    Parameters
    ----------
    specs
        The tasks, at least one.
    key
        One of scheduling's (:data:`~drlnb.planning.settings.SETTINGS`), or ``rl.NAME`` of a setting of
        the tasks' algorithm.
    value
        Its new value.

    Raises
    ------
    ConfigError
        If the key is unknown, a task's algorithm cannot change it, or its value is wrong.

    Examples
    --------
    >>> task = TaskSpec(name="a", env="CartPole-v1", algo="ppo", total_timesteps=1, n_envs=1)
    >>> sendable([task], "rl.learning_rate", 1e-4)
    0.0001
    """
    tasks = tuple(specs)
    if owner(key):
        return plain(key, value)
    if not key.startswith(PREFIX):
        raise ConfigError(unknown_setting(key, sorted({known for spec in tasks for known in live_keys(spec)})))
    values = [live_value(spec, key, value) for spec in tasks]  # all are checked before any is sent
    return values[0]
