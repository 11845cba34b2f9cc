"""What trains in modelled time?  An environment whose steps sleep, and a network whose gradients sleep.

With them tasks, collectors and a virtual slot take the time of a large workload, and the cores stay idle: what is
measured is leasing, not how processes fight for two cores.  (Sleeping gradients overlap freely where nobody leases,
which a device's kernels do not.)
"""

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

__all__ = ["ENV", "GRADIENT_S", "LONG_GRADIENT_S", "STEP_S", "PaddedCartPole", "long_policy", "padded_policy"]

#: Seconds of one environment step, and of one gradient.
STEP_S, GRADIENT_S = 0.03, 0.12
#: Of one gradient of a large model: the start of a process, some 1.6 s with this module's imports, fits into it.
LONG_GRADIENT_S = 3.0
#: The environment's id, with this module in front.
ENV = "drlnb.bench.padded:DrlnbPadded-v0"


class PaddedCartPole(CartPoleEnv):
    """CartPole, each step of which takes :data:`STEP_S`."""

    def step(self, action: Any) -> Any:
        """Sleep, then step."""
        time.sleep(STEP_S)
        return super().step(action)


gymnasium.register("DrlnbPadded-v0", entry_point=PaddedCartPole, max_episode_steps=500)


def padded_policy(observation_space: Any, action_space: Any) -> Any:
    """Return a small network for GPF, each gradient of which takes :data:`GRADIENT_S`.

    Parameters
    ----------
    observation_space, action_space
        A box of one axis, and ``Discrete``.
    """
    return _policy(observation_space, action_space, GRADIENT_S)


def long_policy(observation_space: Any, action_space: Any) -> Any:
    """Return such a network, each gradient of which takes :data:`LONG_GRADIENT_S`.

    Parameters
    ----------
    observation_space, action_space
        A box of one axis, and ``Discrete``.
    """
    return _policy(observation_space, action_space, LONG_GRADIENT_S)


def _policy(observation_space: Any, action_space: Any, gradient_s: float) -> Any:
    import torch
    from torch import nn

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            (width,) = observation_space.shape
            self.trunk = nn.Sequential(nn.Linear(width, 32), nn.Tanh())
            self.advantages, self.value = nn.Linear(32, int(action_space.n)), nn.Linear(32, 1)

        def actor(self, obs: Any) -> Any:
            return self.advantages(self.trunk(obs))

        def critic(self, obs: Any) -> Any:
            return self.value(self.trunk(obs))[:, 0]

        def both(self, obs: Any) -> Any:
            if torch.is_grad_enabled():
                time.sleep(gradient_s)
            features = self.trunk(obs)
            return self.advantages(features), self.value(features)[:, 0]

    return Padded()
