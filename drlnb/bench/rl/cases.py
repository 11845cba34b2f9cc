"""List what a trained policy must earn under the shipped settings, by environment and algorithm."""

from typing import NamedTuple

__all__ = ["CASES", "Case"]


class Case(NamedTuple):
    """One environment and algorithm under the shipped settings, and what every seed must earn."""

    algo: str
    env: str
    #: Mean raw return of 40 deterministic episodes, of the worst seed.
    at_least: float
    #: ``ci`` takes seconds a seed, ``nightly`` minutes.
    tier: str


#: Row -> case.
CASES = {
    "ppo-cartpole": Case("ppo", "CartPole-v1", 475, "ci"),
    "gpf-cartpole": Case("gpf", "CartPole-v1", 475, "ci"),
    "dqn-cartpole": Case("dqn", "CartPole-v1", 475, "ci"),
    "ppo-acrobot": Case("ppo", "Acrobot-v1", -100, "nightly"),
    "gpf-acrobot": Case("gpf", "Acrobot-v1", -120, "nightly"),
    "ppo-mountaincar": Case("ppo", "MountainCar-v0", -130, "nightly"),
    "dqn-mountaincar": Case("dqn", "MountainCar-v0", -130, "nightly"),
    "ppo-pendulum": Case("ppo", "Pendulum-v1", -250, "nightly"),
    "ppo-lunarlander": Case("ppo", "LunarLander-v3", 200, "nightly"),
    "ppo-halfcheetah": Case("ppo", "HalfCheetah-v5", 1300, "nightly"),
}
