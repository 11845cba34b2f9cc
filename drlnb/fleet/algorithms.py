"""Define PPO, DQN and GPF, with Stable-Baselines3's constructors."""

from typing import ClassVar

import numpy as np

from drlnb.fleet.algorithm import Algorithm
from drlnb.rl.settings.dqn import DqnSettings

__all__ = ["DQN", "GPF", "PPO"]

#: Stable-Baselines3's last arguments, the same for each of its algorithms.
_LAST = ("stats_window_size", "tensorboard_log", "policy_kwargs", "verbose", "seed", "device", "_init_setup_model")


class PPO(Algorithm):
    """Proximal policy optimisation, with Stable-Baselines3's constructor.

    Parameters
    ----------
    policy
        ``"MlpPolicy"``, ``"CnnPolicy"`` (images), ``"MultiInputPolicy"`` (``Dict`` observations), or a function
        ``(observation_space, action_space, **kwargs) -> nn.Module``.
    env
        Gymnasium id, ``module:Id-v0``, an environment of ``gymnasium.make``, or a class or function that returns one.
    learning_rate, n_steps, batch_size, n_epochs, gamma, gae_lambda, clip_range, clip_range_vf, normalize_advantage, \
ent_coef, vf_coef, max_grad_norm, use_sde, sde_sample_freq, target_kl, policy_kwargs
        Settings, see :class:`drlnb.rl.settings.ppo.PpoSettings`; a schedule is a number or ``lin_x``.
    tensorboard_log
        Folder of event files, one folder ``NAME_1``, ``NAME_2``, ... in it per budget; takes the extra ``track``.
    verbose
        1: a line of progress every `log_interval` rounds.
    seed
        Of every random stream; None: drawn, and kept in :attr:`seed`.
    n_envs
        Environments over all collectors.
    n_collectors
        Collector processes, at most `n_envs`; None: two, as many as `n_learners` if those are more, or `n_envs`.
    n_learners, deterministic
        As of :class:`drlnb.Task`: slots that compute a round's gradient, those of epochs with ``deterministic=False``;
        ``local=True`` computes all of it here.
    env_kwargs, env_wrappers
        As of :class:`drlnb.Task`: arguments of the constructor, and names, or ``{name: arguments}``, innermost first.
    fleet
        Where to train; None: the fleet that is up in this process, else one of its own when it is needed.
    use_masking
        Forbidden actions get probability 0, as of sb3-contrib's ``MaskablePPO``.
    normalize
        Normalise observations and rewards by running statistics; or ``{norm_obs, norm_reward}``.

    Raises
    ------
    TypeError
        If an argument is unknown; the nearest one is named.
    ConfigError
        If values are wrong, or one of Stable-Baselines3's arguments has no meaning here; all are listed.
    EnvError
        If the environment cannot be made, or breaks its contract.

    Examples
    --------
    >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, seed=1)
    >>> model.settings["n_epochs"], model.n_envs
    (10, 1)
    """

    ALGO: ClassVar[str] = "ppo"
    ORDER: ClassVar[tuple[str, ...]] = (
        "learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf",
        "normalize_advantage", "ent_coef", "vf_coef", "max_grad_norm", "use_sde", "sde_sample_freq",
        "rollout_buffer_class", "rollout_buffer_kwargs", "target_kl", *_LAST,
    )  # fmt: skip


class DQN(Algorithm):
    """Deep Q-learning, with Stable-Baselines3's constructor.

    Parameters
    ----------
    policy, env, tensorboard_log, verbose, seed, n_envs, n_collectors, n_learners, deterministic, env_kwargs, \
env_wrappers, fleet
        As of :class:`PPO`.
    learning_rate, buffer_size, learning_starts, batch_size, tau, gamma, train_freq, gradient_steps, \
target_update_interval, exploration_fraction, exploration_initial_eps, exploration_final_eps, max_grad_norm, \
policy_kwargs
        Settings, see :class:`drlnb.rl.settings.dqn.DqnSettings`.
    """

    ALGO: ClassVar[str] = "dqn"
    ORDER: ClassVar[tuple[str, ...]] = (
        "learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma", "train_freq", "gradient_steps",
        "replay_buffer_class", "replay_buffer_kwargs", "optimize_memory_usage", "n_steps", "target_update_interval",
        "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm", *_LAST,
    )  # fmt: skip

    @property
    def exploration_rate(self) -> float:
        """Probability of a random action at the step that the model has come to."""
        used = np.array(self.num_timesteps)
        return float(DqnSettings.from_mapping(self.settings).epsilon(used, self.spec.total_timesteps))


class GPF(Algorithm):
    """The generalised policy family: a critic that is the actor.

    For discrete actions.

    Parameters
    ----------
    policy, env, verbose, seed, n_envs, n_collectors, n_learners, deterministic, env_kwargs, env_wrappers, fleet, \
normalize
        As of :class:`PPO`.
    learning_rate, n_steps, batch_size, n_epochs, gamma, gae_lambda, eps, tau1, tau2, members, expectation, q_coef, \
vf_coef, pg_coef, reward_scale, max_grad_norm, policy_kwargs
        Settings, see :class:`drlnb.rl.settings.gpf.GpfSettings`.
    """

    ALGO: ClassVar[str] = "gpf"
    ORDER: ClassVar[tuple[str, ...]] = (
        "learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "policy_kwargs", "verbose", "seed",
    )  # fmt: skip
