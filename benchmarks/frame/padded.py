"""Train in modelled time: an environment whose steps sleep, and a network whose gradients sleep.

With them tasks, collectors and a virtual slot take the time of a large workload, and the cores stay idle: what is
measured is leasing, not how processes fight for two cores.  (Sleeping gradients overlap freely where nobody leases,
which a device's kernels do not.)  Collectors import this module, so it imports nothing heavy.
"""

import time
from typing import TYPE_CHECKING

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Discrete

if TYPE_CHECKING:
    import torch

__all__ = ["ENV", "GRADIENT_S", "LONG_GRADIENT_S", "STEP_S", "PaddedCartPole", "padded_policy"]

#: Seconds of one environment step, and of one gradient.
STEP_S, GRADIENT_S = 0.03, 0.12
#: Of one gradient of a large model: the start of a process, some 1.6 s with this module's imports, fits into it.
LONG_GRADIENT_S = 3.0
#: The environment's id, with this module in front.
ENV = "benchmarks.frame.padded:DrlnbPadded-v0"


class PaddedCartPole(CartPoleEnv):  # type: ignore[misc]  # gymnasium is not typed
    """CartPole, each step of which takes :data:`STEP_S`."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        """Sleep, then step."""
        time.sleep(STEP_S)
        stepped: tuple[np.ndarray, float, bool, bool, dict[str, object]] = super().step(action)
        return stepped


gymnasium.register("DrlnbPadded-v0", entry_point=PaddedCartPole, max_episode_steps=500)


def padded_policy(observation_space: Box, action_space: Discrete, gradient_s: float = GRADIENT_S) -> "torch.nn.Module":
    """Return a small network for GPF, each gradient of which takes `gradient_s` seconds."""
    import torch
    from torch import nn

    class Padded(nn.Module):  # type: ignore[misc]  # torch is not looked into
        def __init__(self) -> None:
            super().__init__()
            (width,) = observation_space.shape
            self.trunk = nn.Sequential(nn.Linear(width, 32), nn.Tanh())
            self.advantages, self.value = nn.Linear(32, int(action_space.n)), nn.Linear(32, 1)

        def actor(self, obs: torch.Tensor) -> torch.Tensor:
            return self.advantages(self.trunk(obs))

        def critic(self, obs: torch.Tensor) -> torch.Tensor:
            return self.value(self.trunk(obs))[:, 0]

        def both(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if torch.is_grad_enabled():
                time.sleep(gradient_s)
            features = self.trunk(obs)
            return self.advantages(features), self.value(features)[:, 0]

    return Padded()
