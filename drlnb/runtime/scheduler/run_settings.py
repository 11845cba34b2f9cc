"""Check changes of settings of tasks that run, and keep them for their next attempts.

A value is judged beside what is in force: what the run began with, and what was changed since.  What a task refuses is
forgotten again: its next attempt would begin with it, and fail.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drlnb.planning.settings import as_config, begun_with, owner, setting_problem, unknown_setting
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.live_settings import PREFIX, live_keys, live_value

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.run import LiveRun

__all__ = ["OVER", "forget", "note", "unfit", "with_changes"]

#: States of a task in which nothing runs any more.
OVER = ("done", "failed", "stopped")


def unfit(live: "LiveRun", task: str | None, key: str, value: Any) -> str:
    """Return why a setting cannot be changed so; empty if it can.  Nothing is sent to any task then.

    Parameters
    ----------
    live
        The run.
    task
        The task that is meant; None: all.
    key, value
        The setting, and its new value.  Of a setting of the pool the value is the pool's to judge.
    """
    meant = [plain for plain in live.spec["tasks"] if task in (None, plain["name"])]
    training = [plain for plain in meant if live.tasks[plain["name"]]["state"] not in OVER]
    if not training:
        whose, state = (f"task {task}", live.tasks[task]["state"]) if task else (f"run {live.run}", live.state)
        return f"{whose} is {state}: nothing is left to change"
    if owner(key) == "pool":
        return f"{key} belongs to the pool, not to a task: leave task out" if task else ""
    problems: dict[str, list[str]] = {}
    for plain in training:
        if text := _unfit_of(live, plain, key, value):
            problems.setdefault(text, []).append(plain["name"])
    of_all = [text for text, names in problems.items() if len(names) == len(training)]
    return "; ".join(of_all or (f"task {', '.join(names)}: {text}" for text, names in problems.items()))


def _unfit_of(live: "LiveRun", plain: Mapping[str, Any], key: str, value: Any) -> str:
    """Return why one task cannot have a value; empty if it can."""
    try:
        if owner(key):
            begun = begun_with(live.spec.get("planners", {}), live.spec.get("settings", {}))
            in_force = {**begun, **live.tasks[plain["name"]]["scheduling"]}
            return setting_problem(key, value, in_force=in_force, can_snapshot=bool(plain.get("can_snapshot")))
        spec = TaskSpec.from_plain(plain)
        if not key.startswith(PREFIX):
            return unknown_setting(key, live_keys(spec))
        live_value(spec, key, value)
    except ValueError as error:  # ConfigError is one
        return str(error)
    return ""


def note(row: dict[str, Any], action: str, key: str, value: Any) -> dict[str, Any]:
    """Remember what a task's next attempt must know of a user's wish; return what was remembered before."""
    former = {kind: dict(row[kind]) for kind in ("scheduling", "live")}
    if action == "set":
        row["scheduling" if owner(key) else "live"][key] = value
    elif action in ("stop", "kill", "pause"):
        row["wanted"] = action
    elif action == "resume":
        row["wanted"] = ""
    return former


def forget(row: dict[str, Any], key: str, value: Any, former: Mapping[str, Any]) -> None:
    """Forget a value that a task has refused, unless another one was set meanwhile."""
    kind = "scheduling" if owner(key) else "live"
    if row[kind].get(key) != value:
        return
    row[kind].pop(key)
    if key in former[kind]:
        row[kind][key] = former[kind][key]


def with_changes(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return planners and settings of a task's next attempt, with what a user has changed since the run began."""
    config, settings = as_config(changes), dict(spec.get("settings", {}))
    warmup = {**settings.get("warmup", {}), **config["settings"].pop("warmup", {})}
    settings |= config["settings"] | ({"warmup": warmup} if warmup else {})
    return {"planners": {**spec.get("planners", {}), **config["planners"]}, "settings": settings}
