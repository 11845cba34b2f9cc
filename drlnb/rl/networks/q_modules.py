"""Pair the trained and the target network of DQN where they are torch modules.

Two of them: the trained one's parameters are views of the optimiser's flat tensor, the target's of the flat target.
"""

import torch
from torch import Tensor

from drlnb.records.spec import TaskSpec
from drlnb.rl.networks.flat import FlatAdam
from drlnb.rl.networks.layout import Layout
from drlnb.rl.networks.mlp import views
from drlnb.rl.networks.modules import attach, build, check, module_layout

__all__ = ["QModules"]


class QModules:
    """The trained network and the target network of one task.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.

    Raises
    ------
    ConfigError
        If the module cannot be built or breaks its contract.
    """

    def __init__(self, spec: TaskSpec, device: torch.device) -> None:
        self._online, self._target = build(spec, device), build(spec, device)
        check(self._online, spec)
        self.layout: Layout = module_layout(spec, self._online)

    def attach(self, adam: FlatAdam, target: Tensor) -> None:
        """Make both networks' parameters views of flat tensors, which get the starting weights."""
        attach(self._online, views(adam.flat, self.layout), views(adam.grad, self.layout))
        attach(self._target.requires_grad_(False), views(target, self.layout))

    def online(self, obs: Tensor) -> Tensor:
        """Return the trained network's values ``(B, A)`` of raw observations; gradients are recorded if wanted."""
        return self._online.actor(obs)

    def target(self, obs: Tensor) -> Tensor:
        """Return the target network's values ``(B, A)`` of raw observations."""
        return self._target.actor(obs)
