"""Declare DQN's settings: Stable-Baselines3's (2.9) names and defaults; the field comments are the help texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from drlnb.records.base import Facts
from drlnb.records.settings import FLAG, SHARE, count, fitting, is_whole, setting
from drlnb.rl.networks.policies import q_network
from drlnb.rl.settings import checks
from drlnb.rl.settings.checks import Settings

__all__ = ["DqnSettings"]

_GRADIENT_STEPS = fitting("a whole number >= 0, or -1 for one per transition", lambda value: is_whole(value, -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class DqnSettings(Settings):
    """DQN's settings, complete; see :class:`drlnb.rl.settings.checks.Settings`."""

    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        **checks.NEVER,
        "n_steps": "returns of several steps are not built yet; a round has train_freq steps",
        "normalize": "observations and rewards are not normalised for dqn",
        "optimize_memory_usage": "each observation is stored once in any case",
        "replay_buffer_class": "there is one ring, for all tasks alike",
        "replay_buffer_kwargs": "there is one ring, for all tasks alike, to which a time limit is no end",
    }
    MEANS_NOTHING: ClassVar[Mapping[str, tuple[object, ...]]] = {
        "optimize_memory_usage": (
            False,
            True,
        ),  # each observation is stored once in any case, and time limits are right
        "n_steps": (1,),
        "replay_buffer_kwargs": (None, {}, {"handle_timeout_termination": True}),
    }
    POLICY_KEYS: ClassVar[frozenset[str]] = frozenset({
        *("net_arch", "activation_fn", "optimizer_class", "optimizer_kwargs"),
        *("features_extractor_class", "features_extractor_kwargs", "normalize_images"),
    })

    #: ``MlpPolicy``, ``CnnPolicy``, ``MultiInputPolicy`` (Dict observations), or a function
    #: ``(observation_space, action_space, **kwargs) -> nn.Module`` whose ``actor(obs)`` gives action values.
    policy: str | Mapping[str, str] = setting("MlpPolicy", checks.POLICY)
    #: Step size of the optimiser; a number or ``lin_x``.
    learning_rate: float | str = setting(1e-4, checks.SCHEDULE, live=True)
    #: Transitions remembered, over all environments.
    buffer_size: int = setting(1_000_000, checks.WHOLE)
    #: Environment steps (over all environments) with random actions, before the first gradient step.
    learning_starts: int = setting(100, count(0))
    #: Samples per gradient step.
    batch_size: int = setting(32, checks.WHOLE)
    #: Share of the trained network in each update of the target network; 1: a copy.
    tau: float = setting(1.0, SHARE, live=True)
    #: Discount per step.
    gamma: float = setting(0.99, SHARE)
    #: Steps per environment between two spells of gradient steps.
    train_freq: int = setting(4, checks.WHOLE)
    #: Gradient steps per spell; -1: one per transition of the spell; 0: it collects and learns nothing.
    gradient_steps: int = setting(1, _GRADIENT_STEPS)
    #: Environment steps (over all environments) between two updates of the target network.
    target_update_interval: int = setting(10_000, checks.WHOLE)
    #: Share of the budget over which exploration falls to its end.
    exploration_fraction: float = setting(0.1, SHARE)
    #: Probability of a random action at the start.
    exploration_initial_eps: float = setting(1.0, SHARE)
    #: Probability of a random action from the end of the fall on.
    exploration_final_eps: float = setting(0.05, SHARE)
    #: Largest norm of the whole gradient.
    max_grad_norm: float = setting(10.0, checks.ABOVE_0)
    #: The trained network chooses the next action, the target network values it (double Q-learning).
    double_q: bool = setting(False, FLAG)
    #: Spells joined into one round: fewer leases and sends, actors lag behind by more gradient steps.
    periods_per_round: int = setting(1, checks.WHOLE)
    #: ``net_arch`` (widths), ``activation_fn``, ``optimizer_class``, ``optimizer_kwargs``, ``normalize_images``,
    #: ``features_extractor_class``, ``features_extractor_kwargs``; a factory's own arguments.
    policy_kwargs: Facts = setting({}, checks.network_kwargs(q_network, POLICY_KEYS))
    #: Episodes that the rolling means of returns, lengths and successes cover.
    stats_window_size: int = setting(100, checks.WHOLE)

    def round_steps(self) -> int:
        """Return the vector steps of one round."""
        return self.train_freq * self.periods_per_round

    def whole_round(self, n_envs: int) -> str:
        """Return that a round's gradient steps follow one another."""
        return "each of its gradient steps needs the one before; several seeds use several slots"

    def n_gradient_steps(self, n_transitions: int) -> int:
        """Return the gradient steps of a round that made so many transitions, once learning has started.

        Examples
        --------
        >>> DqnSettings().n_gradient_steps(64), DqnSettings(gradient_steps=-1).n_gradient_steps(64)
        (1, 64)
        """
        return n_transitions if self.gradient_steps == -1 else self.gradient_steps * self.periods_per_round

    def remarks(self, n_envs: int) -> tuple[str, ...]:
        """Return how much is learnt from each transition: the zoo's entries are tuned with one environment.

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
