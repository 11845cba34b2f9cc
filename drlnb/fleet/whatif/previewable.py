"""Refuse what a preview cannot feel, and work out the rules before and after a change.

A preview plays a run in which nothing falls silent, hangs or dies.  What such a run cannot feel is refused with the
reason, so that "nothing would change" always means that.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from drlnb.planning.settings import SETTINGS, as_config, owner, setting_problem
from drlnb.records.errors import ConfigError, nearest
from drlnb.records.journal import Journal, Stream
from drlnb.records.settings import count
from drlnb.sim.recorded.play import newest_attempts, slots_of
from drlnb.sim.recorded.settings import Rules, pool_settings, priorities, task_rules
from drlnb.sim.recorded.task import RecordedTask

__all__ = [
    "OF_SPLITS",
    "OF_STARTS",
    "OF_STEPS",
    "PREVIEWED",
    "changed",
    "refuse_unknown",
    "refuse_value",
    "rules_now",
    "why_unfelt",
]

#: Keys of modes: what becomes of a collector that has sent, and how it is started.
COLLECTOR, START = "warmup.collector_mode", "warmup.start_mode"
#: Keys of warm-up: each task's own.
OF_STARTS = tuple(key for key in SETTINGS if key.startswith("warmup."))
#: Keys of swapping: likewise.
OF_STEPS = tuple(key for key in SETTINGS if key.startswith("swapping."))
#: Keys of shared steps: likewise.
OF_SPLITS = tuple(key for key, setting in SETTINGS.items() if key.startswith("batching.") and not setting.unfelt)
#: Keys whose change is tried out.
PREVIEWED = ("slots", *(key for key, setting in SETTINGS.items() if not setting.unfelt))
#: Slots that are tried out.
_SLOTS = count(1, 1000)


def refuse_unknown(key: str, task: str | None, tasks: Collection[str]) -> None:
    """Refuse keys that cannot be tried out, and tasks that have none of it.

    Raises
    ------
    ConfigError
        With the reason in one line.
    """
    if key in SETTINGS and (reason := SETTINGS[key].unfelt):
        raise ConfigError(f"{key} cannot be tried out: {reason}")
    if key not in PREVIEWED:
        raise ConfigError(f"{key!r} cannot be tried out{nearest(key, PREVIEWED)}; what can: {', '.join(PREVIEWED)}")
    if task is not None and task not in tasks:
        raise ConfigError(f"no task {task!r} in this run; its tasks are {', '.join(sorted(tasks))}")
    if task is not None and owner(key) != "task":
        raise ConfigError(f"{key} belongs to the pool, not to a task: leave task out")


def refuse_value(key: str, value: object) -> None:
    """Refuse values that a key cannot have.

    Raises
    ------
    ConfigError
        With key, limit and value in one line.
    """
    if problem := _SLOTS.problem(key, value) if key == "slots" else setting_problem(key, value):
        raise ConfigError(problem)


def rules_now(journal: Journal, pool: Stream, names: Mapping[str, str]) -> Rules:
    """Return what is in force at the end of a run's journal.

    Parameters
    ----------
    journal, pool
        The run's, and its newest stream of the pool.
    names
        Name in the pool -> name of a task.
    """
    streams = newest_attempts(journal, list(names.values()))
    return Rules(
        n_slots=slots_of(pool),
        settings=pool_settings(pool),
        priorities=priorities(pool, names),
        tasks={name: task_rules(stream) for name, stream in streams.items()},
    )


def changed(now: Rules, key: str, value: Any, meant: Collection[str]) -> Rules:
    """Return the rules after a change that is good; `meant` names the tasks that it is for, if it is theirs."""
    name = key.rpartition(".")[2]
    if key == "slots":
        return replace(now, n_slots=value)
    if key == "task.priority":
        return replace(now, priorities={**now.priorities, **dict.fromkeys(meant, value)})
    if owner(key) == "pool":
        return replace(now, settings=replace(now.settings, **{name: value}))
    config = as_config({key: value})
    tasks = {task: dict(rules) for task, rules in now.tasks.items()}
    for task in meant:
        tasks[task] |= {**config["settings"], "planners": {**tasks[task]["planners"], **config["planners"]}}
    return replace(now, tasks=tasks)


def why_unfelt(key: str, value: object, now: Rules, played: Sequence[RecordedTask], meant: Collection[str]) -> str:
    """Return why a change of a key cannot matter to these tasks as things are; empty if it may."""
    if key == "leasing.age_quantum_s":
        given = {now.priorities.get(task.name, 0) for task in played}
        if now.settings.queue != "fifo":
            return f"the queue {now.settings.queue!r} does not age"
        return "" if len(given) > 1 else "all tasks have the same priority, so each ages as fast as the others"
    if key == "leasing.residency":
        if now.n_slots == 1:
            return "there is one slot, so none can be preferred"
        return "" if any(task.costs.switch_s for task in played) else "changing slots has cost these tasks no time"
    if key == "leasing.switch_limit_frac":
        weigh = any(_hold(now, task) == "yield" and task.config.get("streams") for task in played if task.name in meant)
        return "" if weigh else "only tasks that hold by 'yield' and compute gradients at arrival weigh a switch"
    if key in OF_STARTS:
        return _why_no_start(key, value, now, [task for task in played if task.name in meant])
    return ""


def _why_no_start(key: str, value: object, now: Rules, played: Sequence[RecordedTask]) -> str:
    """Return why a change of warm-up cannot be played of these tasks; empty if it can."""
    for task in played:
        in_force = {f"warmup.{name}": was for name, was in _warmup(now, task).items()}
        if problem := setting_problem(key, value, in_force=in_force, can_snapshot=bool(task.config.get("can_respawn"))):
            return problem
        modes = {COLLECTOR: in_force.get(COLLECTOR, "park"), START: in_force.get(START, "zygote"), key: value}
        if key not in {COLLECTOR, "warmup.planner"} and modes[COLLECTOR] == "park":
            return f"collectors of {task.name} rest, and wake with the parameters: nothing is started"
        known = task.start_modes - {"simulated"}
        if key in {COLLECTOR, START} and modes[COLLECTOR] == "respawn" and known and modes[START] not in known:
            return f"{task.name} has no start by {modes[START]} in the journal; there are some by {', '.join(known)}"
    return ""


def _warmup(now: Rules, task: RecordedTask) -> dict[str, Any]:
    planner = {**task.config.get("planners", {}), **now.tasks[task.name]["planners"]}.get("warmup")
    named = {"planner": planner} if planner else {}
    return {**task.config.get("warmup", {}), **now.tasks[task.name]["warmup"], **named}


def _hold(now: Rules, task: RecordedTask) -> str:
    planners = {**task.config.get("planners", {}), **now.tasks[task.name]["planners"]}
    return str(planners.get("hold", "yield"))
