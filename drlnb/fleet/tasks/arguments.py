"""Turn the arguments of Stable-Baselines3's constructors into a task, or one clear error."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from drlnb.fleet.plain import Plain, Row
from drlnb.fleet.tasks.sources import source_of
from drlnb.fleet.tasks.task import complete_spec, file_safe
from drlnb.records.errors import ConfigError, EnvError, nearest
from drlnb.records.spec import EVAL_EPISODES, EVAL_MAX_STEPS, RlWork
from drlnb.rl.algorithms.registry import check_fit, make_actor, settings_class
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.checkpoints.files import check_layout, describe_layout
from drlnb.rl.envs.wrappers import read_wrappers
from drlnb.rl.networks.policies import is_module

__all__ = ["altered", "bound", "described", "moved", "signature"]

_KEYWORD, _EITHER = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD

#: Arguments of Stable-Baselines3 that are no settings, with its defaults: any other value is refused with the reason.
_FIXED: Plain = {
    "use_sde": False,
    "sde_sample_freq": -1,
    "rollout_buffer_class": None,
    "rollout_buffer_kwargs": None,
    "replay_buffer_class": None,
    "replay_buffer_kwargs": None,
    "optimize_memory_usage": False,
    "n_steps": 1,
    "_init_setup_model": True,
}
#: Names that Stable-Baselines3 knows, or knew, elsewhere -> what does it here.
_WAYS = {
    "lr_schedule": "learning_rate takes a function of the progress that remains",
    "observation_space": "spaces are those of the environment",
    "action_space": "spaces are those of the environment",
    "action_noise": "exploration is the algorithm's own",
    "eval_env": "learn(callback=drlnb.EvalCallback(eval_env, ...))",
    "create_eval_env": "learn(callback=drlnb.EvalCallback(...))",
    "monitor_wrapper": "episodes are counted without one",
    "lr": "it is called learning_rate",
    "total_timesteps": "learn(total_timesteps)",
}
#: What is the task's as it is given: how it is evaluated, and whether its bits may depend on where it computes.
_GIVEN: Plain = {"deterministic": True, "eval_episodes": EVAL_EPISODES, "eval_max_steps": EVAL_MAX_STEPS}
#: Arguments that are ours, beside the settings that Stable-Baselines3 does not have.
_OURS: Plain = {
    "n_envs": 1,
    "n_collectors": None,
    "n_learners": 1,
    "env_kwargs": None,
    "env_wrappers": None,
    "fleet": None,
    **_GIVEN,
}


def signature(algo: str, order: Sequence[str]) -> inspect.Signature:
    """Return a constructor's signature: Stable-Baselines3's arguments in its order, then ours by keyword.

    Parameters
    ----------
    algo
        The algorithm, whose settings have the defaults.
    order
        Stable-Baselines3's arguments after `policy` and `env`.
    """
    kind = settings_class(algo)
    defaults = {**_FIXED, **kind().to_plain(), "policy_kwargs": None, "verbose": 0, "seed": None}
    defaults |= {"tensorboard_log": None, "device": "auto"}
    parameters = [inspect.Parameter(name, _EITHER) for name in ("policy", "env")]
    parameters += [inspect.Parameter(name, _EITHER, default=defaults[name]) for name in order]
    own = {name: defaults[name] for name in kind.names() if name not in {"policy", *order}}
    parameters += [inspect.Parameter(name, _KEYWORD, default=value) for name, value in {**_OURS, **own}.items()]
    return inspect.Signature(parameters)


def bound(name: str, algo: str, known: inspect.Signature, args: tuple[object, ...] | None, kwargs: Plain) -> Row:
    """Return given arguments by name.

    Parameters
    ----------
    name
        Of the class, for messages.
    algo, known
        The algorithm and its signature.
    args, kwargs
        As given; `args` None: some settings only, `policy` and `env` are known already.

    Raises
    ------
    TypeError
        If a name is unknown (the nearest one is named), missing, or given twice: as of any function.
    ConfigError
        If an argument of Stable-Baselines3's has no meaning here and is not its default; all are listed.
    """
    kind = settings_class(algo)
    for key in kwargs.keys() - known.parameters.keys():
        way = f": {_WAYS[key]}" if key in _WAYS else f": {kind.UNSUPPORTED[key]}" if key in kind.UNSUPPORTED else ""
        raise TypeError(f"{name}() got an unexpected keyword argument {key!r}{way or nearest(key, known.parameters)}")
    try:
        arguments = known.bind_partial(**kwargs) if args is None else known.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    given = {**arguments.arguments}
    problems = [kind.check_value(key, given[key]) for key in kind.names() if isinstance(given.get(key), str)]
    problems = [problem for problem in problems if problem]
    for key in sorted((given.keys() & _FIXED.keys()) - set(kind.names())):
        value = given.pop(key)
        if value not in kind.MEANS_NOTHING.get(key, (_FIXED[key],)):
            problems.append(f"{key}={value!r} is not supported: {kind.UNSUPPORTED.get(key, 'it has no meaning here')}")
    if problems:
        raise ConfigError(problems)
    return given


def described(algo: str, given: Row) -> RlWork:
    """Return the task of a constructor's arguments, complete and checked, its environment tried in this process.

    Raises
    ------
    ConfigError
        If a value is wrong; all are listed.
    EnvError
        If the environment cannot be made, breaks its contract, or has spaces that the algorithm cannot serve.
    """
    from drlnb.rl.envs.make import probe

    name, factory, kwargs, n_given = source_of(given.pop("env"), given.pop("env_kwargs", None), in_process=True)
    wrappers = read_wrappers(given.pop("env_wrappers", None))
    seed, n_envs = given.pop("seed", None), given.pop("n_envs", n_given or 1)
    if n_given not in {None, n_envs}:
        raise EnvError(f"{n_given} environments are given, n_envs={n_envs} asks for another number: leave it out")
    processes = {"n_collectors": given.pop("n_collectors", None), "n_learners": given.pop("n_learners", 1)}
    as_given = {key: given.pop(key) for key in _GIVEN if key in given}
    given["policy_kwargs"] = given.pop("policy_kwargs", None) or {}
    resolved = resolve("", algo, overrides=given, n_envs=n_envs)
    if isinstance(seed, np.integer):
        seed = int(seed)
    if seed is None:
        seed = int(np.random.randint(2**32, dtype=np.uint32))  # noqa: NPY002 - the one that scripts seed
    others = {"env_kwargs": kwargs, "env_wrappers": wrappers, "seed": seed, **as_given}
    spec = complete_spec(name, factory, algo, resolved, **processes, **others)
    spaces: Row = {**probe(spec)}
    made = replace(spec, **spaces)
    check_fit(made)
    if is_module(made):
        from drlnb.rl.networks.modules import build
        from drlnb.rl.networks.trial import check

        check(build(made), made)  # whoever gives a network of their own is told here what is wrong with it
    if isinstance(made.hyperparameters["policy_kwargs"].get("optimizer_class"), Mapping):
        from drlnb.rl.networks.own_optimizer import own_optimizer

        own_optimizer(made)
    return made


def altered(spec: RlWork, given: Row, where: str) -> RlWork:
    """Return a saved task with some settings changed.

    Raises
    ------
    LayoutMismatch
        If they mean another network than the saved one.
    ConfigError
        If a value is wrong.
    """
    settings = {**spec.hyperparameters, **given}
    settings["policy_kwargs"] = settings["policy_kwargs"] or {}
    seed, n_envs = settings.pop("seed", None), settings.pop("n_envs", spec.n_envs)
    n_collectors = settings.pop("n_collectors", None)
    fields = {key: settings.pop(key) for key in ("n_learners", *_GIVEN) if key in settings}
    resolved = resolve("", spec.algo, overrides=settings, n_envs=n_envs)
    before, now = (
        of["policy_kwargs"].get("optimizer_class", "Adam") for of in (spec.hyperparameters, resolved.hyperparameters)
    )
    if before != now:
        name = before["name"] if isinstance(before, Mapping) else before
        raise ConfigError(
            f"optimizer_class of a model that is made is {name}: make another one, and "
            "other.set_parameters(model.get_parameters())"
        )
    try:
        changed = replace(
            spec,
            seed=spec.seed if seed is None else int(seed) if isinstance(seed, np.integer) else seed,
            n_envs=resolved.n_envs,
            n_collectors=min(spec.n_collectors, resolved.n_envs) if n_collectors is None else n_collectors,
            hyperparameters=resolved.hyperparameters,
            **fields,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    check_layout(describe_layout(make_actor(spec).layout), make_actor(changed).layout, where)
    return changed


def moved(spec: RlWork, env: object) -> tuple[RlWork, int | None]:
    """Return the task in another environment with the same spaces, and how many were given; None: one, or any.

    Raises
    ------
    ValueError
        If its spaces differ; both are named.
    """
    from drlnb.rl.envs.make import probe

    name, factory, kwargs, n_given = source_of(env, in_process=True)
    other = replace(spec, name=file_safe(name), env=name, env_factory=factory, env_kwargs=kwargs)
    for field, space in probe(other).items():
        wanted = getattr(spec, field)
        if dict(space) != dict(wanted or {}):
            raise ValueError(f"{name} has the {field.replace('_', ' ')} {space}, the model was trained on {wanted}")
    return other, n_given
