"""Declare PPO's settings.

Names and defaults are Stable-Baselines3's (2.9); the field comments are the help texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from drlnb.records.base import Facts
from drlnb.records.settings import FLAG, optional, setting
from drlnb.rl.schedules import Scheduled
from drlnb.rl.settings import checks
from drlnb.rl.settings.checks import OnPolicySettings

__all__ = ["PpoSettings"]

#: Arguments of state-dependent exploration in ``policy_kwargs``, and their defaults.
_SDE = {"full_std": True, "use_expln": False, "squash_output": False}
_EVERY = checks.whole_or_minus_1("for the start of each round only")


@dataclass(frozen=True, slots=True, kw_only=True)
class PpoSettings(OnPolicySettings):
    """PPO's settings, complete; see :class:`drlnb.rl.settings.checks.Settings`."""

    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        **{name: reason for name, reason in checks.NEVER.items() if name != "use_masking"},
        "rollout_buffer_class": "samples travel as fragments, there is no buffer class",
        "rollout_buffer_kwargs": "samples travel as fragments, there is no buffer class",
        "num_minibatches": "say batch_size, the samples of a gradient step",
        "anneal_lr": "say learning_rate=lin_3e-4, which falls to 0",
        "clip_coef": "it is called clip_range",
        "norm_adv": "it is called normalize_advantage",
    }

    POLICY_KEYS: ClassVar[frozenset[str]] = OnPolicySettings.POLICY_KEYS | _SDE.keys()

    #: Largest |ratio - 1| that still earns; a number or ``lin_x``.
    clip_range: Scheduled = setting(0.2, checks.SCHEDULE, live=True)
    #: The same for the value function; none: not clipped.
    clip_range_vf: Scheduled | None = setting(None, optional(checks.SCHEDULE))
    #: Advantages of each minibatch get mean 0 and standard deviation 1; a last one of one sample joins its neighbour.
    normalize_advantage: bool = setting(True, FLAG)
    #: Weight of the entropy bonus.
    ent_coef: float = setting(0.0, checks.WEIGHT, live=True)
    #: Forbidden actions get probability 0; the environment says which: ``action_masks()`` or ``info["action_mask"]``.
    use_masking: bool = setting(False, FLAG)
    #: Generalised state-dependent exploration (gSDE) instead of noise of each step's own; boxes; `policy_kwargs` may
    #: have ``full_std``, ``use_expln`` and ``squash_output``.
    use_sde: bool = setting(False, FLAG)
    #: Steps between two draws of its matrix; -1: at the start of each round only.
    sde_sample_freq: int = setting(-1, _EVERY)

    @classmethod
    def check_together(cls, values: Facts, n_envs: int) -> list[str]:
        """Return what is wrong between settings that are each good."""
        problems = super(PpoSettings, cls).check_together(values, n_envs)
        kwargs = values["policy_kwargs"]
        if not (values["use_sde"] or isinstance(values["policy"], Mapping)):
            said = [name for name, default in _SDE.items() if kwargs.get(name, default) != default]
            problems += [f"policy_kwargs: {name} needs use_sde=True" for name in said]
        if values["normalize_advantage"] and values["batch_size"] == 1:
            problems.append("batch_size must be >= 2 with normalize_advantage (one sample has no spread), got 1")
        return problems
