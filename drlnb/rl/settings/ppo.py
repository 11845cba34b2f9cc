"""Which settings has PPO?  One frozen dataclass, and a check per setting.

Names and defaults are Stable-Baselines3's (2.9); the field comments are the help texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from drlnb.rl.settings import checks
from drlnb.rl.settings.checks import Check, Settings

__all__ = ["PpoSettings"]


def _every(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and (value >= 1 or value == -1)
    return None if good else "must be a whole number >= 1, or -1 for the start of each round only"


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoSettings(Settings):
    """PPO's settings, complete.

    Raises
    ------
    ConfigError
        If values are wrong; the message names all of them.
    """

    CHECKS: ClassVar[Mapping[str, Check]] = {
        **checks.CHECKED,
        "policy": checks.any_policy,
        "policy_kwargs": checks.any_policy_kwargs,
        "n_steps": checks.whole,
        "batch_size": checks.whole,
        "n_epochs": checks.whole,
        "gae_lambda": checks.FRACTION,
        "clip_range": checks.schedule,
        "clip_range_vf": checks.optional(checks.schedule),
        "normalize_advantage": checks.flag,
        "ent_coef": checks.WEIGHT,
        "vf_coef": checks.WEIGHT,
        "target_kl": checks.optional(checks.POSITIVE),
        "use_masking": checks.flag,
        "use_sde": checks.flag,
        "sde_sample_freq": _every,
    }
    #: CleanRL's names for ours; ``num_minibatches`` and ``anneal_lr`` are converted.
    ALIASES: ClassVar[Mapping[str, str]] = {
        "num_envs": "n_envs",
        "num_steps": "n_steps",
        "update_epochs": "n_epochs",
        "clip_coef": "clip_range",
        "norm_adv": "normalize_advantage",
    }
    CONVERTED: ClassVar[frozenset[str]] = frozenset({"anneal_lr", "num_minibatches"})
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        **{name: reason for name, reason in checks.NEVER.items() if name != "use_masking"},
        "rollout_buffer_class": "samples travel as fragments, there is no buffer class",
        "rollout_buffer_kwargs": "samples travel as fragments, there is no buffer class",
    }
    LIVE: ClassVar[frozenset[str]] = frozenset({"learning_rate", "ent_coef", "clip_range", "target_kl", "n_epochs"})

    #: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy`` (Dict observations), or a function
    #: ``(observation_space, action_space, **kwargs) -> nn.Module``.
    policy: str | Mapping[str, str] = "MlpPolicy"
    #: Step size of Adam; a number, ``lin_x`` or a function of the progress that remains.
    learning_rate: float | str | Mapping[str, Any] = 3e-4
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
    clip_range: float | str | Mapping[str, Any] = 0.2
    #: The same for the value function; none: not clipped.
    clip_range_vf: float | str | Mapping[str, Any] | None = None
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
    #: Forbidden actions get probability 0; the environment says which: ``action_masks()`` or ``info["action_mask"]``.
    use_masking: bool = False
    #: Generalised state-dependent exploration (gSDE) instead of noise of each step's own; boxes, MLPs.
    use_sde: bool = False
    #: Steps between two draws of its matrix; -1: at the start of each round only.
    sde_sample_freq: int = -1
    #: Normalise observations and rewards by running statistics; or ``{norm_obs, norm_reward}``.
    normalize: bool | Mapping[str, bool] = False
    #: ``net_arch``, ``activation_fn``, ``ortho_init``, ``log_std_init``, ``optimizer_kwargs``, ``normalize_images``,
    #: ``features_extractor_class``, ``features_extractor_kwargs``; a factory's own arguments.
    policy_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def convert(cls, values: dict[str, Any], n_envs: int) -> list[str]:
        """Turn CleanRL's counts and flags into ours, in place; return problems."""
        problems = []
        if "num_minibatches" in values:
            n, n_steps = values.pop("num_minibatches"), values["n_steps"]
            problem = checks.whole(n)
            if problem:
                problems.append(f"num_minibatches {problem}, got {n!r}")
            elif isinstance(n_steps, int) and n_steps * n_envs >= n:
                values["batch_size"] = n_steps * n_envs // n
            else:
                problems.append(f"num_minibatches = {n} must be <= n_steps * n_envs = {n_steps} * {n_envs}")
        anneal = values.pop("anneal_lr", False)
        if not isinstance(anneal, bool):
            problems.append(f"anneal_lr must be true or false, got {anneal!r}")
        elif anneal and isinstance(values["learning_rate"], int | float):
            values["learning_rate"] = f"lin_{values['learning_rate']}"
        return problems

    @classmethod
    def check_together(cls, values: Mapping[str, Any], n_envs: int) -> list[str]:
        """Return what is wrong between batch, steps and environments."""
        batch, steps = values["batch_size"], values["n_steps"]
        problems = checks.known_policy_keys(values)
        if batch > steps * n_envs:
            total = f"{steps} * {n_envs} = {steps * n_envs}"
            problems.append(f"batch_size must be <= n_steps * n_envs = {total}, got {batch}")
        if values["normalize_advantage"] and batch == 1:
            problems.append("batch_size must be >= 2 with normalize_advantage (one sample has no spread), got 1")
        return problems
