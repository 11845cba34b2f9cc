"""Decide what becomes of a run that is already in the directory of a new one."""

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

from drlnb.fleet.tasks.run_spec import RunSpec, unusable
from drlnb.records.errors import ConfigError, RunLocked, SpecMismatch
from drlnb.records.spec import WorkSpec
from drlnb.runtime.files.run_directory import RunDir

__all__ = ["ON_EXISTING", "check", "differences", "prepare"]

#: What to do with a run that is already in the directory.
ON_EXISTING = ("error", "resume", "restart", "overwrite")

#: Fields of a task that may differ when a run goes on: the budget, where it runs, and what is not the caller's word.
# A function's text changes with every edit of its cell, so an environment's name and spaces are compared, and the new
# text is taken.
_TAKEN = (
    *("total_timesteps", "n_collectors", "n_learners", "env_factory", "eval_episodes", "eval_max_steps"),
    *("program", "data", "evaluates", "round_steps"),
)
_MAY_DIFFER = {*_TAKEN, "priority", "origin", "observation_space", "action_space", "can_snapshot"}


def _is_taken(run: RunDir) -> bool:
    """Return whether a run is here; raise if something else is, or if a new one cannot be written here."""
    path = run.path
    if (path / "run.json").exists():
        return True
    if path.is_file():
        raise ConfigError(f"{path} is a file; choose another directory")
    if path.exists() and (stranger := next(run.files(), None)) is not None:
        raise ConfigError(f"{path} is not empty and holds no run of drlnb (found {stranger.name}); choose another one")
    above = next(folder for folder in (path, *path.parents) if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{path} cannot be made: {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"{path} cannot be written: no permission in {above}")
    return False


def differences(old: RunSpec, new: RunSpec) -> list[str]:
    """Return in words what forbids that `new` goes on with what `old` began."""
    before, after = old.by_name(), new.by_name()
    reasons = [f"task {name} is missing" for name in before if name not in after]
    reasons += [f"task {name} is new" for name in after if name not in before]
    for name in before.keys() & after.keys():
        a, b = _compared(before[name]), _compared(after[name])
        reasons += [
            f"{name}: {field} is {a.get(field)!r} there, {b.get(field)!r} was asked for"
            for field in {**a, **b}
            if a.get(field) != b.get(field)
        ]
    for key, name in old.planners.items():
        if new.planners.get(key, name) != name:
            reasons.append(f"planner {key} is {name!r} there, {new.planners[key]!r} was asked for")
    return reasons


def _compared(task: WorkSpec) -> dict[str, object]:
    """Return the fields and settings of a task that may not differ."""
    plain = task.to_plain()
    settings = plain.pop("hyperparameters", {})
    return {key: value for key, value in {**plain, **settings}.items() if key not in _MAY_DIFFER}


def _merged(old: RunSpec, new: RunSpec) -> RunSpec:
    """Return the old spec with what may differ taken from the new one."""
    after = new.by_name()
    return replace(
        old,
        tasks=tuple(
            replace(task, **{field: getattr(after[task.name], field) for field in _TAKEN if hasattr(task, field)})
            for task in old.tasks
        ),
    )


def _finished(run: RunDir, old: RunSpec, new: RunSpec | None) -> bool:
    if set(run.states().values()) != {"done"}:
        return False
    wanted = {} if new is None else new.by_name()
    return not any(wanted.get(task.name, task).total_timesteps > task.total_timesteps for task in old.tasks)


def _next_free(path: Path) -> Path:
    return next(free for n in count(1) if not (free := path.with_name(f"{path.name}-{n}")).exists())


def check(out: str | Path, spec: RunSpec | None, on_existing: str = "error") -> str:
    """Return what :func:`prepare` would do, without doing it.

    Parameters
    ----------
    out
        The run directory.
    spec
        What shall run; None: whatever is there goes on.
    on_existing
        One of :data:`ON_EXISTING`.

    Returns
    -------
    str
        ``new``, ``resume``, ``restart`` or ``overwrite``.

    Raises
    ------
    ConfigError
        If the directory holds something else, or holds a run and `on_existing` is ``error``.
    RunLocked
        If a live run uses it.
    SpecMismatch
        If another run would be resumed.
    """
    if on_existing not in ON_EXISTING:
        raise ConfigError(f"on_existing must be one of {', '.join(ON_EXISTING)}, got {on_existing!r}")
    run = RunDir(out)
    if not _is_taken(run):
        return "new"
    if (lock := run.live_lock()) is not None:
        raise RunLocked(f"{run.path} is in use: {lock.said}")
    if on_existing in {"restart", "overwrite"}:
        return on_existing
    old = RunSpec.read(run)
    finished = _finished(run, old, spec)
    if on_existing == "error" or finished:
        raise ConfigError(_taken(run.path, finished=finished, resume=on_existing == "resume"))
    if spec is not None and (reasons := differences(old, spec)):
        raise SpecMismatch(f"{run.path} holds another run: {'; '.join(reasons)}")
    if problems := unusable(old):
        raise ConfigError(f"{run.path / 'run.json'} is not what drlnb wrote: {'; '.join(problems)}")
    return "resume"


def _taken(path: Path, *, finished: bool, resume: bool) -> str:
    if resume:
        return (
            f"{path} holds a finished run, nothing is left to do: ask for more steps, "
            f"or choose on-existing = restart (keeps it as {_next_free(path).name}) or overwrite (deletes it)"
        )
    state = "a finished run" if finished else "an unfinished run"
    return (
        f"{path} already holds {state}: choose on-existing = resume (goes on with it), "
        f"restart (keeps it as {_next_free(path).name} and begins anew) or overwrite (deletes it), or another directory"
    )


def prepare(out: str | Path, spec: RunSpec, on_existing: str = "error") -> RunDir:
    """Make the run directory ready for a run, or refuse.

    Parameters, Raises
        As :func:`check`; also ConfigError if the directory cannot be written.

    Returns
    -------
    RunDir
        Its ``run.json`` is written; ``resumed`` says whether an older run goes on.
    """
    plan = check(out, spec, on_existing)
    run = RunDir(out)
    try:
        if plan == "resume":
            old = RunSpec.read(run)
            if (merged := _merged(old, spec)) != old:
                run.write_spec(merged.to_plain())
            run.resumed = True
            return run
        if plan == "restart":
            run.path.rename(_next_free(run.path))
        elif plan == "overwrite":
            run.remove()
    except OSError as error:
        raise ConfigError(f"{run.path} cannot be written: {error.strerror}") from None
    run.create(spec.to_plain())
    return run
