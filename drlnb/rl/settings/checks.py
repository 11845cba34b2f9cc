"""What makes a value a good setting?  Checks that every algorithm's settings share, and the mixin that runs them.

A check takes a value and returns what is wrong with it, in words that follow the setting's name, or None.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, ClassVar, Self

from drlnb.records.errors import ConfigError
from drlnb.rl.networks.layout import network_shape
from drlnb.rl.schedules import parse_schedule

__all__ = [
    "CHECKED",
    "FRACTION",
    "NEVER",
    "POSITIVE",
    "WEIGHT",
    "Check",
    "Settings",
    "any_policy",
    "any_policy_kwargs",
    "extractor_kwargs",
    "flag",
    "known_policy_keys",
    "normalize",
    "number",
    "optional",
    "schedule",
    "whole",
]

#: Value -> what is wrong with it, or None.
Check = Callable[[Any], str | None]

#: Stable-Baselines3's arguments that no algorithm here takes, and why.
NEVER: Mapping[str, str] = {
    "stats_window_size": "returns are averaged over the last 100 episodes",
    "tensorboard_log": "it belongs to a model; tasks are tracked by fleet.train with track='tensorboard'",
    "device": "the fleet chooses the device",
    "seed": "the seed is the task's, not a hyper-parameter",
    "use_masking": "only ppo learns with action masks",
    "verbose": "printing is the command line's choice",
}

_POLICY_KEYS = {"net_arch", "activation_fn", "ortho_init", "log_std_init"}
_MODULE_KEYS = {"features_extractor_class", "features_extractor_kwargs", "normalize_images", "optimizer_kwargs"}
_OPTIMIZER = {"eps", "betas", "weight_decay"}
_NORMALIZE_KEYS = {"norm_obs", "norm_reward"}


def whole(value: Any) -> str | None:
    """Take whole numbers from 1."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return None if good else "must be a whole number >= 1"


def number(low: float, high: float, text: str, *, open_low: bool = False) -> Check:
    """Return a check for finite numbers in ``[low, high]`` (``(low, high]`` with `open_low`) that answers `text`."""

    def check(value: Any) -> str | None:
        good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        return None if good and low <= value <= high and not (open_low and value == low) else text

    return check


def schedule(value: Any) -> str | None:
    """Take what :func:`drlnb.rl.schedules.parse_schedule` reads."""
    try:
        parse_schedule(value)
    except ValueError:
        return "must be a number >= 0, lin_NUMBER, or a function of the progress that remains"
    return None


def flag(value: Any) -> str | None:
    """Take True and False."""
    return None if isinstance(value, bool) else "must be true or false"


def optional(check: Check) -> Check:
    """Return a check that takes None as well."""

    def checked(value: Any) -> str | None:
        problem = None if value is None else check(value)
        return problem and f"{problem}, or none"

    return checked


def any_policy(value: Any) -> str | None:
    """Take the name of a policy, or a factory of modules that :func:`drlnb.rl.algorithms.resolve.resolve` packed."""
    if isinstance(value, str) and "lstm" in value.lower():
        return "cannot be recurrent: no algorithm here learns from sequences (FrameStack shows the last observations)"
    return (
        None
        if value in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy") or _packed(value)
        else (
            "must be MlpPolicy, CnnPolicy, MultiInputPolicy, or a function (observation_space, action_space, **kwargs) "
            "-> nn.Module"
        )
    )


def _packed(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"name", "pickled"}


def _optimizer(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return "is wrong: optimizer_kwargs must be a mapping"
    unknown = sorted(set(value) - _OPTIMIZER)
    if unknown:
        return f"is wrong: optimizer_kwargs takes the keys {', '.join(sorted(_OPTIMIZER))}, not {', '.join(unknown)}"
    betas = value.get("betas", (0.9, 0.999))
    pair = isinstance(betas, list | tuple) and len(betas) == 2 and all(FRACTION(beta) is None for beta in betas)
    good = pair and not any(WEIGHT(value.get(name, 0.0)) for name in ("eps", "weight_decay"))
    return None if good else "is wrong: optimizer_kwargs takes eps and weight_decay >= 0 and two betas in [0, 1]"


def extractor_kwargs(value: Mapping[str, Any]) -> str | None:
    """Take the arguments of a feature extractor and what it sees; others are not looked at."""
    chosen = value.get("features_extractor_class", "NatureCNN")
    if chosen != "NatureCNN" and not _packed(chosen):
        return "is wrong: features_extractor_class must be a class of nn.Module, or NatureCNN"
    if not isinstance(value.get("features_extractor_kwargs") or {}, Mapping):
        return "is wrong: features_extractor_kwargs must be a mapping"
    return "is wrong: normalize_images must be true or false" if flag(value.get("normalize_images", True)) else None


def any_policy_kwargs(value: Any) -> str | None:
    """Take the arguments of an MLP, of convolutions or of a feature extractor; those of a factory are its own."""
    if not isinstance(value, Mapping):
        return "must be a mapping"
    if problem := extractor_kwargs(value):
        return problem
    if "log_std_init" in value and number(-20.0, 20.0, "wrong")(value["log_std_init"]):
        return "is wrong: log_std_init must be a number in [-20, 20]"
    if flag(value.get("ortho_init", True)):
        return "is wrong: ortho_init must be true or false"
    try:
        network_shape(value)
    except (ConfigError, AttributeError, TypeError) as error:
        return f"is wrong: {error}"
    return _optimizer(value.get("optimizer_kwargs", {}))


def known_policy_keys(values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong between a policy and its arguments: a factory takes any, the named ones a few."""
    if isinstance(values["policy"], Mapping):
        return []
    problem = _keys(values["policy_kwargs"], _POLICY_KEYS | _MODULE_KEYS)
    return [f"policy_kwargs {problem}, got {_short(values['policy_kwargs'])}"] if problem else []


def _keys(value: Any, known: set[str]) -> str | None:
    unknown = sorted(set(value) - known)
    return f"takes the keys {', '.join(sorted(known))}, not {', '.join(unknown)}" if unknown else None


def normalize(value: Any) -> str | None:
    """Take a truth value or ``{norm_obs, norm_reward}``."""
    if isinstance(value, Mapping):
        return _keys(value, _NORMALIZE_KEYS) or next((p for p in map(flag, value.values()) if p), None)
    return flag(value) and "must be true, false or {norm_obs, norm_reward}"


#: Numbers in [0, 1].
FRACTION = number(0.0, 1.0, "must be a number in [0, 1]")
#: Numbers above 0.
POSITIVE = number(0.0, float("inf"), "must be a number > 0", open_low=True)
#: Numbers from 0.
WEIGHT = number(0.0, float("inf"), "must be a number >= 0")

#: Checks of the settings that mean the same for every algorithm; an algorithm's own table begins with these.
CHECKED: Mapping[str, Check] = {
    "policy": any_policy,
    "learning_rate": schedule,
    "gamma": FRACTION,
    "max_grad_norm": POSITIVE,
    "normalize": normalize,
    "policy_kwargs": any_policy_kwargs,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Base of an algorithm's settings: a frozen dataclass whose every field has a check.

    A subclass holds the fields and overrides the class variables.

    Raises
    ------
    ConfigError
        If values are wrong; the message names all of them.
    """

    #: Field -> check; complete.
    CHECKS: ClassVar[Mapping[str, Check]] = {}
    #: Other names of fields (CleanRL's), one to one.
    ALIASES: ClassVar[Mapping[str, str]] = {}
    #: Names that :meth:`convert` turns into fields.
    CONVERTED: ClassVar[frozenset[str]] = frozenset()
    #: Stable-Baselines3's arguments without a meaning here -> the reason.
    UNSUPPORTED: ClassVar[Mapping[str, str]] = NEVER
    #: Settings that may change while a task trains, from the next round on.
    LIVE: ClassVar[frozenset[str]] = frozenset({"learning_rate"})

    def __post_init__(self) -> None:
        problems = [self.check_value(f.name, getattr(self, f.name)) for f in fields(self)]
        if any(problems):
            raise ConfigError([problem for problem in problems if problem])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all settings, in the order of their definition."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def check_value(cls, name: str, value: Any) -> str | None:
        """Return what is wrong with one setting's value, with the value, or None."""
        problem = cls.CHECKS[name](value)
        return problem and f"{name} {problem}, got {_short(value)}"

    @classmethod
    def convert(cls, values: dict[str, Any], n_envs: int) -> list[str]:
        """Turn the names of `CONVERTED` into fields, in place; return problems.  Nothing to convert here."""
        return []

    @classmethod
    def check_together(cls, values: Mapping[str, Any], n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good; nothing here."""
        return []

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Build the settings from plain data; what is missing gets its default.

        Raises
        ------
        ConfigError
            If a key is unknown or a value is wrong.
        """
        unknown = sorted(mapping.keys() - set(cls.names()))
        if unknown:
            raise ConfigError([f"unknown hyper-parameter {name!r}" for name in unknown])
        return cls(**mapping)

    def to_plain(self) -> dict[str, Any]:
        """Return all settings as a mapping of plain data."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def remarks(self, n_envs: int) -> tuple[str, ...]:
        """Return what a person should know of these settings before training begins; nothing here."""
        return ()

    def round_steps(self) -> int:
        """Return the vector steps of one round: steps per environment between two updates."""
        return int(getattr(self, "n_steps"))  # noqa: B009 - a field of the subclasses that do not override this


def _short(value: Any) -> str:
    """Quote a value, but not a whole pickle."""
    text = repr(value)
    return text if len(text) <= 200 else re.sub(r"\s+", " ", text[:200]) + "..."
