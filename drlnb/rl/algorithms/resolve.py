"""Resolve a task's settings: tuned ones where we have them, then what the caller overrides; then changes of a run.

All wrong names and values are reported at once.  Nothing that a file or a command line holds is ever evaluated.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from drlnb.records.base import Facts, Row
from drlnb.records.errors import ConfigError, nearest
from drlnb.records.settings import parse_text
from drlnb.records.spec import RlWork, WorkSpec
from drlnb.rl.algorithms.registry import learners_problem, settings_class
from drlnb.rl.networks.activations import named
from drlnb.rl.schedules import sampled
from drlnb.rl.settings.checks import OPTIMIZERS, POLICY_KWARGS, WHOLE, Settings

__all__ = ["PREFIX", "Resolved", "live_keys", "live_value", "resolve", "tuned"]

#: Before a setting's name in ``run.set`` and in the journal.
PREFIX = "rl."

#: Budget and environments where neither caller nor tuned.yml has them: one million is the zoo's most common budget,
#: one environment is what Stable-Baselines3 makes of a bare id.
_DEFAULT_TIMESTEPS, _DEFAULT_ENVS = 1_000_000, 1
#: Classes that the name stands for.
_NATURE_CNN = {(m, "NatureCNN") for m in ("drlnb.rl.networks.extractors", "stable_baselines3.common.torch_layers")}
#: Base of all classes of optimisers.
_OPTIMIZER = ("torch.optim.optimizer", "Optimizer")
#: Arguments of the policy, which are no settings of their own.
_OF_POLICY = {"net_arch", "activation_fn", *POLICY_KWARGS}


class Resolved(NamedTuple):
    """A task's settings, complete, and where they came from."""

    #: All of the algorithm's settings, plain data.
    hyperparameters: Row
    n_envs: int
    #: Budget in environment steps.
    total_timesteps: int
    #: In words for a user.
    origin: str


def tuned(env: str, algo: str = "ppo") -> Row | None:
    """Return the entry of tuned.yml for an environment id (a ``module:`` in front is ignored), or None."""
    entry = (_tuned_file().get(algo) or {}).get(env.rpartition(":")[2])
    return None if entry is None else {key: parse_text(value) for key, value in entry.items()}


@cache
def _tuned_file() -> Facts:
    import yaml  # here, so that importing this module stays light

    text = resources.files("drlnb.rl.settings").joinpath("tuned.yml").read_text(encoding="utf-8")
    entries: Facts = yaml.safe_load(text)
    return entries


def _plain(kind: type[Settings], name: str, value: object) -> object:
    """Return a setting as plain data: functions are packed or sampled, 3.0 is 3 where only whole numbers are good.

    Raises
    ------
    ValueError
        If a function cannot travel, or is no schedule.
    """
    if name == "policy_kwargs" and isinstance(value, Mapping):
        if value.get("use_sde"):
            raise ValueError("use_sde is a setting, use_sde=True")
        return {key: _plain_part(key, part) for key, part in value.items() if key != "use_sde"}
    if name == "policy" and isinstance(value, type):
        value = _policy_name(value)
    if name == "train_freq" and isinstance(value, list | tuple) and len(value) == 2:
        value = _steps(*value)
    if name == "policy" and hasattr(value, "state_dict") and not isinstance(value, type):
        raise ValueError(f"a {type(value).__name__} is made already: give the class, or a function, that makes it")
    if callable(value):
        return _packed(value) if name == "policy" else sampled(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return kind.declared()[name].kind.taken(value)


#: Their policies -> the names here.
_POLICIES = {"ActorCritic": "MlpPolicy", "ActorCriticCnn": "CnnPolicy", "MultiInputActorCritic": "MultiInputPolicy"}
_POLICIES |= {"DQN": "MlpPolicy", "Mlp": "MlpPolicy", "Cnn": "CnnPolicy", "MultiInput": "MultiInputPolicy"}


def _policy_name(policy: type) -> object:
    """Return the name of a policy of Stable-Baselines3's; ValueError for a class derived from one."""
    theirs = [base for base in policy.__mro__ if base.__module__.startswith("stable_baselines3.")]
    if not theirs:
        return policy
    name = _POLICIES.get(policy.__name__.removesuffix("Policy"))
    if theirs[0] is not policy or name is None:
        raise ValueError(
            f"{policy.__name__} is a class for Stable-Baselines3: here it is a name, with policy_kwargs (net_arch, "
            "features_extractor_class), or a function (observation_space, action_space, **kwargs) -> nn.Module"
        )
    return name


def _steps(n: object, unit: object) -> object:
    """Return the steps of ``train_freq=(n, "step")``."""
    if getattr(unit, "value", unit) != "step":
        raise ValueError(f"counts steps of each environment, as 4 or (4, 'step'), got ({n!r}, {unit!r})")
    return n


def _plain_part(key: str, value: object) -> object:
    if key == "activation_fn" and callable(value):
        if not isinstance(value, type):
            raise ValueError(f"activation_fn is a class, such as torch.nn.ReLU, or its name, got {value!r}")
        return named(value)
    if key == "optimizer_class" and isinstance(value, type):
        if value.__module__.startswith("torch.optim") and value.__name__ in OPTIMIZERS:
            return value.__name__
        own = any((each.__module__, each.__name__) == _OPTIMIZER for each in value.__mro__)
        return _packed(value) if own else f"{value.__module__}.{value.__name__}"
    if key == "net_arch":
        return value
    if isinstance(value, type) and (value.__module__, value.__name__) in _NATURE_CNN:
        return "NatureCNN"
    return _packed(value) if callable(value) else value


def _packed(value: object) -> dict[str, str]:
    from drlnb.rl.pickled import display_name, pack  # cloudpickle, for those who need it

    return {"name": display_name(value), "pickled": pack(value)}


def _split(overrides: Facts, kind: type[Settings], problems: list[str]) -> Row:
    """Return overrides under our names; list unknown and unsupported ones as problems."""
    values: Row = {}
    known = [*kind.names(), "n_envs"]
    for name, raw in overrides.items():
        value = parse_text(raw)
        if name in known:
            values[name] = value
        elif name in kind.UNSUPPORTED:
            if value not in kind.MEANS_NOTHING.get(name, (False, None)):
                problems.append(f"hyper-parameter {name!r} is not supported: {kind.UNSUPPORTED[name]}")
        else:
            hint = nearest(name, known)
            hint = f'; it is a part of policy_kwargs: policy_kwargs={{"{name}": ...}}' if name in _OF_POLICY else hint
            problems.append(f"unknown hyper-parameter {name!r}{hint}")
    return values


def _count(name: str, value: object, problems: list[str]) -> int:
    try:
        return int(WHOLE.read(name, value))
    except ConfigError as error:
        problems += error.problems
        return 1


def _entry(env: str, algo: str, entry: Facts | None, kind: type[Settings], problems: list[str]) -> tuple[Row, str]:
    """Return what a task begins with, under our names, and where it came from: the caller's entry, else ours."""
    if entry is not None:
        budget = {key: entry[key] for key in ("n_timesteps",) if key in entry}
        return _split({k: v for k, v in entry.items() if k not in budget}, kind, problems) | budget, "a zoo entry"
    tuning = tuned(env, algo)
    if tuning is None:
        return {}, "Stable-Baselines3's defaults"
    return tuning, f"tuned settings for {env} (rl/settings/tuned.yml)"


def resolve(
    env: str,
    algo: str = "ppo",
    *,
    overrides: Facts | None = None,
    n_envs: int | None = None,
    total_timesteps: int | None = None,
    entry: Facts | None = None,
) -> Resolved:
    """Return the complete settings for an environment.

    Parameters
    ----------
    env
        Gymnasium id; a tuned entry of tuned.yml is taken if there is one, else Stable-Baselines3's defaults
        (1 environment, 1 000 000 steps).
    algo
        An algorithm of :data:`drlnb.rl.algorithms.registry.TABLE`.
    overrides
        Settings by Stable-Baselines3's names; text is read as a command line's.
    n_envs, total_timesteps
        Override the entry's; None leaves them.
    entry
        Used instead of tuned.yml: settings of a zoo file, ``n_envs`` and ``n_timesteps`` among them.

    Returns
    -------
    Resolved
        Settings that the algorithm's dataclass accepts, as plain data.

    Raises
    ------
    ConfigError
        If anything is wrong; the message holds all problems.
    """
    problems: list[str] = []
    kind = settings_class(algo)
    base, origin = _entry(env, algo, entry, kind, problems)
    given = _split(overrides or {}, kind, problems)
    if given:
        origin += ", with " + ", ".join(sorted(given))
    counts = {"n_envs": _DEFAULT_ENVS, "n_timesteps": _DEFAULT_TIMESTEPS}
    values: Row = {**kind().to_plain(), **counts, **base, **given}
    timesteps, envs = values.pop("n_timesteps"), values.pop("n_envs")
    timesteps = _count("total_timesteps", timesteps if total_timesteps is None else total_timesteps, problems)
    envs = _count("n_envs", envs if n_envs is None else n_envs, problems)
    for name in kind.names():
        try:
            values[name] = _plain(kind, name, values[name])
        except ValueError as error:
            values[name] = kind().to_plain()[name]
            problems.append(f"{name}: {error}")
    values |= kind.fitted(values, {*base, *given}, envs)
    wrong = [problem for name in kind.names() if (problem := kind.check_value(name, values[name]))]
    problems += wrong
    if not wrong:
        problems += kind.check_together(values, envs)
    if problems:
        raise ConfigError(problems)
    return Resolved(values, envs, timesteps, origin)


def live_keys(spec: WorkSpec) -> tuple[str, ...]:
    """Return the keys of the settings that a task's algorithm can change from one round to the next, in name order.

    Examples
    --------
    >>> live_keys(RlWork(name="a", env="CartPole-v1", algo="dqn", total_timesteps=1, n_envs=1))
    ('rl.learning_rate', 'rl.tau')
    """
    live = settings_class(spec.algo).live() if isinstance(spec, RlWork) else ()
    return tuple(sorted(PREFIX + name for name in live))


def live_value(spec: WorkSpec, key: str, value: object) -> object:
    """Check a change of a setting and return its value as plain data.

    Parameters
    ----------
    spec
        The task.
    key
        ``rl.NAME``.
    value
        As at the start; a function of the remaining progress becomes its points.

    Raises
    ------
    ConfigError
        If there is no such setting (the message has the nearest name and all that can change), the algorithm
        cannot change it while it trains, or the value is wrong.
    """
    if not isinstance(spec, RlWork):
        raise ConfigError(f"{key} is a setting of an algorithm, and task {spec.name} has none: it is supervised work")
    kind, name, known = settings_class(spec.algo), key.removeprefix(PREFIX), live_keys(spec)
    can = f"while {spec.algo} trains these can change: {', '.join(known)}"
    if name not in kind.names() or name == key:
        hint = nearest(PREFIX + name, [PREFIX + other for other in kind.names()])
        raise ConfigError(f"unknown setting {key!r}{hint}; {can}")
    if key not in known:
        raise ConfigError(f"{key} cannot change in a running task ({spec.name}); {can}")
    try:
        plain = _plain(kind, name, value)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
    if problem := kind.check_value(name, plain):
        raise ConfigError(PREFIX + problem)
    if problem := learners_problem(spec, **{name: plain}):
        raise ConfigError(f"{key} = {plain!r} cannot be: {problem}")
    return plain
