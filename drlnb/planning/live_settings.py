"""Which settings of scheduling may change while tasks train, whose are they, and is a new value good?"""

import difflib
from dataclasses import asdict, fields
from typing import Any, Literal

from drlnb.planning.leasing.machine import priority_problem
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.warmup import WarmupSettings
from drlnb.planning.warmup.cpu_slots import CPU_SLOTS_KEY, cpu_slots_problem
from drlnb.records.errors import ConfigError

__all__ = ["POOL_KEYS", "SCHEDULING_KEYS", "TASK_KEYS", "owner", "setting_problem"]

_LEASING_OF_TASKS = ("leasing.hold", "leasing.switch_limit_frac")

#: Each task's own: they count from its next round on.
TASK_KEYS = (*_LEASING_OF_TASKS, "task.priority", *(f"warmup.{field.name}" for field in fields(WarmupSettings)))

#: The pool's: one value for all who share it; they count at once, or from the next grant on.
POOL_KEYS = (
    *(key for field in fields(LeasingSettings) if (key := f"leasing.{field.name}") not in _LEASING_OF_TASKS),
    CPU_SLOTS_KEY,
)

#: All keys beside those of the algorithms (``rl.NAME``).
SCHEDULING_KEYS = (*TASK_KEYS, *POOL_KEYS)


def owner(key: str) -> Literal["task", "pool", ""]:
    """Return whose a setting is; empty for a key that is not scheduling's.

    Examples
    --------
    >>> owner("warmup.rho"), owner("leasing.ttl_s"), owner("rl.gamma")
    ('task', 'pool', '')
    """
    return "task" if key in TASK_KEYS else "pool" if key in POOL_KEYS else ""


def setting_problem(key: str, value: Any, *, can_snapshot: bool = False) -> str:
    """Say why a setting of scheduling cannot have a value; empty if it can.

    Parameters
    ----------
    key
        One of :data:`SCHEDULING_KEYS`.
    value
        Its new value.
    can_snapshot
        Whether the task's environments can be frozen and thawed: ``respawn`` needs that.

    Examples
    --------
    >>> setting_problem("warmup.rho", -1)
    'warmup.rho: rho must be a finite number > 0, got -1'
    >>> setting_problem("leasing.hold", "last")
    ''
    """
    if not owner(key):
        near = difflib.get_close_matches(key, SCHEDULING_KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "known are leasing.NAME, task.priority, warmup.NAME"
        return f"unknown setting {key!r}; {hint}"
    if key == "task.priority":
        return priority_problem(value)
    if key == CPU_SLOTS_KEY:
        return cpu_slots_problem(value)
    room, _, name = key.partition(".")
    kind = LeasingSettings if room == "leasing" else WarmupSettings
    try:
        kind(**{**asdict(kind()), name: value})
    except ConfigError as error:
        return f"{key}: {error}"
    if (key, value) == ("warmup.collector_mode", "respawn") and not can_snapshot:
        return (
            f"{key}: 'respawn' needs environments that can be frozen and thawed exactly: a new process would begin new "
            "episodes each round, and states late in an episode would never be seen; use 'park' or 'keep'"
        )
    return ""
