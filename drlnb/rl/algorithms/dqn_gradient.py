"""Compute DQN's gradient on a minibatch: written out for an MLP, by autograd for every other network."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from drlnb.rl.networks.flat import FlatAdam
from drlnb.rl.networks.layout import HEAD, TOWER, Layout
from drlnb.rl.networks.mlp import tower, views
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.objectives.dqn_losses import dqn_loss, huber_gradient, td_target
from drlnb.rl.objectives.samples import Rows as _Rows
from drlnb.rl.settings.dqn import DqnSettings

__all__ = ["DqnGradient", "QNetworks", "QTowers", "Rows"]


@dataclass(frozen=True, slots=True)
class Rows(_Rows):
    """Transitions on the device; first axis: samples."""

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    #: float32: 1 after a true end.
    terminated: Tensor


class QNetworks(Protocol):
    """The trained network and the target network of one task."""

    #: Of the flat parameters.
    layout: Layout

    def online(self, obs: Tensor) -> Tensor:
        """Return the trained network's values ``(B, A)``; gradients are recorded if wanted."""

    def target(self, obs: Tensor) -> Tensor:
        """Return the target network's values ``(B, A)``."""


class QTowers:
    """Both networks as multi-layer perceptrons whose tensors are views of flat ones.

    Parameters
    ----------
    layout
        Of the flat parameters.
    adam
        Holds the trained parameters and their gradient.
    target
        The target network's parameters, flat.
    """

    def __init__(self, layout: Layout, adam: FlatAdam, target: Tensor) -> None:
        self.layout, self.relu = layout, layout.activation == "relu"
        self.tensors, self._leaves = views(adam.flat, layout), adam.leaves(views, layout)
        self._target = views(target, layout)

    def online(self, obs: Tensor) -> Tensor:
        """Return the trained network's values ``(B, A)``; gradients are recorded if wanted."""
        return tower(self._leaves, TOWER, HEAD, obs, relu=self.relu)

    def target(self, obs: Tensor) -> Tensor:
        """Return the target network's values ``(B, A)``."""
        return tower(self._target, TOWER, HEAD, obs, relu=self.relu)


class DqnGradient:
    """Compute gradients into the optimiser's flat buffer.

    Parameters
    ----------
    networks
        Of the task.
    adam
        Holds the buffer.
    by_hand
        Gradients written out, where the network has them.
    """

    def __init__(self, networks: QNetworks, adam: FlatAdam, *, by_hand: bool) -> None:
        self._networks, self._adam, self._by_hand = networks, adam, by_hand
        self._part = torch.zeros_like(adam.flat)
        self._part_grads = views(self._part, networks.layout)

    def __call__(self, rows: Rows, settings: DqnSettings, n_total: int, *, first: bool) -> Tensor:
        """Put (or add) a part's gradient into the flat buffer; return its share of the loss."""
        if self._by_hand and isinstance(self._networks, QTowers):
            return self._explicit(self._networks, rows, self._targets(rows, settings), n_total, first=first)
        if first:
            self._adam.zero_grad()
        loss = dqn_loss(self._networks.online(rows.obs), rows.action, self._targets(rows, settings), n_total=n_total)
        loss.backward()
        return loss.detach()

    def _targets(self, rows: Rows, settings: DqnSettings) -> Tensor:
        with torch.no_grad():
            following = self._networks.target(rows.next_obs)
            online = self._networks.online(rows.next_obs) if settings.double_q else None
            return td_target(rows.reward, rows.terminated, following, settings.gamma, next_q_online=online)

    def _explicit(self, networks: QTowers, rows: Rows, targets: Tensor, n_total: int, *, first: bool) -> Tensor:
        layers = mlp_gradient.forward(networks.tensors, TOWER, HEAD, rows.obs, relu=networks.relu)
        d_q, loss = huber_gradient(layers[-1], rows.action, targets, n_total=n_total)
        mlp_gradient.backward(networks.tensors, self._part_grads, TOWER, HEAD, layers, d_q, relu=networks.relu)
        if first:
            self._adam.grad.copy_(self._part)
        else:
            self._adam.grad.add_(self._part)
        return loss
