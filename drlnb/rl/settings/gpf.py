"""Which settings has GPF?  One frozen dataclass, a check per setting, and the family that they describe.

Names are Stable-Baselines3's where it has the same thing; the field comments are the help texts.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from drlnb.rl.networks.layout import normalised
from drlnb.rl.settings import checks
from drlnb.rl.settings.checks import Check, Settings

__all__ = ["GpfSettings", "ends", "path_value"]

#: What a member of the family may say; what it does not say is the setting of the same name.
_MEMBER_KEYS = ("eps", "tau1", "tau2")
#: Fewest fresh actions in a mean of A: one would be the taken action's twin in noise.
_LEAST_SAMPLES = 5


def path_value(path: float | Sequence[float], progress_remaining: float) -> float:
    """Return the value of a number, or of a straight path ``[start, end]``, at a remaining progress in ``[0, 1]``.

    Examples
    --------
    >>> path_value(0.5, 0.3), path_value([0.5, 0.25], 0.5)
    (0.5, 0.375)
    """
    start, end = ends(path)
    return float(end + (start - end) * progress_remaining)


def ends(path: float | Sequence[float]) -> tuple[float, float]:
    """Return start and end of a path, rounded to float32: as they travel, so that both sides compute the same."""
    start, end = (path, path) if isinstance(path, int | float) else path
    return float(np.float32(start)), float(np.float32(end))


def _path(low: float, high: float, text: str, *, open_low: bool = False) -> Check:
    one = checks.number(low, high, text, open_low=open_low)

    def check(value: Any) -> str | None:
        ends = value if isinstance(value, list | tuple) and len(value) == 2 else (value,)
        return f"must be {text}, or a path [start, end] of two such numbers" if any(map(one, ends)) else None

    return check


_MEMBER_CHECKS: Mapping[str, Check] = {
    "eps": _path(0.0, 1.0, "a number in [0, 1]"),
    "tau1": _path(0.0, float("inf"), "a number > 0", open_low=True),
    "tau2": _path(0.0, float("inf"), "a number > 0", open_low=True),
}


def _members(value: Any) -> str | None:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(one, Mapping) for one in value):
        return "must be a list of at least one mapping of eps, tau1, tau2"
    for number, member in enumerate(value):
        for key, given in member.items():
            if key not in _MEMBER_CHECKS:
                return f"member {number} takes the keys {', '.join(_MEMBER_KEYS)}, not {key!r}"
            if problem := _MEMBER_CHECKS[key](given):
                return f"member {number}: {key} {problem}"
    return None


def _expectation(value: Any) -> str | None:
    return None if value in ("sample", "target") else "must be sample or target"


def _action_samples(value: Any) -> str | None:
    good = checks.whole(value) is None and value >= _LEAST_SAMPLES
    return None if good else f"must be a whole number >= {_LEAST_SAMPLES}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpfSettings(Settings):
    """GPF's settings, complete.

    Raises
    ------
    ConfigError
        If values are wrong; the message names all of them.
    """

    CHECKS: ClassVar[Mapping[str, Check]] = {
        **checks.CHECKED,
        **_MEMBER_CHECKS,
        "policy": checks.any_policy,
        "policy_kwargs": checks.any_policy_kwargs,
        "n_steps": checks.whole,
        "batch_size": checks.optional(checks.whole),
        "n_epochs": checks.whole,
        "target_kl": checks.optional(checks.POSITIVE),
        "gae_lambda": checks.FRACTION,
        "members": checks.optional(_members),
        "expectation": _expectation,
        "n_action_samples": checks.optional(_action_samples),
        "q_coef": checks.POSITIVE,
        "vf_coef": checks.WEIGHT,
        "pg_coef": checks.WEIGHT,
        "reward_scale": checks.optional(checks.POSITIVE),
    }
    ALIASES: ClassVar[Mapping[str, str]] = {"num_envs": "n_envs", "num_steps": "n_steps", "update_epochs": "n_epochs"}
    LIVE: ClassVar[frozenset[str]] = frozenset({"learning_rate", "eps", "tau1", "tau2", "n_epochs", "target_kl"})

    #: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy`` (Dict observations), or a function
    #: ``(observation_space, action_space, **kwargs) -> nn.Module``.
    policy: str | Mapping[str, str] = "MlpPolicy"
    #: Step size of Adam; a number, ``lin_x`` or a function of the progress that remains.
    learning_rate: float | str | Mapping[str, Any] = "lin_0.001"
    #: Steps per environment and round.
    n_steps: int = 32
    #: Samples per gradient step; none: the whole round.
    batch_size: int | None = None
    #: Passes over the round's samples; 1 with the whole round: gradients are computed as experience arrives.
    n_epochs: int = 20
    #: The round's epochs end when an epoch's mean KL of the acting policy exceeds 1.5 times this; none: never.
    target_kl: float | None = None
    #: Discount per step.
    gamma: float = 0.99
    #: Trace decay of the targets.
    gae_lambda: float = 0.95
    #: Weight of the first softmax in the policy; a number or a path ``[start, end]``.
    eps: float | Sequence[float] = 1.0
    #: Temperature of the first softmax, in units of scaled reward; a number or a path ``[start, end]``.
    tau1: float | Sequence[float] = (0.1, 0.02)
    #: Temperature of the second softmax, which has the weight 1 - eps; a number or a path ``[start, end]``.
    tau2: float | Sequence[float] = 1.0
    #: Members of the family, each a mapping of eps, tau1, tau2 (missing: as above); member i mod M acts in env i.
    members: Sequence[Mapping[str, Any]] | None = None
    #: Whose policy a sample is judged by: the member's that acted (``sample``), or the first member's (``target``).
    expectation: str = "sample"
    #: Fresh actions per state in the mean of A; none: the exact sum over actions.
    n_action_samples: int | None = None
    #: Weight of the action value's mean squared error.
    q_coef: float = 0.5
    #: Weight of the state value's mean squared error.
    vf_coef: float = 0.5
    #: Weight of an additional policy-gradient term.
    pg_coef: float = 0.0
    #: Rewards are multiplied by it, after any normalising; none: 1, with a warning if rewards are not normalised.
    reward_scale: float | None = None
    #: Largest norm of the whole gradient.
    max_grad_norm: float = 0.5
    #: Normalise observations and rewards by running statistics; or ``{norm_obs, norm_reward}``.
    normalize: bool | Mapping[str, bool] = False
    #: ``net_arch``, ``activation_fn``, ``ortho_init``, ``optimizer_kwargs``, ``normalize_images``,
    #: ``features_extractor_class``, ``features_extractor_kwargs``; a factory's own arguments.
    policy_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def check_together(cls, values: Mapping[str, Any], n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good.

        Warns
        -----
        UserWarning
            When nothing says in which units the temperatures are: rewards are neither scaled nor normalised.
        """
        batch, samples, members = values["batch_size"], values["n_steps"] * n_envs, len(values["members"] or ((),))
        problems = checks.known_policy_keys(values)
        if batch is not None and batch > samples:
            total = f"{values['n_steps']} * {n_envs} = {samples}"
            problems.append(f"batch_size must be <= n_steps * n_envs = {total}, got {batch}")
        if members > n_envs:
            problems.append(f"members must be at most n_envs = {n_envs} (member i mod M acts in env i), got {members}")
        if not problems and values["reward_scale"] is None and not normalised(values["normalize"])[1]:
            warnings.warn(
                f"gpf: neither reward_scale nor norm_reward is set; tau1 = {values['tau1']} is in units of reward, and "
                "far below the differences of returns the policy collapses (reward_scale = 1 says that it fits)",
                stacklevel=3,
            )
        return problems

    def to_plain(self) -> dict[str, Any]:
        """Return all settings as a mapping of plain data."""
        return {name: list(v) if isinstance(v, tuple) else v for name in self.names() for v in [getattr(self, name)]}

    @property
    def n_members(self) -> int:
        """Size of the family."""
        return len(self.members or ({},))

    @property
    def is_mixed(self) -> bool:
        """Whether any member ever acts by two softmaxes."""
        return any(member.get("eps", self.eps) not in (1, [1, 1], (1, 1)) for member in self.members or ({},))

    def strategies(self, progress_remaining: float) -> np.ndarray:
        """Return ``eps, tau1, tau2`` of each member at a remaining progress in ``[0, 1]``; float32, shape ``(M, 3)``.

        The first member is the target: the one that plays outside of training.

        Examples
        --------
        >>> GpfSettings(tau1=[0.5, 0.25], tau2=2, members=[{}, {"eps": 0.5}]).strategies(0.0).tolist()
        [[1.0, 0.25, 2.0], [0.5, 0.25, 2.0]]
        """
        family = self.members or ({},)
        rows = [[member.get(key, getattr(self, key)) for key in _MEMBER_KEYS] for member in family]
        return np.array([[path_value(path, progress_remaining) for path in row] for row in rows], np.float32)
