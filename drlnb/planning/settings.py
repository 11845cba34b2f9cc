"""Which settings of scheduling may change while tasks train, whose are they, and is a new value good?

A value is judged beside what is in force, never beside the defaults: `leasing.ttl_s` may be 5 s where `holder_ttl_s` is
4 s already.  What is in force is whoever holds the settings to say: the pool, or the broker for each task.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal

from drlnb.planning.leasing.machine import priority_problem
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.warmup import WarmupSettings
from drlnb.planning.warmup.cpu_slots import CPU_SLOTS_KEY, cpu_slots_problem
from drlnb.records.errors import ConfigError

__all__ = [
    "POOL_KEYS",
    "SCHEDULING_KEYS",
    "SLOT_KEYS",
    "TASK_KEYS",
    "begun_with",
    "owner",
    "setting_problem",
    "settings_problems",
    "unknown_setting",
]

_LEASING_OF_TASKS = ("leasing.hold", "leasing.switch_limit_frac")

#: Keys that take a slot out of the pool, or back in; their value is the slot's name.
SLOT_KEYS = ("slot.drain", "slot.undrain")

#: Each task's own.  From when on each key counts says :mod:`drlnb.records.effect`.
TASK_KEYS = (*_LEASING_OF_TASKS, "task.priority", *(f"warmup.{field.name}" for field in fields(WarmupSettings)))

#: The pool's: one value for all who share it.
POOL_KEYS = (
    *(key for field in fields(LeasingSettings) if (key := f"leasing.{field.name}") not in _LEASING_OF_TASKS),
    CPU_SLOTS_KEY,
    *SLOT_KEYS,
)

#: All keys beside those of the algorithms (``rl.NAME``).
SCHEDULING_KEYS = (*TASK_KEYS, *POOL_KEYS)

#: Decision of a planner -> the key under which it can be changed.
_PLANNERS: Mapping[str, str] = {"hold": "leasing.hold", "warmup": "warmup.planner"}

#: Most names that are told of an unknown one, and how much less alike than the best they may be (0 to 1).
_NEAREST, _AS_NEAR = 3, 0.1


def owner(key: str) -> Literal["task", "pool", ""]:
    """Return whose a setting is; empty for a key that is not scheduling's.

    Examples
    --------
    >>> owner("warmup.rho"), owner("leasing.ttl_s"), owner("rl.gamma")
    ('task', 'pool', '')
    """
    return "task" if key in TASK_KEYS else "pool" if key in POOL_KEYS else ""


def unknown_setting(key: str, more: Iterable[str] = ()) -> str:
    """Say that there is no such setting, with the nearest ones.

    Parameters
    ----------
    key
        What was asked for.
    more
        Keys that are known beside :data:`SCHEDULING_KEYS`.

    Examples
    --------
    >>> unknown_setting("warmup.rhoo")
    "unknown setting 'warmup.rhoo'; did you mean 'warmup.rho'?"
    """
    known = [*SCHEDULING_KEYS, *more]
    near = difflib.get_close_matches(key, known, n=_NEAREST)
    near = [one for one in near if _likeness(key, one) > _likeness(key, near[0]) - _AS_NEAR]
    # A right name without its room, or under a wrong one, is nearer than any of that room.
    near = [one for one in known if one.partition(".")[2] == key.rpartition(".")[2]] or near
    if not near:
        return f"unknown setting {key!r}; known are leasing.NAME, slot.NAME, task.priority, warmup.NAME, rl.NAME"
    return f"unknown setting {key!r}; did you mean {' or '.join(map(repr, near))}?"


def _likeness(key: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other, key).ratio()


def begun_with(planners: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run begins with, under the keys of this module.

    Parameters
    ----------
    planners
        Decision -> planner's name.
    settings
        The round machine's configuration; what is no setting of scheduling is left out.

    Examples
    --------
    >>> begun_with({"hold": "last"}, {"env_timeout_s": 60.0, "warmup": {"rho": 2.0}})
    {'leasing.hold': 'last', 'warmup.rho': 2.0}
    """
    found = {_PLANNERS[what]: name for what, name in planners.items() if what in _PLANNERS}
    found |= {f"leasing.{name}": value for name, value in settings.items()}
    found |= {f"warmup.{name}": value for name, value in settings.get("warmup", {}).items()}
    return {key: value for key, value in found.items() if key in TASK_KEYS}


def setting_problem(
    key: str,
    value: Any,
    *,
    in_force: Mapping[str, Any] | None = None,
    can_snapshot: bool = False,
    slots: Collection[str] = (),
) -> str:
    """Say why a setting of scheduling cannot have a value; empty if it can.

    Parameters
    ----------
    key
        One of :data:`SCHEDULING_KEYS`.
    value
        Its new value.
    in_force
        What the other settings are now, where that is not the default.
    can_snapshot
        Whether the task's environments can be frozen and thawed: ``respawn`` needs that.
    slots
        Names of the slots that the pool has.

    Examples
    --------
    >>> setting_problem("warmup.rho", -1)
    'warmup.rho: rho must be a finite number > 0, got -1'
    >>> setting_problem("leasing.ttl_s", 5.0, in_force={"leasing.holder_ttl_s": 4.0})
    ''
    """
    if key in SLOT_KEYS:
        return _slot_problem(key, value, slots)
    problems = settings_problems({key: value}, in_force=in_force, can_snapshot=can_snapshot)
    return "; ".join(problems)


def settings_problems(
    changes: Mapping[str, Any], *, in_force: Mapping[str, Any] | None = None, can_snapshot: bool = False
) -> list[str]:
    """Say why some settings cannot have their values together; empty if they can.

    Parameters
    ----------
    changes
        Key -> new value.
    in_force, can_snapshot
        As of :func:`setting_problem`.

    Examples
    --------
    >>> settings_problems({"warmup.min_rounds": 40, "warmup.filter_window": 40})
    []
    """
    then = {**(in_force or {}), **changes}
    problems = [text for key, value in changes.items() if (text := _alone(key, value))]
    for room, kind in (("leasing", LeasingSettings), ("warmup", WarmupSettings)):
        known = {field.name for field in fields(kind)}
        given = [key for key in changes if key.startswith(f"{room}.") and owner(key)]
        names = {key: key.partition(".")[2] for key in then}
        wanted = {name: then[key] for key, name in names.items() if key == f"{room}.{name}" and name in known}
        try:
            if given:
                kind(**wanted)
        except ConfigError as error:
            problems += [f"{_blamed(text, given)}: {text}" for text in error.problems]
    if changes.get("warmup.collector_mode") == "respawn" and not can_snapshot:
        problems.append(
            "warmup.collector_mode: 'respawn' needs environments that can be frozen and thawed exactly: a new process "
            "would begin new episodes each round, and states late in an episode would never be seen; use 'park' or "
            "'keep'"
        )
    return problems


def _alone(key: str, value: Any) -> str:
    """Return what is wrong with a value whatever the others are; the rooms' settings are checked together."""
    if not owner(key):
        return unknown_setting(key)
    if key == "task.priority":
        return priority_problem(value)
    return cpu_slots_problem(value) if key == CPU_SLOTS_KEY else ""


def _blamed(text: str, given: Collection[str]) -> str:
    """Return the setting that a complaint begins with, if it was given; else all that were."""
    word = text.partition(" ")[0]
    return next((key for key in given if key.partition(".")[2] == word), ", ".join(given))


def _slot_problem(key: str, value: Any, slots: Collection[str]) -> str:
    if isinstance(value, str) and value in slots:
        return ""
    there = f"it has {', '.join(sorted(slots))}" if slots else "it has none yet"
    return f"{key}: the pool has no slot {value!r}; {there}"
