"""List the trainings that are compared with Stable-Baselines3, under settings that name everything.

Every setting is written out, so that no side falls back on a default of its own.
"""

from dataclasses import dataclass

from drlnb.bench.frame.stage import Arguments, local_spec
from drlnb.fleet.tasks.task import Task
from drlnb.records.spec import TaskSpec

__all__ = ["WORKS", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One training, as both sides understand it."""

    env: str
    n_envs: int
    #: Under Stable-Baselines3's names; schedules as ``lin_x``.
    settings: Arguments
    algo: str = "ppo"
    total_timesteps: int = 100_000
    seed: int = 0
    #: Deterministic episodes at the end.
    n_eval_episodes: int = 40

    def own_spec(self) -> TaskSpec:
        """Return it as a task of ours, its spaces filled in."""
        counts: Arguments = {"total_timesteps": self.total_timesteps, "n_envs": self.n_envs, "n_collectors": 1}
        return local_spec(Task(self.env, self.algo, seed=self.seed, **counts, **self.settings))


#: What Stable-Baselines3's PPO does where an entry names nothing.
_PPO: Arguments = {
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "n_epochs": 10,
    "batch_size": 64,
    "n_steps": 2048,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "clip_range": 0.2,
    "learning_rate": 3e-4,
    "normalize_advantage": True,
}
_SCHEDULED: Arguments = {"learning_rate": "lin_0.001", "clip_range": "lin_0.2"}

#: Row -> the training; settings are rl-baselines3-zoo's (hyperparams/ppo.yml), but for what a comment names.
WORKS: dict[str, Work] = {
    "cartpole": Work(
        env="CartPole-v1",
        n_envs=8,
        settings={**_PPO, **_SCHEDULED, "n_steps": 32, "batch_size": 256, "n_epochs": 20}
        | {"gamma": 0.98, "gae_lambda": 0.8},
    ),
    # A tenth of the zoo's million steps: returns are those of an unfinished training on both sides.
    "acrobot": Work(
        env="Acrobot-v1",
        n_envs=16,
        settings={**_PPO, "n_steps": 256, "n_epochs": 4, "gae_lambda": 0.94, "normalize": True},
    ),
    # Without state-dependent exploration, and 100,000 steps.
    "pendulum": Work(
        env="Pendulum-v1", n_envs=4, settings={**_PPO, "n_steps": 1024, "gamma": 0.9, "learning_rate": 1e-3}
    ),
}
