"""Which settings has PPO?  One frozen dataclass, and a check per setting.

Names and defaults are Stable-Baselines3's (2.9); the field comments are the help texts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any, Self

from drlnb.records.errors import ConfigError
from drlnb.rl.layout import network_shape
from drlnb.rl.schedules import parse_schedule

__all__ = ["PpoSettings", "check_value"]

_POLICY_KEYS = {"net_arch", "activation_fn", "ortho_init", "log_std_init"}
_NORMALIZE_KEYS = {"norm_obs", "norm_reward"}


def _whole(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return None if good else "must be a whole number >= 1"


def _number(low: float, high: float, text: str, *, open_low: bool = False) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        good = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        return None if good and low <= value <= high and not (open_low and value == low) else text

    return check


def _schedule(value: Any) -> str | None:
    try:
        parse_schedule(value)
    except ValueError:
        return "must be a number >= 0 or lin_NUMBER"
    return None


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _optional(check: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    def checked(value: Any) -> str | None:
        problem = None if value is None else check(value)
        return problem and f"{problem}, or none"

    return checked


def _policy(value: Any) -> str | None:
    return None if value == "MlpPolicy" else "must be MlpPolicy (the only policy so far)"


def _keys(value: Any, known: set[str]) -> str | None:
    unknown = sorted(set(value) - known)
    return f"takes the keys {', '.join(sorted(known))}, not {', '.join(unknown)}" if unknown else None


def _policy_kwargs(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return "must be a mapping"
    try:
        network_shape(value)
    except (ConfigError, AttributeError, TypeError) as error:
        return f"is wrong: {error}"
    return _keys(value, _POLICY_KEYS)


def _normalize(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return _keys(value, _NORMALIZE_KEYS) or next((p for p in map(_flag, value.values()) if p), None)
    return _flag(value) and "must be true, false or {norm_obs, norm_reward}"


_FRACTION = _number(0.0, 1.0, "must be a number in [0, 1]")
_POSITIVE = _number(0.0, float("inf"), "must be a number > 0", open_low=True)
_WEIGHT = _number(0.0, float("inf"), "must be a number >= 0")

_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "policy": _policy,
    "learning_rate": _schedule,
    "n_steps": _whole,
    "batch_size": _whole,
    "n_epochs": _whole,
    "gamma": _FRACTION,
    "gae_lambda": _FRACTION,
    "clip_range": _schedule,
    "clip_range_vf": _optional(_schedule),
    "normalize_advantage": _flag,
    "ent_coef": _WEIGHT,
    "vf_coef": _WEIGHT,
    "max_grad_norm": _POSITIVE,
    "target_kl": _optional(_POSITIVE),
    "normalize": _normalize,
    "policy_kwargs": _policy_kwargs,
}


def check_value(name: str, value: Any) -> str | None:
    """Return what is wrong with one setting's value, with the value, or None."""
    problem = _CHECKS[name](value)
    return problem and f"{name} {problem}, got {value!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoSettings:
    """PPO's settings, complete.

    Raises
    ------
    ConfigError
        If values are wrong; the message names all of them.
    """

    #: Network family; only ``MlpPolicy`` so far.
    policy: str = "MlpPolicy"
    #: Step size of Adam; a number or ``lin_x``.
    learning_rate: float | str = 3e-4
    #: Steps per environment and round.
    n_steps: int = 2048
    #: Samples per gradient step.
    batch_size: int = 64
    #: Passes over the round's samples.
    n_epochs: int = 10
    #: Discount per step.
    gamma: float = 0.99
    #: Trace decay of generalised advantage estimation.
    gae_lambda: float = 0.95
    #: Largest |ratio - 1| that still earns; a number or ``lin_x``.
    clip_range: float | str = 0.2
    #: The same for the value function; none: not clipped.
    clip_range_vf: float | str | None = None
    #: Advantages of each minibatch get mean 0 and standard deviation 1.
    normalize_advantage: bool = True
    #: Weight of the entropy bonus.
    ent_coef: float = 0.0
    #: Weight of the value loss (mean squared error, without 1/2).
    vf_coef: float = 0.5
    #: Largest norm of the whole gradient.
    max_grad_norm: float = 0.5
    #: The round's epochs end when an epoch's mean KL exceeds 1.5 times this; none: never.
    target_kl: float | None = None
    #: Normalise observations and rewards by running statistics; or ``{norm_obs, norm_reward}``.
    normalize: bool | Mapping[str, bool] = False
    #: ``net_arch``, ``activation_fn`` (tanh, relu), ``ortho_init``, ``log_std_init``.
    policy_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [check_value(f.name, getattr(self, f.name)) for f in fields(self)]
        if any(problems):
            raise ConfigError([problem for problem in problems if problem])

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Build the settings from plain data; what is missing gets its default.

        Raises
        ------
        ConfigError
            If a key is unknown or a value is wrong.
        """
        unknown = sorted(mapping.keys() - {f.name for f in fields(cls)})
        if unknown:
            raise ConfigError([f"unknown hyper-parameter {name!r}" for name in unknown])
        return cls(**mapping)

    def to_plain(self) -> dict[str, Any]:
        """Return all settings as a mapping of plain data."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
