"""What can a person change while tasks train, and is the wish good for each of them?  Asked before anything is sent."""

import difflib
from collections.abc import Iterable
from typing import Any

from drlnb.fleet.planners import planner_names
from drlnb.records.errors import ConfigError
from drlnb.records.spec import TaskSpec
from drlnb.rl.live import PREFIX, live_keys, live_value

__all__ = ["sendable"]

#: Key -> whose planner it names.
_PLANNERS = {"leasing.hold": "hold"}


def sendable(specs: Iterable[TaskSpec], key: str, value: Any) -> Any:
    """Check a change of a setting for every task that it is meant for; return its value as plain data.

    Parameters
    ----------
    specs
        The tasks, at least one.
    key
        ``leasing.hold``, or ``rl.NAME`` of a setting of the tasks' algorithm.
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
    if key in _PLANNERS:
        planner_names({_PLANNERS[key]: value})
        return value
    if not key.startswith(PREFIX):
        known = sorted({*_PLANNERS, *(one for spec in tasks for one in live_keys(spec))})
        near = difflib.get_close_matches(key, known, n=1) or [one for one in known if one == PREFIX + key]
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{key!r} cannot be changed while tasks run{hint}; what can: {', '.join(known)}")
    values = [live_value(spec, key, value) for spec in tasks]  # every one, before any is told
    return values[0]
