"""Declare the settings that PPO and GPF share: rounds of `n_steps`, epochs of minibatches.

Names and defaults are Stable-Baselines3's (2.9); the field comments are the help texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from drlnb.rl.plain import Facts
from drlnb.rl.schedules import Scheduled
from drlnb.rl.settings import checks
from drlnb.rl.settings.checks import Settings, setting

__all__ = ["OnPolicySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicySettings(Settings):
    """Settings of an algorithm that learns from each round's own samples."""

    POLICY_KEYS: ClassVar[frozenset[str]] = frozenset({
        *("net_arch", "activation_fn", "ortho_init", "log_std_init", "optimizer_kwargs"),
        *("features_extractor_class", "features_extractor_kwargs", "normalize_images"),
    })

    #: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy`` (Dict observations), or a function
    #: ``(observation_space, action_space, **kwargs) -> nn.Module``.
    policy: str | Mapping[str, str] = setting("MlpPolicy", checks.any_policy)
    #: Step size of Adam; a number, ``lin_x`` or a function of the progress that remains.
    learning_rate: Scheduled = setting(3e-4, checks.schedule, live=True)
    #: Steps per environment and round.
    n_steps: int = setting(2048, checks.whole)
    #: Samples per gradient step.
    batch_size: int | None = setting(64, checks.whole)
    #: Passes over the round's samples; 1 with the whole round: gradients are computed as experience arrives.
    n_epochs: int = setting(10, checks.whole, live=True)
    #: Discount per step.
    gamma: float = setting(0.99, checks.FRACTION)
    #: Trace decay of generalised advantage estimation, and of GPF's targets.
    gae_lambda: float = setting(0.95, checks.FRACTION)
    #: Weight of the value loss (mean squared error, without 1/2).
    vf_coef: float = setting(0.5, checks.WEIGHT)
    #: Largest norm of the whole gradient.
    max_grad_norm: float = setting(0.5, checks.POSITIVE)
    #: The round's epochs end when an epoch's mean KL exceeds 1.5 times this; none: never.
    target_kl: float | None = setting(None, checks.optional(checks.POSITIVE), live=True)
    #: Normalise observations and rewards by running statistics; or ``{norm_obs, norm_reward}``.
    normalize: bool | Mapping[str, bool] = setting(False, checks.normalize)
    #: ``net_arch``, ``activation_fn``, ``ortho_init``, ``log_std_init``, ``optimizer_kwargs``, ``normalize_images``,
    #: ``features_extractor_class``, ``features_extractor_kwargs``; a factory's own arguments.
    policy_kwargs: Facts = setting({}, checks.any_policy_kwargs)

    @classmethod
    def check_together(cls, values: Facts, n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good: policy, batch, steps and environments."""
        problems = super(OnPolicySettings, cls).check_together(
            values, n_envs
        )  # slots make the class anew: no bare super
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
