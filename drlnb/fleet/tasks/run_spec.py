"""Describe a whole run: its tasks, planners and settings, as ``run.json`` keeps them."""

import datetime
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Self

import numpy as np

from drlnb.fleet.plain import Plain, by_name
from drlnb.fleet.tasks.planners import Chosen, not_of_rounds
from drlnb.planning.batching import BATCHING, one_learner
from drlnb.planning.decisions import kind_of
from drlnb.planning.leasing.requests import PRIORITIES
from drlnb.planning.registry import OWN
from drlnb.planning.settings import BUDGETS, SETTINGS, as_config, owner, settings_problems
from drlnb.records.errors import ConfigError
from drlnb.records.kinds import kind_problems
from drlnb.records.settings import SECONDS
from drlnb.records.spec import FitWork, RlWork, WorkSpec, read_work
from drlnb.rl.algorithms.registry import learners_problem, settings_of
from drlnb.rl.envs.wrappers import check_wrappers
from drlnb.rl.heads import Head, bounds
from drlnb.rl.rows import part_spaces
from drlnb.runtime.files.planners import resolve
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.files.versions import versions

__all__ = ["RunSpec", "default_out", "run_spec", "unusable"]

#: Version of run.json.
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A run as it begins."""

    #: Its id.
    run: str
    #: When it was made, by the wall clock.
    created: str = ""
    tasks: tuple[WorkSpec, ...]
    #: Decision -> planner's name.
    planners: Mapping[str, str] = field(default_factory=dict)
    #: The round machine's configuration, as far as it is not the default.
    settings: Plain = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Decision -> planner of the user's own, as text.
    own_planners: Mapping[str, str] = field(default_factory=dict)
    #: Collectors end between rounds where their environments can go on, as in the leasing patent.
    patent: bool = False
    #: What it had of its pool, see :attr:`drlnb.fleet.cluster.pool.Pool.shape`.
    pool: Plain = field(default_factory=dict)

    def to_plain(self) -> dict[str, object]:
        """Return what ``run.json`` holds."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"format": _FORMAT, **values, "tasks": [task.to_plain() for task in self.tasks]}

    @classmethod
    def read(cls, folder: RunDir) -> Self:
        """Return what the ``run.json`` of a directory holds.

        Raises
        ------
        ConfigError
            If there is no run, or the file is not what drlnb wrote.
        """
        plain = folder.read_spec()
        known = {f.name: plain[f.name] for f in fields(cls) if f.name in plain and f.name != "tasks"}
        version = plain.get("format", _FORMAT)
        problems = [] if version == _FORMAT else [f"format must be {_FORMAT}, got {version!r:.80}"]
        problems += kind_problems(cls, known)
        tasks = []
        for task in plain["tasks"]:
            try:
                tasks.append(spec := read_work(task))
                if isinstance(spec, RlWork):
                    settings_of(spec)
            except ValueError as error:
                problems.append(f"task {task['name']}: {error}")
        if problems:
            raise ConfigError(f"{folder.path / 'run.json'} is not what drlnb wrote: {'; '.join(problems)}")
        return cls(**{**known, "tasks": tuple(tasks)})

    @property
    def with_envs(self) -> tuple[RlWork, ...]:
        """The tasks that have environments."""
        return tuple([task for task in self.tasks if isinstance(task, RlWork)])

    def by_name(self) -> dict[str, WorkSpec]:
        """Return the tasks by their names."""
        return {task.name: task for task in self.tasks}


def unusable(spec: RunSpec) -> list[str]:
    """Return in words which values of a run that was read nobody can have asked for, of the kinds that they are."""
    timeout = spec.settings.get("env_timeout_s")
    problems = [SECONDS.problem("env_timeout_s", timeout) if timeout is not None else None]
    for decision, name in spec.planners.items():
        try:
            if not name.startswith(OWN):
                resolve(kind_of(decision), name)
        except ValueError as error:
            problems.append(str(error))
    for task in spec.tasks:
        budget = BUDGETS.problem("memory_budget_bytes", task.memory_budget_bytes)
        theirs = [PRIORITIES.problem("priority", task.priority), budget, learners_problem(task)]
        if isinstance(task, RlWork):
            theirs += [*check_wrappers(task.env_wrappers), _space_problem(task)]
        problems += [f"task {task.name}: {problem}" for problem in theirs if problem]
    return [problem for problem in problems if problem]


def _space_problem(task: RlWork) -> str:
    """Return what is wrong with the description of a task's spaces."""
    for name, read in (("observation_space", _observations), ("action_space", Head.of)):
        space = getattr(task, name)
        try:
            if space is not None:
                read(space)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            return f"{name} describes no space ({type(error).__name__}: {error}): {space!r:.80}"
    return ""


def _observations(space: Plain) -> None:
    for part in part_spaces(space).values():
        if part["kind"] == "box":
            for side in bounds(part):
                np.broadcast_to(side, part["shape"]).astype(part["dtype"])
        else:
            Head.of(part)


def default_out() -> Path:
    """Return a run directory named by the time, that is free."""
    now = datetime.datetime.now().astimezone()
    name = now.strftime("%Y%m%d-%H%M%S")
    names = (name if n == 1 else f"{name}-{n}" for n in count(1))
    return next(path for each in names if not (path := Path("runs") / each).exists())


def run_spec(
    specs: Sequence[WorkSpec], planners: Chosen, *, env_timeout_s: float | None = 60.0, settings: Plain | None = None
) -> RunSpec:
    """Return a new run of some tasks, with an id of its own.

    Raises
    ------
    ConfigError
        If `env_timeout_s` is neither None nor a number of seconds > 0, a setting is unknown or wrong beside the
        others that are given, or there are no learners that the planner of learners could serve.
    """
    if env_timeout_s is not None and SECONDS.problem("env_timeout_s", env_timeout_s):
        raise ConfigError(f"env_timeout_s must be {SECONDS.words}, or None, got {env_timeout_s!r}")
    names = dict(planners.names)
    shared, alone = names[BATCHING.decision], all(spec.n_learners == 1 for spec in specs)
    if alone and planners.patent:
        names[BATCHING.decision] = BATCHING.default
    elif alone and shared not in {BATCHING.default, "equal"}:
        raise ConfigError(
            f"planners={{'batching': {shared!r}}}: no task has n_learners above 1: {one_learner(shared)}, "
            f"planners={{'collect': {shared!r}}}"
        )
    now = datetime.datetime.now().astimezone()
    acting = {"env_timeout_s": env_timeout_s} if any(isinstance(spec, RlWork) for spec in specs) else {}
    return RunSpec(
        run=f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}",
        created=now.isoformat(timespec="seconds"),
        tasks=tuple(specs),
        planners=names,
        own_planners=planners.own,
        patent=planners.patent,
        settings={**acting, **_scheduling(by_name("settings", settings), specs)},
        versions=versions(),
    )


def _scheduling(settings: Plain, specs: Sequence[WorkSpec]) -> dict[str, object]:
    """Return dotted keys of scheduling as the round machine's configuration."""
    shared = [spec.n_learners for spec in specs if isinstance(spec, FitWork)]
    misplaced = {key: text for key, value in settings.items() if (text := _not_at_first(key, value))}
    ours = {key: value for key, value in settings.items() if key not in misplaced}
    # Each task's environment is asked whether it can be snapshot once it has been tried.
    n_learners = min(shared, default=None)
    problems = [*misplaced.values(), *settings_problems(ours, can_snapshot=True, n_learners=n_learners)]
    if problems := problems if shared else [*problems, *not_of_rounds(ours)]:
        raise ConfigError(problems)
    return as_config(settings)["settings"]


def _not_at_first(key: str, value: object) -> str:
    """Return why a setting cannot be given to a new run; empty if it can."""
    if key in SETTINGS and SETTINGS[key].decision:
        return f"{key} is a planner: planners={{{SETTINGS[key].decision!r}: {value!r}}}"
    if key == "task.priority":
        return f"task.priority is a task's own: Task(..., priority={value!r})"
    if owner(key) == "pool":
        return f"{key} belongs to the pool: fleet.set({key!r}, {value!r})"
    return ""
