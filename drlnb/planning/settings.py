"""Derive the settings of scheduling from their declarations: keys, owners, defaults, and checks of new values.

A value is judged beside what is in force, never beside the defaults: `leasing.ttl_s` may be 5 s where `holder_ttl_s` is
4 s already.  What is in force is known to whoever holds the settings: the pool, or the broker for each task.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from drlnb.planning.batching import BATCHING, COLLECT
from drlnb.planning.batching.gather import MANY, Gathering, gathering_problem
from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.leasing.requests import PRIORITIES
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement import PLACEMENT
from drlnb.planning.placement.cpu_slots import AUTO, CPU_SLOTS, CPU_SLOTS_KEY
from drlnb.planning.placement.tasks import PlacementSettings
from drlnb.planning.registry import AnyKind, planner
from drlnb.planning.swapping import SWAPPING
from drlnb.planning.swapping.profile import ACTIONS
from drlnb.planning.warmup.settings import WarmupSettings, mode_problem
from drlnb.records.base import Facts, Row
from drlnb.records.effect import NEXT_PLACEMENT, NEXT_ROUND, NEXT_STEP
from drlnb.records.settings import ANYTHING, Declared, Kind, Setting, fitting, optional, parse_text, size

__all__ = [
    "BUDGETS",
    "SETTINGS",
    "SLOT_KEYS",
    "TASK_KEYS",
    "TASK_ROOMS",
    "as_config",
    "begun_with",
    "owner",
    "read_setting",
    "setting_problem",
    "settings_problems",
    "takes_effect",
    "unknown_setting",
]

_ROOMS: tuple[type[Declared], ...] = (LeasingSettings, WarmupSettings, Gathering, PlacementSettings)
#: Rooms whose settings a round machine is configured with by the room's name.
TASK_ROOMS = ("warmup", "swapping", "batching")
_UNPLAYED = "no preview plays it"
#: Which slots there are is the pool's to say: see :func:`setting_problem`.
_SLOT = Setting(kind=ANYTHING, default=None, unfelt=_UNPLAYED)


def _planned(kind: AnyKind, counts: str = NEXT_ROUND, unfelt: str = _UNPLAYED) -> Setting:
    return Setting(
        kind=planner(kind), default=kind.default, owner="task", counts=counts, unfelt=unfelt, decision=kind.decision
    )


#: Bytes that a gradient step may use, or none.
BUDGETS = optional(size())
_PINS = fitting(
    f"rows such as net.features.0#0, each with one of {', '.join(ACTIONS)}",
    lambda value: value is None or (isinstance(value, Mapping) and all(each in ACTIONS for each in value.values())),
)


def _own(kind: Kind) -> Setting:
    return Setting(kind=kind, default=None, owner="task", counts=NEXT_STEP)


#: Key -> setting, of all beside those of the algorithms (``rl.NAME``).
SETTINGS: Mapping[str, Setting] = {
    **{f"{room.ROOM}.{name}": setting for room in _ROOMS for name, setting in room.declared().items()},
    "batching.planner": _planned(BATCHING, unfelt=""),
    "batching.collect": _planned(COLLECT, unfelt="it shares steps, of which a round has other things to wait for, too"),
    "distribution.plan": _planned(DISTRIBUTION),
    "placement.planner": _planned(PLACEMENT, NEXT_PLACEMENT),
    "swapping.planner": _planned(SWAPPING, NEXT_STEP, ""),
    "swapping.memory_budget_bytes": _own(BUDGETS),
    "swapping.pin": _own(_PINS),
    "task.priority": Setting(kind=PRIORITIES, default=0, owner="task"),
    CPU_SLOTS_KEY: Setting(kind=CPU_SLOTS, default=AUTO, unfelt=_UNPLAYED),
    "slot.drain": _SLOT,
    "slot.undrain": _SLOT,
}

#: Keys that take a slot out of the pool, or back in; their value is the slot's name.
SLOT_KEYS = tuple(key for key, setting in SETTINGS.items() if setting is _SLOT)
#: Each task's own.
TASK_KEYS = tuple(key for key, setting in SETTINGS.items() if setting.owner == "task")

#: Most names that are suggested for an unknown one, and how much less alike than the best they may be (0 to 1).
_NEAREST, _AS_NEAR = 3, 0.1


def owner(key: str) -> Literal["task", "pool", ""]:
    """Return whose a setting is; empty for a key that is not scheduling's.

    Examples
    --------
    >>> owner("warmup.rho"), owner("leasing.ttl_s"), owner("rl.gamma")
    ('task', 'pool', '')
    """
    return SETTINGS[key].owner if key in SETTINGS else ""


def takes_effect(key: str) -> str:
    """Return from when on a change of a setting counts, in words that end a sentence.

    Examples
    --------
    >>> takes_effect("task.priority"), takes_effect("leasing.ttl_s"), takes_effect("rl.learning_rate")
    ('at once', 'from the next grant on', 'from the next round on')
    """
    return SETTINGS[key].counts if key in SETTINGS else NEXT_ROUND


def read_setting(key: str, text: str) -> object:
    """Return what a text means for a setting: a value that is wrong as it was written, for who judges it.

    Examples
    --------
    >>> read_setting("swapping.planner", "none"), read_setting("warmup.rho", "2"), read_setting("rl.target_kl", "none")
    ('none', 2, None)
    """
    return SETTINGS[key].kind.wanted(text) if key in SETTINGS else parse_text(text)


def unknown_setting(key: str, more: Iterable[str] = ()) -> str:
    """Return the complaint about an unknown setting, with the nearest ones.

    Parameters
    ----------
    key
        What was asked for.
    more
        Keys that are known beside :data:`SETTINGS`.

    Examples
    --------
    >>> unknown_setting("warmup.rhoo")
    "unknown setting 'warmup.rhoo'; did you mean 'warmup.rho'?"
    """
    if not isinstance(key, str):
        return f"a setting is named by a word such as 'warmup.rho', got {key!r}"
    known = [*SETTINGS, *more]
    near = difflib.get_close_matches(key, known, n=_NEAREST)
    near = [each for each in near if _likeness(key, each) > _likeness(key, near[0]) - _AS_NEAR]
    # A right name without its room, or under a wrong one, is nearer than any of that room.
    near = [each for each in known if each.partition(".")[2] == key.rpartition(".")[2]] or near
    if near:
        return f"unknown setting {key!r}; did you mean {' or '.join(map(repr, near))}?"
    rooms = dict.fromkeys([f"{each.partition('.')[0]}.NAME" for each in SETTINGS])
    return f"unknown setting {key!r}; known are {', '.join(rooms)}, rl.NAME"


def _likeness(key: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other, key).ratio()


def begun_with(planners: Facts, settings: Facts) -> Row:
    """Return what a run begins with, by key.

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
    known = {f"leasing.{name}": value for name, value in settings.items()}
    known |= {f"{room}.{name}": value for room in TASK_ROOMS for name, value in settings.get(room, {}).items()}
    known |= {key: planners[each.decision] for key, each in SETTINGS.items() if each.decision in planners}
    return {key: known[key] for key in TASK_KEYS if key in known}


def as_config(changes: Facts) -> dict[str, Row]:
    """Return settings of tasks as a round machine is configured: ``planners``, and ``settings`` of its rooms.

    Parameters
    ----------
    changes
        Key -> value; what is not each task's own, and what the pool holds for it, is left out.

    Examples
    --------
    >>> as_config({"leasing.hold": "last", "leasing.switch_limit_frac": 0.5, "warmup.rho": 2.0, "task.priority": 1})
    {'planners': {'hold': 'last'}, 'settings': {'switch_limit_frac': 0.5, 'warmup': {'rho': 2.0}}}
    """
    planners: Row = {}
    settings: Row = {}
    for key, value in changes.items():
        room, _, name = key.partition(".")
        if owner(key) != "task" or key == "task.priority":
            continue
        if SETTINGS[key].decision:
            planners[SETTINGS[key].decision] = value
        elif room == "leasing":
            settings[name] = value
        else:
            settings.setdefault(room, {})[name] = value
    return {"planners": planners, "settings": settings}


def setting_problem(
    key: str,
    value: object,
    *,
    in_force: Facts | None = None,
    can_snapshot: bool = False,
    n_learners: int | None = None,
    slots: Collection[str] = (),
) -> str:
    """Return why a setting of scheduling cannot have a value; empty if it can.

    Parameters
    ----------
    key
        One of :data:`SETTINGS`.
    value
        Its new value.
    in_force
        What the other settings are now, where that is not the default.
    can_snapshot
        Whether the task's environments can be frozen and thawed: ``respawn`` needs that.
    n_learners
        The task's, where they share steps; None: that is not known.
    slots
        Names of the slots that the pool has.

    Examples
    --------
    >>> setting_problem("warmup.rho", -1)
    'warmup.rho: rho must be a number from 1e-9 to 1e9, got -1'
    >>> setting_problem("leasing.ttl_s", 5.0, in_force={"leasing.holder_ttl_s": 4.0})
    ''
    """
    if key in SLOT_KEYS:
        return _slot_problem(key, value, slots)
    changes = {key: value}
    return "; ".join(settings_problems(changes, in_force=in_force, can_snapshot=can_snapshot, n_learners=n_learners))


def settings_problems(
    changes: Facts, *, in_force: Facts | None = None, can_snapshot: bool = False, n_learners: int | None = None
) -> list[str]:
    """Return why some settings cannot have their values together; empty if they can.

    Parameters
    ----------
    changes
        Key -> new value.
    in_force, can_snapshot, n_learners
        As of :func:`setting_problem`.

    Examples
    --------
    >>> settings_problems({"warmup.min_rounds": 40, "warmup.filter_window": 40})
    []
    """
    then = {**(in_force or {}), **changes}
    problems = [unknown_setting(key) for key in changes if key not in SETTINGS]
    of_rooms = set[str]()
    for room in _ROOMS:
        names = {f"{room.ROOM}.{name}": name for name in room.declared()}
        of_rooms |= names.keys()
        if given := [key for key in changes if key in names]:
            texts = room.problems({name: then[key] for key, name in names.items() if key in then})
            problems += [f"{_blamed(text, given)}: {text}" for text in texts]
    others = {key: value for key, value in changes.items() if key in SETTINGS.keys() - of_rooms}
    problems += [text for key, value in others.items() if (text := SETTINGS[key].kind.problem(key, value))]
    if problem := mode_problem(changes.get("warmup.collector_mode"), can_snapshot=can_snapshot):
        problems.append(f"warmup.{problem}")
    return problems or _of_gathering(changes, then, n_learners)


def _of_gathering(changes: Facts, then: Facts, n_learners: int | None) -> list[str]:
    """Return what is wrong with settings of shared steps beside each other, each of which is good by itself."""
    keys = {f"{Gathering.ROOM}.{name}": name for name in Gathering.declared()}
    if keys.keys().isdisjoint(changes):
        return []
    gathering = Gathering(**{name: then[key] for key, name in keys.items() if key in then})
    problem = gathering_problem(gathering, n_learners or MANY)
    return [f"{Gathering.ROOM}.{problem}"] if problem else []


def _blamed(text: str, given: Collection[str]) -> str:
    """Return the setting that a complaint begins with, if it was given; else all that were."""
    word = text.partition(" ")[0]
    return next((key for key in given if key.partition(".")[2] == word), ", ".join(given))


def _slot_problem(key: str, value: object, slots: Collection[str]) -> str:
    if isinstance(value, str) and value in slots:
        return ""
    there = f"it has {', '.join(sorted(slots))}" if slots else "it has none yet"
    return f"{key}: the pool has no slot {value!r}; {there}"
