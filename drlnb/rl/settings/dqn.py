"""Which settings has DQN?  Stable-Baselines3's (2.9) names and defaults; the field comments are the help texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from drlnb.records.errors import ConfigError
from drlnb.rl.settings import checks
from drlnb.rl.settings.checks import Check, Settings

__all__ = ["DqnSettings", "q_network"]

#: Stable-Baselines3's hidden layers and activation for DQN.
_ARCH, _ACTIVATION = (64, 64), "relu"
_POLICY_KEYS = ("net_arch", "activation_fn")
_MODULE_KEYS = ("features_extractor_class", "features_extractor_kwargs", "normalize_images")


def q_network(
    policy_kwargs: Mapping[str, Any] | None, default: Sequence[int] | None = None
) -> tuple[tuple[int, ...], str]:
    """Return hidden widths and activation of the action-value network.

    Parameters
    ----------
    policy_kwargs
        ``net_arch``, a list of widths (64, 64); ``activation_fn`` as text: ``ReLU``, ``nn.Tanh``, ...; what else it
        holds is not read.
    default
        Widths where `policy_kwargs` says none; None: 64 and 64.

    Raises
    ------
    ConfigError
        If a width or the activation is unknown.

    Examples
    --------
    >>> q_network({"net_arch": [256, 256]})
    ((256, 256), 'relu')
    """
    kwargs = dict(policy_kwargs or {})
    arch = kwargs.get("net_arch", _ARCH if default is None else default)
    if not isinstance(arch, list | tuple) or any(checks.whole(width) for width in arch):
        raise ConfigError(f"net_arch must be a list of widths, whole numbers >= 1, got {arch!r}")
    given = kwargs.get("activation_fn") or _ACTIVATION
    activation = str(given).lower().rsplit(".", 1)[-1]
    if activation not in {"tanh", "relu"}:
        raise ConfigError(f"activation_fn must be tanh or relu, got {given!r}")
    return tuple(arch), activation


def _policy_kwargs(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return "must be a mapping"
    try:
        q_network(value)
    except ConfigError as error:
        return f"is wrong: {error}"
    return checks.extractor_kwargs(value)


def _from_zero(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if good else "must be a whole number >= 0"


def _gradient_steps(value: Any) -> str | None:
    good = isinstance(value, int) and not isinstance(value, bool) and (value >= 1 or value == -1)
    return None if good else "must be a whole number >= 1, or -1 for one per transition"


@dataclass(frozen=True, slots=True, kw_only=True)
class DqnSettings(Settings):
    """DQN's settings, complete.

    Raises
    ------
    ConfigError
        If values are wrong; the message names all of them.
    """

    CHECKS: ClassVar[Mapping[str, Check]] = {
        "policy": checks.any_policy,
        "learning_rate": checks.schedule,
        "buffer_size": checks.whole,
        "learning_starts": _from_zero,
        "batch_size": checks.whole,
        "tau": checks.FRACTION,
        "gamma": checks.FRACTION,
        "train_freq": checks.whole,
        "gradient_steps": _gradient_steps,
        "target_update_interval": checks.whole,
        "exploration_fraction": checks.FRACTION,
        "exploration_initial_eps": checks.FRACTION,
        "exploration_final_eps": checks.FRACTION,
        "max_grad_norm": checks.POSITIVE,
        "double_q": checks.flag,
        "periods_per_round": checks.whole,
        "policy_kwargs": _policy_kwargs,
    }
    #: CleanRL's names for ours.
    ALIASES: ClassVar[Mapping[str, str]] = {
        "num_envs": "n_envs",
        "train_frequency": "train_freq",
        "target_network_frequency": "target_update_interval",
        "start_e": "exploration_initial_eps",
        "end_e": "exploration_final_eps",
    }
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        **checks.NEVER,
        "n_steps": "returns of several steps are not built yet; a round has train_freq steps",
        "normalize": "observations and rewards are not normalised for dqn",
        "optimize_memory_usage": "each observation is stored once in any case, and time limits are right",
        "replay_buffer_class": "there is one ring, for all tasks alike",
        "replay_buffer_kwargs": "there is one ring, for all tasks alike",
    }
    LIVE: ClassVar[frozenset[str]] = frozenset({"learning_rate", "tau"})

    #: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy`` (Dict observations), or a function
    #: ``(observation_space, action_space, **kwargs) -> nn.Module`` whose ``actor(obs)`` gives action values.
    policy: str | Mapping[str, str] = "MlpPolicy"
    #: Step size of Adam; a number or ``lin_x``.
    learning_rate: float | str = 1e-4
    #: Transitions remembered, over all environments.
    buffer_size: int = 1_000_000
    #: Environment steps (over all environments) with random actions, before the first gradient step.
    learning_starts: int = 100
    #: Samples per gradient step.
    batch_size: int = 32
    #: Share of the trained network in each update of the target network; 1: a copy.
    tau: float = 1.0
    #: Discount per step.
    gamma: float = 0.99
    #: Steps per environment between two spells of gradient steps.
    train_freq: int = 4
    #: Gradient steps per spell; -1: one per transition of the spell.
    gradient_steps: int = 1
    #: Environment steps (over all environments) between two updates of the target network.
    target_update_interval: int = 10_000
    #: Share of the budget over which exploration falls to its end.
    exploration_fraction: float = 0.1
    #: Probability of a random action at the start.
    exploration_initial_eps: float = 1.0
    #: Probability of a random action from the end of the fall on.
    exploration_final_eps: float = 0.05
    #: Largest norm of the whole gradient.
    max_grad_norm: float = 10.0
    #: The trained network chooses the next action, the target network values it (double Q-learning).
    double_q: bool = False
    #: Spells joined into one round: fewer leases and sends, actors lag behind by more gradient steps.
    periods_per_round: int = 1
    #: ``net_arch`` (widths), ``activation_fn`` (tanh, relu), ``normalize_images``, ``features_extractor_class``,
    #: ``features_extractor_kwargs``; a factory's own arguments.
    policy_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def check_together(cls, values: Mapping[str, Any], n_envs: int) -> list[str]:
        """Return what is wrong between a policy and its arguments: a factory takes any, the named ones a few."""
        known = (*_POLICY_KEYS, *_MODULE_KEYS)
        unknown = sorted(values["policy_kwargs"].keys() - set(known))
        if isinstance(values["policy"], Mapping) or not unknown:
            return []
        return [f"policy_kwargs takes the keys {', '.join(known)}, not {', '.join(unknown)}"]

    def round_steps(self) -> int:
        """Return the vector steps of one round."""
        return self.train_freq * self.periods_per_round

    def n_gradient_steps(self, n_transitions: int) -> int:
        """Return the gradient steps of a round that made so many transitions, once learning has started.

        Examples
        --------
        >>> DqnSettings().n_gradient_steps(64), DqnSettings(gradient_steps=-1).n_gradient_steps(64)
        (1, 64)
        """
        return n_transitions if self.gradient_steps == -1 else self.gradient_steps * self.periods_per_round

    def remarks(self, n_envs: int) -> tuple[str, ...]:
        """Say how much is learnt from each transition: the zoo's entries are tuned with one environment.

        Examples
        --------
        >>> DqnSettings().remarks(16)
        ('replay ratio 0.0156: 1 gradient steps per 64 transitions',)
        """
        made = self.round_steps() * n_envs
        learnt = self.n_gradient_steps(made)
        return (f"replay ratio {learnt / made:.3g}: {learnt} gradient steps per {made} transitions",)

    def n_target_updates(self, before: int, after: int, n_envs: int) -> int:
        """Return how many updates of the target network fall into the vector steps ``(before, after]``.

        Examples
        --------
        >>> settings = DqnSettings(target_update_interval=10)
        >>> settings.n_target_updates(0, 256, 1), settings.n_target_updates(8, 12, 4)
        (25, 2)
        """
        every = max(self.target_update_interval // n_envs, 1)
        return after // every - before // every

    def epsilon(self, n_timesteps: np.ndarray, total_timesteps: int) -> np.ndarray:
        """Return the probability of a random action after that many environment steps; float64, of the same shape.

        1 before `learning_starts`; then it falls linearly with the share of the budget that is used.

        Examples
        --------
        >>> settings = DqnSettings(learning_starts=2, exploration_initial_eps=0.5, exploration_final_eps=0.1)
        >>> settings.epsilon(np.array([1, 2, 5, 10, 99]), 100).round(3).tolist()
        [1.0, 0.42, 0.3, 0.1, 0.1]
        """
        first, last, fraction = self.exploration_initial_eps, self.exploration_final_eps, self.exploration_fraction
        used = np.asarray(n_timesteps, np.float64) / total_timesteps
        fallen = np.where(used < fraction, first + used * (last - first) / (fraction or 1.0), last)
        return np.where(np.asarray(n_timesteps) < self.learning_starts, 1.0, fallen)
