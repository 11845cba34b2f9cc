"""How does a run begin?  Its environments are tried, its directory is made, the cluster is told."""

import datetime
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drlnb.fleet.cluster.existing import check, prepare
from drlnb.fleet.cluster.link import Link
from drlnb.fleet.training import Training
from drlnb.planning.settings import SETTINGS, as_config, begun_with, owner, setting_problem, settings_problems
from drlnb.records.errors import ConfigError, EnvError
from drlnb.records.spec import SOURCE_KEYS, TaskSpec
from drlnb.rl.checkpoints.trained import Trained
from drlnb.rl.settings.checks import POSITIVE
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.files.versions import versions
from drlnb.runtime.master.checkpoint_effects import write_trained

__all__ = ["attach", "default_out", "launch", "run_spec", "same_work"]

#: Version of run.json.
_SPEC_FORMAT = 1

#: What a task's spec holds beside the caller's wishes.
_NOT_ASKED = {"origin", "observation_space", "action_space", "can_snapshot"}


def default_out() -> Path:
    """Return a run directory named by the time, that is free."""
    now = datetime.datetime.now().astimezone()
    first = Path("runs") / now.strftime("%Y%m%d-%H%M%S")
    path, n = first, 1
    while path.exists():
        n += 1
        path = first.with_name(f"{first.name}-{n}")
    return path


def run_spec(
    specs: Sequence[TaskSpec],
    planners: Mapping[str, str],
    *,
    env_timeout_s: float | None = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what ``run.json`` shall hold, with a new run id.

    Raises
    ------
    ConfigError
        If `env_timeout_s` is neither None nor a number of seconds > 0, or a setting is unknown or wrong beside the
        others that are given.
    """
    if env_timeout_s is not None and POSITIVE(env_timeout_s):
        raise ConfigError(f"env_timeout_s {POSITIVE(env_timeout_s)} or None, got {env_timeout_s!r}")
    now = datetime.datetime.now().astimezone()
    return {
        "format": _SPEC_FORMAT,
        "run": f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}",
        "created": now.isoformat(timespec="seconds"),
        "tasks": [spec.to_plain() for spec in specs],
        "planners": dict(planners),
        "settings": {"env_timeout_s": env_timeout_s, **_scheduling(settings or {})},
        "versions": versions(),
    }


def _scheduling(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys of scheduling as the round machine's configuration."""
    problems = [text for key, value in settings.items() if (text := _not_at_first(key, value))]
    ours = {key: value for key, value in settings.items() if not _not_at_first(key, value)}
    problems += settings_problems(ours, can_snapshot=True)  # each task's environment is asked once it has been tried
    if problems:
        raise ConfigError(problems)
    return as_config(settings)["settings"]


def _not_at_first(key: str, value: Any) -> str:
    """Return why a setting cannot be given to a new run; empty if it can."""
    if key in SETTINGS and SETTINGS[key].decision:
        return f"{key} is a planner: planners={{{SETTINGS[key].decision!r}: {value!r}}}"
    if key == "task.priority":
        return f"task.priority is a task's own: Task(..., priority={value!r})"
    if owner(key) == "pool":
        return f"{key} belongs to the pool: fleet.set({key!r}, {value!r})"
    return ""


def launch(
    link: Link,
    spec: Mapping[str, Any],
    out: Path,
    on_existing: str = "error",
    *,
    fleet: Any = None,
    start: Mapping[str, Trained] | None = None,
) -> Training:
    """Try the environments, prepare the directory, register the run and start its masters.

    Parameters
    ----------
    link
        The way to the cluster.
    spec
        As of :func:`run_spec`, or what ``run.json`` holds.
    out, on_existing
        As of :meth:`Fleet.train`.
    fleet
        Kept alive as long as the training.
    start
        Task -> state that it goes on from in a new run; a run that is resumed has its own.
    """
    check(out, spec, on_existing)
    # Everything that can be refused is refused before anything is made.
    probed = {**spec, "tasks": _with_spaces(link, spec["tasks"])}
    _refuse_respawn(probed)
    run = prepare(out, probed, on_existing)
    asked, spec = spec.get("settings", {}), run.read_spec()
    attempts = {task["name"]: max(run.attempts(task["name"]), default=0) for task in spec["tasks"]}
    begun = {} if run.resumed else dict(start or {})
    for task in spec["tasks"]:
        if task["name"] in begun:
            write_trained(run.checkpoints / task["name"], TaskSpec.from_plain(task), begun[task["name"]])
    message = {key: spec[key] for key in ("run", "tasks", "planners")} | {
        "settings": {**spec.get("settings", {}), **asked}
    }
    scheduling = _changed(run, spec.get("settings", {}), asked) if run.resumed else {}
    _refuse_changed(message, scheduling)
    more = {"resume": run.resumed or bool(begun), "attempts": attempts, "scheduling": scheduling}
    try:
        link.create_run({**message, **more, "out": str(run.path)})
    except BaseException:
        if not run.resumed:
            run.remove()
            run.path.rmdir()
        raise
    run.write_lock(link.lock(spec["run"]))
    specs = tuple(TaskSpec.from_plain(task) for task in spec["tasks"])
    link.submit_anchors(spec["run"], [task.name for task in specs])
    return Training(spec["run"], specs, run, link, fleet, planners=spec.get("planners"))


def _changed(run: RunDir, begun: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what was changed while the tasks ran, but for what the caller asks for anew."""
    old, new = begun_with({}, begun), begun_with({}, asked)
    anew = {key for key, value in new.items() if old.get(key) != value}
    return {
        task: {key: value for key, value in changes.items() if key not in anew}
        for task, changes in run.scheduling().items()
    }


def _refuse_changed(spec: Mapping[str, Any], scheduling: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to go on with what was changed where it does not fit to what the caller asks for anew."""
    begun = begun_with(spec["planners"], spec["settings"])
    able = {task["name"]: bool(task.get("can_snapshot")) for task in spec["tasks"]}
    problems = []
    for task, changes in scheduling.items():
        for text in settings_problems(changes, in_force=begun, can_snapshot=able.get(task, False)):
            again = f"give {text.partition(':')[0]} again in settings"
            problems.append(f"task {task}: {text} (changed while it trained; {again})")
    if problems:
        raise ConfigError(problems)


def _with_spaces(link: Link, tasks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tasks with their environments' spaces; each environment that is not known yet is tried once."""
    spaces: dict[str, Mapping[str, Any]] = {}
    problems: list[EnvError] = []
    made = []
    for task in tasks:
        given = {key: task[key] for key in SOURCE_KEYS if task.get(key)}
        source = task["env"] if list(given) == ["env"] else given
        env = json.dumps(source)
        if task.get("observation_space") is None and env not in spaces:
            try:
                spaces[env] = link.probe_env(source)
            except EnvError as error:
                problems.append(error)
                spaces[env] = {}
        made.append({**task, **spaces.get(env, {})})
    if len(problems) > 1:
        raise EnvError("; ".join(str(problem) for problem in problems))
    if problems:
        raise problems[0]
    if unfit := [text for task in made if (text := _unfit(task))]:
        raise ConfigError(unfit)
    return made


def _refuse_respawn(spec: Mapping[str, Any]) -> None:
    """Refuse to end collectors between rounds where their environments could not go on."""
    mode = spec.get("settings", {}).get("warmup", {}).get("collector_mode", "")
    for task in spec["tasks"]:
        if problem := mode and setting_problem(
            "warmup.collector_mode", mode, can_snapshot=bool(task.get("can_snapshot"))
        ):
            raise ConfigError(f"task {task['name']}: {problem}")


def _unfit(task: Mapping[str, Any]) -> str:
    """Return why an algorithm or its policy cannot serve its task's spaces."""
    from drlnb.rl.algorithms.registry import check_fit

    if task.get("action_space") is None:
        return ""
    try:
        check_fit(TaskSpec.from_plain(task))
    except (ConfigError, EnvError) as error:
        return str(error)
    return ""


def same_work(training: Training, specs: Sequence[TaskSpec], planners: Mapping[str, str]) -> bool:
    """Whether a run trains just these tasks under these planners."""
    ours = [_asked(spec) for spec in training.specs.values()]
    return ours == [_asked(spec) for spec in specs] and training.planners == dict(planners)


def _asked(spec: TaskSpec) -> dict[str, Any]:
    return {key: value for key, value in spec.to_plain().items() if key not in _NOT_ASKED}


def attach(link: Link, run_id: str, fleet: Any = None) -> Training:
    """Watch and steer a run that somebody else started.

    Parameters
    ----------
    link
        The way to its cluster.
    run_id
        Of the run.
    fleet
        Kept alive as long as the training.

    Raises
    ------
    ConfigError
        If the cluster does not know the run, or its directory cannot be read from here.
    """
    known = {str(row["run"]): row for row in link.runs()}
    if run_id not in known:
        raise ConfigError(f"{link.address} has no run {run_id!r}; it has {', '.join(known) or 'none'}")
    run = RunDir(str(known[run_id]["out"]))
    try:
        spec = run.read_spec()
    except ConfigError as error:
        raise ConfigError(
            f"run {run_id} cannot be watched from here: {error}; its cluster is at {link.address}, "
            "attach on a machine that shares the run directory"
        ) from None
    specs = tuple(TaskSpec.from_plain(task) for task in spec["tasks"])
    return Training(run_id, specs, run, link, fleet, planners=spec.get("planners"), guest=True)
