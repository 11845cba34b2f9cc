"""Declare an algorithm's settings once, each with its check.

A check maps a value to what is wrong with it, in words that follow the setting's name, or to None.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from math import inf
from sys import float_info
from typing import Any, ClassVar, Self

from drlnb.records.errors import ConfigError
from drlnb.rl.networks.policies import network_shape
from drlnb.rl.plain import Facts, Values
from drlnb.rl.schedules import Scheduled, parse_schedule

__all__ = [
    "FRACTION",
    "POLICY_KWARGS",
    "POSITIVE",
    "WEIGHT",
    "Check",
    "OnPolicySettings",
    "Settings",
    "setting",
    "whole",
    "whole_from",
]

#: Value -> what is wrong with it, or None.
Check = Callable[[object], str | None]

#: Stable-Baselines3's arguments that no algorithm here takes, and why.
NEVER: Mapping[str, str] = {
    "stats_window_size": "returns are averaged over the last 100 episodes",
    "tensorboard_log": "it belongs to a model; tasks are tracked by fleet.train with track='tensorboard'",
    "device": "the fleet chooses the device",
    "seed": "the seed is the task's, not a hyper-parameter",
    "use_masking": "only ppo learns with action masks",
    "verbose": "printing is the command line's choice",
}

_OPTIMIZER = {"eps", "betas", "weight_decay"}
_NORMALIZE_KEYS = {"norm_obs", "norm_reward"}
_POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")


def setting(default: object, check: Check, *, live: bool = False) -> Any:  # of the type that the field declares
    """Declare one setting as a dataclass field.

    Parameters
    ----------
    default
        Its value where nothing is given; a mapping is copied for each instance.
    check
        Of its values.
    live
        It may change while a task trains, from the next round on.
    """
    metadata = {"check": check, "live": live}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def whole_from(least: int, *others: int, text: str = "") -> Check:
    """Return a check for whole numbers from `least` on, and a few others that `text` explains."""

    def check(value: object) -> str | None:
        good = isinstance(value, int) and not isinstance(value, bool) and (value >= least or value in others)
        return None if good else f"must be a whole number >= {least}{text}"

    return check


#: Whole numbers from 1.
whole = whole_from(1)


def number(low: float, high: float, text: str, *, open_low: bool = False) -> Check:
    """Return a check for finite numbers in ``[low, high]`` (``(low, high]`` with `open_low`) that answers `text`."""

    def check(value: object) -> str | None:
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= float_info.max:
            return text
        return None if low <= value <= high and not (open_low and value == low) else text

    return check


def schedule(value: object) -> str | None:
    """Accept what :func:`drlnb.rl.schedules.parse_schedule` reads."""
    try:
        parse_schedule(value)
    except (ValueError, OverflowError):
        return "must be a number >= 0, lin_NUMBER, or a function of the progress that remains"
    return None


def flag(value: object) -> str | None:
    """Accept True and False."""
    return None if isinstance(value, bool) else "must be true or false"


def optional(check: Check) -> Check:
    """Return a check that accepts None as well."""

    def checked(value: object) -> str | None:
        problem = None if value is None else check(value)
        return problem and f"{problem}, or none"

    return checked


def any_policy(value: object) -> str | None:
    """Accept the name of a policy, or a factory of modules that :func:`drlnb.rl.algorithms.resolve.resolve` packed."""
    if isinstance(value, str) and "lstm" in value.lower():
        return "cannot be recurrent: no algorithm here learns from sequences (FrameStack shows the last observations)"
    if value in _POLICIES or _packed(value):
        return None
    return f"must be {', '.join(_POLICIES)}, or a function (observation_space, action_space, **kwargs) -> nn.Module"


def _packed(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"name", "pickled"}


def _mapping(value: object) -> str | None:
    return None if isinstance(value or {}, Mapping) else "must be a mapping"


def _extractor(value: object) -> str | None:
    named = value in ("NatureCNN", "ImpalaCNN")
    return None if named or _packed(value) else "must be a class of nn.Module, NatureCNN or ImpalaCNN"


def _optimizer(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return "must be a mapping"
    if problem := _keys(value, _OPTIMIZER):
        return problem
    betas = value.get("betas", (0.9, 0.999))
    pair = isinstance(betas, list | tuple) and len(betas) == 2 and all(FRACTION(beta) is None for beta in betas)
    good = pair and not any(WEIGHT(value.get(name, 0.0)) for name in ("eps", "weight_decay"))
    return None if good else "takes eps and weight_decay >= 0 and two betas in [0, 1]"


def network_kwargs(read: Callable[[Facts], object], keys: Collection[str]) -> Check:
    """Return a check for the arguments of a network; those of a factory are its own.

    Parameters
    ----------
    read
        Reads widths and activation, and raises if they are wrong.
    keys
        Those that are looked at.
    """

    def check(value: object) -> str | None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return "must be a mapping, with names as keys"
        for key, check_part in POLICY_KWARGS.items():
            if key in keys and key in value and (problem := check_part(value[key])):
                return f"is wrong: {key} {problem}"
        try:
            read(value)
        except ConfigError as error:
            return f"is wrong: {error}"
        return None

    return check


def _keys(value: Mapping[str, object], known: set[str]) -> str | None:
    unknown = sorted(set(value) - known)
    return f"takes the keys {', '.join(sorted(known))}, not {', '.join(unknown)}" if unknown else None


def normalize(value: object) -> str | None:
    """Accept a truth value or ``{norm_obs, norm_reward}``."""
    if isinstance(value, Mapping):
        return _keys(value, _NORMALIZE_KEYS) or next((p for p in map(flag, value.values()) if p), None)
    return flag(value) and "must be true, false or {norm_obs, norm_reward}"


#: Numbers in [0, 1].
FRACTION = number(0.0, 1.0, "must be a number in [0, 1]")
#: Numbers above 0.
POSITIVE = number(0.0, inf, "must be a number > 0", open_low=True)
#: Numbers from 0.
WEIGHT = number(0.0, inf, "must be a number >= 0")
#: What a network's arguments may be, but for its widths and activation.
POLICY_KWARGS: Mapping[str, Check] = {
    "features_extractor_class": _extractor,
    "features_extractor_kwargs": _mapping,
    "normalize_images": flag,
    "log_std_init": number(-20.0, 20.0, "must be a number in [-20, 20]"),
    "ortho_init": flag,
    "optimizer_kwargs": optional(_optimizer),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ABC):
    """Base of an algorithm's settings: a frozen dataclass whose every field is a :func:`setting`.

    A subclass holds the fields and overrides the class variables.

    Raises
    ------
    ConfigError
        If values are wrong; the message names all of them.
    """

    #: Other names of fields (CleanRL's), one to one.
    ALIASES: ClassVar[Mapping[str, str]] = {}
    #: Names that :meth:`convert` turns into fields.
    CONVERTED: ClassVar[frozenset[str]] = frozenset()
    #: Stable-Baselines3's arguments without a meaning here -> the reason.
    UNSUPPORTED: ClassVar[Mapping[str, str]] = NEVER
    #: Keys of ``policy_kwargs`` that networks with a name take; a factory takes any.
    POLICY_KEYS: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        problems = [self.check_value(f.name, getattr(self, f.name)) for f in fields(self)]
        if any(problems):
            raise ConfigError([problem for problem in problems if problem])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings, in the order of their definition."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def live(cls) -> frozenset[str]:
        """Return the names of the settings that may change while a task trains, from the next round on."""
        return frozenset(f.name for f in fields(cls) if f.metadata["live"])

    @classmethod
    def check_value(cls, name: str, value: object) -> str | None:
        """Return what is wrong with one setting's value, with the value, or None."""
        check: Check = next(f for f in fields(cls) if f.name == name).metadata["check"]
        problem = check(value)
        return problem and f"{name} {problem}, got {_short(value)}"

    @classmethod
    def convert(cls, values: Values, n_envs: int) -> list[str]:
        """Turn the names of `CONVERTED` into fields, in place; return problems.  Nothing to convert here."""
        return []

    @classmethod
    def check_together(cls, values: Facts, n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good: here a policy and its arguments."""
        policy, kwargs = values["policy"], values["policy_kwargs"]
        problem = _keys(kwargs, set(cls.POLICY_KEYS))
        if (
            policy == "MlpPolicy"
            and kwargs.get("features_extractor_kwargs")
            and "features_extractor_class" not in kwargs
        ):
            problem = "has features_extractor_kwargs, but no features_extractor_class: MlpPolicy has none of its own"
        if isinstance(policy, Mapping) or not problem:
            return []
        return [f"policy_kwargs {problem}, got {_short(kwargs)}"]

    @classmethod
    def from_mapping(cls, mapping: Facts) -> Self:
        """Build the settings from plain data; what is missing gets its default, an unknown key is refused."""
        unknown = sorted(mapping.keys() - set(cls.names()))
        if unknown:
            raise ConfigError([f"unknown hyper-parameter {name!r}" for name in unknown])
        return cls(**mapping)

    def to_plain(self) -> Values:
        """Return all settings as a mapping of plain data."""
        values = {name: getattr(self, name) for name in self.names()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def remarks(self, n_envs: int) -> tuple[str, ...]:
        """Return what a user should know of these settings before training begins; nothing here."""
        return ()

    def streams(self, n_envs: int) -> bool:
        """Return whether a round's gradients can be computed as its fragments arrive; not here."""
        return False

    @abstractmethod
    def round_steps(self) -> int:
        """Return the vector steps of one round: steps per environment between two updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicySettings(Settings):
    """Settings of an algorithm that learns from each round's own samples."""

    ALIASES: ClassVar[Mapping[str, str]] = {"num_envs": "n_envs", "num_steps": "n_steps", "update_epochs": "n_epochs"}
    POLICY_KEYS: ClassVar[frozenset[str]] = frozenset({
        *("net_arch", "activation_fn", "ortho_init", "log_std_init", "optimizer_kwargs"),
        *("features_extractor_class", "features_extractor_kwargs", "normalize_images"),
    })

    #: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy`` (Dict observations), or a function
    #: ``(observation_space, action_space, **kwargs) -> nn.Module``.
    policy: str | Mapping[str, str] = setting("MlpPolicy", any_policy)
    #: Step size of Adam; a number, ``lin_x`` or a function of the progress that remains.
    learning_rate: Scheduled = setting(3e-4, schedule, live=True)
    #: Steps per environment and round.
    n_steps: int = setting(2048, whole)
    #: Samples per gradient step.
    batch_size: int | None = setting(64, whole)
    #: Passes over the round's samples; 1 with the whole round: gradients are computed as experience arrives.
    n_epochs: int = setting(10, whole, live=True)
    #: Discount per step.
    gamma: float = setting(0.99, FRACTION)
    #: Trace decay of generalised advantage estimation, and of GPF's targets.
    gae_lambda: float = setting(0.95, FRACTION)
    #: Weight of the value loss (mean squared error, without 1/2).
    vf_coef: float = setting(0.5, WEIGHT)
    #: Largest norm of the whole gradient.
    max_grad_norm: float = setting(0.5, POSITIVE)
    #: The round's steps end before a minibatch whose mean KL exceeds 1.5 times this; none: never.
    target_kl: float | None = setting(None, optional(POSITIVE), live=True)
    #: Normalise observations and rewards by running statistics; or ``{norm_obs, norm_reward}``.
    normalize: bool | Mapping[str, bool] = setting(False, normalize)
    #: ``net_arch``, ``activation_fn``, ``ortho_init``, ``log_std_init``, ``optimizer_kwargs``, ``normalize_images``,
    #: ``features_extractor_class``, ``features_extractor_kwargs``; a factory's own arguments.
    policy_kwargs: Facts = setting({}, network_kwargs(network_shape, POLICY_KEYS))

    @classmethod
    def check_together(cls, values: Facts, n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good: policy, batch, steps and environments."""
        # Slots make the class anew: no bare super.
        problems = super(OnPolicySettings, cls).check_together(values, n_envs)
        batch, steps = values["batch_size"], values["n_steps"]
        if batch is not None and batch > steps * n_envs:
            total = f"{steps} * {n_envs} = {steps * n_envs}"
            problems.append(f"batch_size must be <= n_steps * n_envs = {total}, got {batch}")
        return problems

    def streams(self, n_envs: int) -> bool:
        """Return whether there is one pass over the whole round as one batch.

        Examples
        --------
        >>> settings = OnPolicySettings(n_steps=8, n_epochs=1, batch_size=16)
        >>> settings.streams(2), settings.streams(3)
        (True, False)
        """
        whole = self.batch_size is None or self.batch_size >= self.n_steps * n_envs
        return self.n_epochs == 1 and whole

    def round_steps(self) -> int:
        """Return the vector steps of one round."""
        return self.n_steps


def _short(value: object) -> str:
    """Quote a value, but not a whole pickle."""
    text = repr(value)
    return text if len(text) <= 200 else re.sub(r"\s+", " ", text[:200]) + "..."
