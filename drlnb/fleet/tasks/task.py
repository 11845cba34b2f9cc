"""Describe a task: one environment, one algorithm, a budget of steps."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self

from drlnb.fleet.plain import Plain, by_name, checked_plain
from drlnb.fleet.tasks.sources import source_of
from drlnb.planning.leasing.requests import PRIORITIES
from drlnb.planning.settings import BUDGETS
from drlnb.records.errors import ConfigError
from drlnb.records.spec import EVAL_EPISODES, EVAL_MAX_STEPS, LIMITS, RlWork
from drlnb.records.units import read_bytes
from drlnb.rl.algorithms.registry import learners_problem
from drlnb.rl.algorithms.resolve import Resolved, resolve
from drlnb.rl.envs.wrappers import read_wrappers
from drlnb.rl.zoo.entries import read_entry, resolve_entry

__all__ = ["Task", "complete_spec", "file_safe", "task_specs"]

#: An environment's id, with its module in front where it has one; names may have a namespace: ``ALE/Pong-v5``.
_ID = re.compile(r"([\w.]+:)?[^:\s\x00-\x1f]+")
#: Names become file names and part of stream names.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")

#: Arguments of :class:`Task` that are no hyper-parameters, besides those that every entry of a file says.
_ARGUMENTS = (
    *("seed", "n_collectors", "n_learners", "priority", "group", "env_kwargs", "env_wrappers", "deterministic", "name"),
    *("eval_episodes", "eval_max_steps", "memory_budget"),
)

#: Collectors of a task where the caller does not say: two overlap acting with sending; more pay off with more cores.
DEFAULT_COLLECTORS = 2


class Task:
    """One environment + one algorithm + a budget of steps, to be trained by a :class:`~drlnb.fleet.fleet.Fleet`.

    Parameters
    ----------
    env
        Gymnasium id, ``module:Id-v0``, or a class or function that returns an environment (also a closure from a
        notebook's cell: it travels by value; a function may take the number of the copy).  Or an environment that was
        made, or several as vector environments hold them: collectors make others like them.
    algo
        Algorithm, one of :data:`drlnb.records.spec.ALGORITHMS`.
    total_timesteps
        Budget in environment steps over all environments; None: the tuned budget of this environment.
    seed
        Of every random stream, at least 0.
    n_envs
        Environments over all collectors; None: the tuned number, or as many as were given.
    n_collectors
        Collector processes, at most `n_envs`; None: two, as many as `n_learners` if those are more, or `n_envs`.
    n_learners
        Slots that compute a round's gradient side by side, in one lease: at most `n_collectors`, since each takes what
        whole collectors made.  Its bits do not depend on it where gradients are computed as experience arrives:
        ``n_epochs=1`` and a `batch_size` of the whole round.  Else more than one needs ``deterministic=False``: they
        compute each minibatch together.
    priority
        Whole number; of the tasks that wait for a slot the highest comes first, and waiting makes up for a lower one.
    memory_budget
        Bytes that a gradient step may use on its device, as a number or a text such as ``8GiB``; None: any number, and
        nothing is swapped.
    group
        Curves of one group are drawn with a band over seeds.
    env_kwargs
        Arguments of the environment's constructor, or of the factory.
    env_wrappers
        Innermost first: names of gymnasium's wrappers, or any class as ``module:Class``, or
        ``(name, arguments)``.  Returns of episodes are counted beneath them.
    deterministic
        Same spec, same machine type, same bits, whatever arrives first.
    eval_episodes
        Deterministic episodes that are played when the budget is made; 0: none.
    eval_max_steps
        Steps after which an episode of an evaluation is cut: not every environment ends by itself.
    name
        Unique inside a run; None: the environment's id, with the seed where the run has several.
    **hyperparameters
        Under Stable-Baselines3's names.

    Raises
    ------
    ConfigError
        If a setting is unknown or its value is wrong; the message lists all of them.
    EnvError
        If a factory cannot travel (the message names what keeps it), or an id is known to this process only.

    Examples
    --------
    >>> Task("CartPole-v1", total_timesteps=5000, n_steps=64)
    Task('CartPole-v1', total_timesteps=5000, seed=0)
    """

    def __init__(
        self,
        env: object,
        algo: str = "ppo",
        *,
        total_timesteps: int | None = None,
        seed: int = 0,
        n_envs: int | None = None,
        n_collectors: int | None = None,
        n_learners: int = 1,
        priority: int = 0,
        memory_budget: str | int | None = None,
        group: str | None = None,
        env_kwargs: Plain | None = None,
        env_wrappers: object = None,
        deterministic: bool = True,
        eval_episodes: int = EVAL_EPISODES,
        eval_max_steps: int = EVAL_MAX_STEPS,
        name: str | None = None,
        **hyperparameters: object,
    ) -> None:
        problems = []
        if isinstance(env, str) and not _ID.fullmatch(env):
            problems.append(f"env must be an id or module:id, without blanks and with one ':' at most, got {env!r}")
        counts = {"total_timesteps": total_timesteps, "n_envs": n_envs, "n_collectors": n_collectors}
        given = {key: value for key, value in counts.items() if value is not None}
        given |= {"n_learners": n_learners, "seed": seed}
        given = {key: LIMITS[key].wanted(value) for key, value in given.items()}  # also 1e5, and a number of numpy's
        problems += filter(None, [LIMITS[key].problem(key, value) for key, value in given.items()])
        if name is not None and not (isinstance(name, str) and NAME.fullmatch(name)):
            problems.append(f"name must be 1 to 80 letters, digits, '-', '_' or '.', got {name!r}")
        if group is not None and not isinstance(group, str):
            problems.append(f"group must be a word or None, got {group!r}")
        if problem := PRIORITIES.problem("priority", priority):
            problems.append(problem)
        if problem := BUDGETS.problem("memory_budget", memory_budget):
            problems.append(problem)
        if problems:
            raise ConfigError(problems)
        self._name = name
        wrappers = read_wrappers(env_wrappers)
        source = source_of(env, by_name("env_kwargs", env_kwargs))
        n_envs, total_timesteps = given.pop("n_envs", source.n_envs), given.pop("total_timesteps", None)
        resolved = resolve(source.name, algo, overrides=hyperparameters, n_envs=n_envs, total_timesteps=total_timesteps)
        self._spec = complete_spec(
            source.name,
            source.factory,
            algo,
            resolved,
            name=name,
            env_kwargs=source.kwargs,
            env_wrappers=wrappers,
            deterministic=deterministic,
            eval_episodes=eval_episodes,
            eval_max_steps=eval_max_steps,
            priority=priority,
            memory_budget_bytes=None if memory_budget is None else read_bytes(memory_budget),
            group=group,
            **given,
        )

    @classmethod
    def from_zoo(
        cls,
        path: str | Path,
        env: str,
        algo: str | None = None,
        *,
        total_timesteps: int | None = None,
        n_envs: int | None = None,
        **others: Any,
    ) -> Self:
        """Make a task from an entry of an rl-baselines3-zoo file, unchanged.

        Nothing in the file is executed.

        Parameters
        ----------
        path
            A YAML file such as the zoo's ``ppo.yml``: environment id -> settings.
        env
            Gymnasium id; Atari games fall back on the entry ``atari``.
        algo
            Algorithm; None: what the file's name says, else ``ppo``.
        total_timesteps, n_envs
            Instead of the entry's.
        **others
            As of :class:`Task`; hyper-parameters win over the entry's, `env_wrappers` go around its wrappers.

        Returns
        -------
        Task
            What the entry leaves open is Stable-Baselines3's default, never our tuned settings.

        Raises
        ------
        ConfigError
            If the file has no such entry, or something in it is unknown, unsupported or wrong; the message lists all of
            it, with lines.

        Examples
        --------
        >>> Task.from_zoo("ppo.yml", "CartPole-v1", seed=1)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        drlnb.records.errors.ConfigError: zoo file ppo.yml cannot be read: ...
        """
        entry = read_entry(path, env, algo)
        own = {key: others.pop(key) for key in _ARGUMENTS if key in others}
        counts = {"total_timesteps": total_timesteps, "n_envs": n_envs}
        resolved = resolve_entry(entry, overrides=others, **counts)
        own["env_wrappers"] = [*entry.wrappers, *read_wrappers(own.get("env_wrappers"))]
        budget, n = resolved.total_timesteps, resolved.n_envs
        task = cls(env, entry.algo, total_timesteps=budget, n_envs=n, **own, **resolved.hyperparameters)
        task._spec = replace(task._spec, origin=resolved.origin)
        return task

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse what would have no effect: a task is not changed once it is made."""
        if name not in {"_name", "_spec"}:
            raise AttributeError(f"{name} of a task cannot be assigned: give it when it is made, Task(..., {name}=...)")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        spec = self._spec
        return f"Task({spec.env!r}, total_timesteps={spec.total_timesteps}, seed={spec.seed})"

    @property
    def name(self) -> str | None:
        """The name that it was given; None: its environment's id."""
        return self._name

    @property
    def spec(self) -> RlWork:
        """The task with every default resolved; its name is not yet unique in a run."""
        return self._spec


def complete_spec(
    env: str,
    factory: str | None,
    algo: str,
    resolved: Resolved,
    *,
    name: str | None = None,
    n_collectors: int | None = None,
    n_learners: int = 1,
    **others: Any,
) -> RlWork:
    """Return the spec of a task, as JSON gives it back: so it is the same wherever it travels.

    Parameters
    ----------
    env, factory
        As of :class:`drlnb.fleet.tasks.sources.Source`.
    algo, resolved
        The algorithm, its complete settings and the counts that go with them.
    name
        None: made of the environment's.
    n_collectors
        None: :data:`DEFAULT_COLLECTORS`, or as many as there are learners or environments.
    n_learners
        As of :class:`Task`.
    **others
        Other fields.

    Raises
    ------
    ConfigError
        If a field is wrong.
    """
    if n_collectors is None:
        n_collectors = min(max(DEFAULT_COLLECTORS, n_learners), resolved.n_envs)
    try:
        spec = RlWork(
            name=name or file_safe(env),
            env=env,
            env_factory=factory,
            algo=algo,
            n_collectors=n_collectors,
            n_learners=n_learners,
            **resolved._asdict(),
            **others,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if problem := learners_problem(spec):
        raise ConfigError(problem)
    for key, value in {
        "env_kwargs": spec.env_kwargs,
        "env_wrappers": spec.env_wrappers,
        **spec.hyperparameters,
    }.items():
        checked_plain(key, value)
    return RlWork.from_plain(spec.to_plain())


def file_safe(env: str) -> str:
    """Return a task's name made of an environment's: it becomes part of file names."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", env).strip("-._")[:72]
    return name or "task"


def task_specs(tasks: "str | Task | Iterable[str | Task]") -> tuple[RlWork, ...]:
    """Return the specs of a run's tasks under unique names.

    The name is the environment's id, with ``-s<seed>`` where that id is trained under several seeds; a name that is
    used twice gets ``-2``, ``-3`` and so on.

    Parameters
    ----------
    tasks
        Tasks or environment ids, or one of them.

    Raises
    ------
    ConfigError
        If there are none, or something else is among them.
    """
    listed = list(tasks) if isinstance(tasks, Iterable) and not isinstance(tasks, str | bytes) else [tasks]
    if not listed:
        raise ConfigError("a run needs at least one task")
    if wrong := [task for task in listed if not isinstance(task, str | Task)]:
        raise ConfigError(f"tasks must be drlnb.Task or environment ids, got {task!r}" for task in wrong)
    made = [Task(task) if isinstance(task, str) else task for task in listed]
    n_seeds = Counter(env for env, _ in {(task.spec.env, task.spec.seed) for task in made})
    used: set[str] = set()
    specs = []
    for task in made:
        spec = task.spec
        several = task.name is None and n_seeds[spec.env] > 1
        name = _unused(f"{spec.name}-s{spec.seed}" if several else spec.name, used)
        specs.append(replace(spec, name=name))
    return tuple(specs)


def _unused(name: str, used: set[str]) -> str:
    """Return `name`, or the first of ``name-2``, ``name-3`` that is free (also where case does not count)."""
    names = (name if n == 1 else f"{name}-{n}" for n in count(1))
    free = next(free for free in names if free.casefold() not in used)
    used.add(free.casefold())
    return free
