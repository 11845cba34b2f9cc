"""Begin a run: try its environments, make its directory, register it with the cluster."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from drlnb.fleet.cluster.existing import check, prepare
from drlnb.fleet.faces import say
from drlnb.fleet.plain import Plain
from drlnb.fleet.tasks.planners import QUORUM
from drlnb.fleet.tasks.run_spec import RunSpec
from drlnb.planning.batching.gather import Gathering
from drlnb.planning.round.state import ENV_TIMEOUT_S
from drlnb.planning.settings import begun_with, setting_problem, settings_problems
from drlnb.records.errors import ConfigError, EnvError
from drlnb.records.spec import SOURCE_KEYS, RlWork, WorkSpec
from drlnb.rl.algorithms.registry import check_fit, settings_of
from drlnb.rl.checkpoints.trained import Trained
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.master.checkpoint_effects import write_trained

if TYPE_CHECKING:
    from drlnb.runtime.client.link import Link

__all__ = ["Files", "States", "known_run", "launch", "patent_limits", "same_work"]

#: Task -> state.
States: TypeAlias = Mapping[str, Trained]
#: Name -> content, of supervised work.
Files: TypeAlias = Mapping[str, bytes]


def launch(
    link: "Link",
    spec: RunSpec,
    out: Path,
    on_existing: str = "error",
    *,
    start: States | None = None,
    files: Files | None = None,
) -> tuple[RunDir, RunSpec]:
    """Try the environments, prepare the directory, register the run and start its masters.

    Parameters
    ----------
    link
        The way to the cluster.
    spec
        What shall run.
    out, on_existing
        As of :meth:`drlnb.fleet.fleet.Fleet.train`.
    start
        Task -> state that it goes on from in a new run; a run that is resumed has its own.
    files
        Name -> content, of supervised work.

    Returns
    -------
    tuple
        The run's directory, and what runs: of a run that is resumed, with its own id.
    """
    check(out, spec, on_existing)
    # Everything that can be refused is refused before anything is made.
    probed = replace(spec, tasks=_with_spaces(link, spec.tasks, spec.settings.get("env_timeout_s", ENV_TIMEOUT_S)))
    _refuse_respawn(probed)
    folder = prepare(out, probed, on_existing)
    asked, spec = spec.settings, RunSpec.read(folder) if folder.resumed else probed
    begun = {} if folder.resumed else start or {}
    with contextlib.ExitStack() as undo:
        if not folder.resumed:
            undo.callback(folder.path.rmdir)
            undo.callback(folder.remove)
        folder.add(files or {})
        for task in spec.tasks:
            if task.name in begun:
                write_trained(folder.checkpoints / task.name, task, begun[task.name])
        settings = {**spec.settings, **asked}
        scheduling = _changed(folder, spec.settings, asked) if folder.resumed else _of_patent(spec)
        _refuse_changed(spec, settings, scheduling)
        link.create_run({
            "run": spec.run,
            "tasks": [task.to_plain() for task in spec.tasks],
            "planners": spec.planners,
            "own_planners": spec.own_planners,
            "settings": settings,
            "resume": folder.resumed or bool(begun),
            "attempts": {task.name: max(folder.attempts(task.name), default=0) for task in spec.tasks},
            "scheduling": scheduling,
            "streams": folder.streams(),
            "out": str(folder.path),
        })
        undo.pop_all()
    folder.write_lock(link.lock(spec.run))
    link.submit_anchors(spec.run, [task.name for task in spec.tasks])
    return folder, spec


def _changed(folder: RunDir, begun: Plain, asked: Plain) -> dict[str, Plain]:
    """Return what was changed while the tasks ran, but for what the caller asks for anew."""
    old = begun_with({}, begun)
    anew = {key for key, value in begun_with({}, asked).items() if old.get(key) != value}
    return {
        task: {key: value for key, value in changes.items() if key not in anew}
        for task, changes in folder.scheduling().items()
    }


def _refuse_changed(spec: RunSpec, settings: Plain, scheduling: Mapping[str, Plain]) -> None:
    """Refuse to go on with what was changed where it does not fit to what the caller asks for anew."""
    begun, unable = begun_with(spec.planners, settings), {task.name for task in spec.with_envs if not task.can_snapshot}
    problems = []
    for task, changes in scheduling.items():
        able = task not in unable
        for text in settings_problems(changes, in_force=begun, can_snapshot=able):
            again = f"give {text.partition(':')[0]} again in settings"
            problems.append(f"task {task}: {text} (changed while it trained; {again})")
    if problems:
        raise ConfigError(problems)


def _with_spaces(link: "Link", tasks: Iterable[WorkSpec], timeout_s: float | None) -> tuple[WorkSpec, ...]:
    """Return the tasks with their environments' spaces; each environment that is not known yet is tried once."""
    spaces: dict[str, Plain] = {}
    problems: list[EnvError] = []
    probed: list[WorkSpec] = []
    for task in tasks:
        if not isinstance(task, RlWork):
            probed.append(task)
            continue
        given = {key: value for key in SOURCE_KEYS if (value := getattr(task, key))}
        source = task.env if list(given) == ["env"] else given
        env = json.dumps(source, default=dict)
        if task.observation_space is None and env not in spaces:
            try:
                spaces[env] = link.probe_env(source, timeout_s)
            except EnvError as error:
                problems.append(error)
                spaces[env] = {}
        probed.append(replace(task, **spaces.get(env, {})))
    if len(problems) > 1:
        raise EnvError("; ".join(str(problem) for problem in problems))
    if problems:
        raise problems[0]
    if unfit := [text for task in probed if (text := _unfit(task))]:
        raise ConfigError(unfit)
    return tuple(probed)


def patent_limits(spec: RunSpec) -> list[str]:
    """Return what tasks cannot have of the patents' rules, if those were chosen, and the way out; in sentences."""
    if not spec.patent:
        return []
    said = []
    if swept := [task.name for task in spec.with_envs if not settings_of(task).streams(task.n_envs)]:
        said.append(
            f"gradients of {', '.join(swept)} are not computed worker by worker as experience arrives: the "
            "algorithm sweeps the whole round. n_epochs=1 with batch_size=n_steps * n_envs computes them at arrival"
        )
    said += [
        f"{task.name} waits for all {task.n_learners} learners, and leaves no sample out: {why}"
        for task in spec.tasks
        if (why := _waits_for_all(spec, task))
    ]
    parked = [task.name for task in spec.with_envs if not task.can_snapshot]
    if parked and "collector_mode" not in spec.settings.get("warmup", {}):
        said.append(
            f"collectors of {', '.join(parked)} are parked between rounds, not ended: their environments "
            "cannot be frozen and thawed exactly"
        )
    return said


def _of_patent(spec: RunSpec) -> dict[str, dict[str, object]]:
    """Return what each task has of the patents' rules beside its planners; say what it cannot have."""
    for text in patent_limits(spec):
        say(f"patent: {text}")
    if not spec.patent or "collector_mode" in spec.settings.get("warmup", {}):
        return {}
    return {task.name: {"warmup.collector_mode": "respawn"} for task in spec.with_envs if task.can_snapshot}


def _waits_for_all(spec: RunSpec, task: WorkSpec) -> str:
    """Return why a task's steps wait for all of its learners; empty if they do not, or if there is one."""
    n = task.n_learners
    quorum = spec.settings.get(Gathering.ROOM, {}).get("quorum", 1.0)
    if n == 1 or (not isinstance(task, RlWork) and Gathering(quorum=quorum).needed(n) < n):
        return ""
    if isinstance(task, RlWork):
        return "the shares of a round stay whole"
    return (
        f"three quarters of {n} are all" if Gathering(quorum=QUORUM).needed(n) == n else f"batching.quorum is {quorum}"
    )


def _refuse_respawn(spec: RunSpec) -> None:
    """Refuse to end collectors between rounds where their environments could not go on."""
    mode = spec.settings.get("warmup", {}).get("collector_mode", "")
    for task in spec.with_envs:
        if problem := mode and setting_problem("warmup.collector_mode", mode, can_snapshot=bool(task.can_snapshot)):
            raise ConfigError(f"task {task.name}: {problem}")


def _unfit(task: WorkSpec) -> str:
    """Return why an algorithm or its policy cannot serve its task's spaces."""
    if not isinstance(task, RlWork) or task.action_space is None:
        return ""
    try:
        check_fit(task)
    except (ConfigError, EnvError) as error:
        return str(error)
    return ""


def same_work(ours: Iterable[WorkSpec], theirs: Iterable[WorkSpec]) -> bool:
    """Whether a run's tasks are just these."""
    return [_asked(spec) for spec in ours] == [_asked(spec) for spec in theirs]


def _asked(spec: WorkSpec) -> Plain:
    """Return what the caller asked for, without what was found out since."""
    found_out = {"origin", "observation_space", "action_space", "can_snapshot"}
    return {key: value for key, value in spec.to_plain().items() if key not in found_out}


def known_run(link: "Link", run_id: str) -> tuple[RunDir, RunSpec]:
    """Return the directory of a run that the cluster knows, and what runs.

    Raises
    ------
    ConfigError
        If the cluster does not know the run, or its directory cannot be read from here.
    """
    known = {str(row["run"]): row for row in link.runs()}
    if run_id not in known:
        raise ConfigError(f"{link.address} has no run {run_id!r}; it has {', '.join(known) or 'none'}")
    folder = RunDir(str(known[run_id]["out"]))
    try:
        return folder, RunSpec.read(folder)
    except ConfigError as error:
        raise ConfigError(
            f"run {run_id} cannot be watched from here: {error}; its cluster is at {link.address}, "
            "attach on a machine that shares the run directory"
        ) from None
