"""What can a person change while tasks train, and is the wish good for each of them?  Asked before anything is sent."""

import difflib
from collections.abc import Iterable
from typing import Any

from drlnb.planning.live_settings import SCHEDULING_KEYS, owner, setting_problem
from drlnb.records.errors import ConfigError
from drlnb.records.spec import TaskSpec
from drlnb.rl.live import PREFIX, live_keys, live_value

__all__ = ["sendable"]


def sendable(specs: Iterable[TaskSpec], key: str, value: Any) -> Any:
    """Check a change of a setting for every task that it is meant for; return its value as plain data.

    Parameters
    ----------
    specs
        The tasks, at least one.
    key
        One of scheduling's (:data:`~drlnb.planning.live_settings.SCHEDULING_KEYS`), or ``rl.NAME`` of a setting of
        the tasks' algorithm.
    value
        Its new value.

    Raises
    ------
    ConfigError
        If the key is unknown, a task's algorithm cannot change it, or the value is wrong.

    Examples
    --------
    >>> task = TaskSpec(name="a", env="CartPole-v1", algo="ppo", total_timesteps=1, n_envs=1)
    >>> sendable([task], "rl.learning_rate", 1e-4)
    0.0001
    """
    tasks = tuple(specs)
    if owner(key):
        for spec in tasks:
            if problem := setting_problem(key, value, can_snapshot=bool(spec.can_snapshot)):
                raise ConfigError(problem)
        return value
    if not key.startswith(PREFIX):
        of_algorithms = sorted({one for spec in tasks for one in live_keys(spec)})
        known = [*SCHEDULING_KEYS, *of_algorithms]
        near = difflib.get_close_matches(key, known, n=1) or [one for one in known if one == PREFIX + key]
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{key!r} cannot be changed while tasks run{hint}; what can: leasing.NAME, task.priority, warmup.NAME, "
            f"{', '.join(of_algorithms)}"
        )
    values = [live_value(spec, key, value) for spec in tasks]  # every one, before any is told
    return values[0]
