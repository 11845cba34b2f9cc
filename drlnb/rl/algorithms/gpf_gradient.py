"""Compute GPF's gradient on samples: written out for an MLP, by autograd for every other network."""

import torch
from torch import Tensor

from drlnb.rl.networks.actor_critic import ActorCritic, MlpTowers
from drlnb.rl.networks.mlp import views
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.objectives.gpf_losses import Coefficients, Samples, gpf_gradient, gpf_loss

__all__ = ["GpfGradient"]


class GpfGradient:
    """Compute gradients into the networks' flat buffer.

    Parameters
    ----------
    networks
        Of the task.
    coefficients
        Of the loss.
    by_hand
        Gradients written out, where the network has them.
    """

    def __init__(self, networks: ActorCritic, coefficients: Coefficients, *, by_hand: bool) -> None:
        self._networks, self._coefficients = networks, coefficients
        #: The networks whose gradients are written out; None: autograd computes them.
        self._towers = networks if by_hand and isinstance(networks, MlpTowers) and networks.by_hand else None
        self._part = torch.zeros_like(networks.kept.adam.flat)
        self._part_grads = views(self._part, networks.layout)

    def __call__(self, rows: Samples, n_total: int) -> Tensor:
        """Add a part's gradient to the flat buffer; return its share of the statistics."""
        if self._towers is not None:
            return self._explicit(self._towers, rows, n_total)
        advantages, values = self._networks.both(rows.obs)
        taken = rows.action, rows.log_prob, rows.strategy, rows.q_target, rows.v_target
        loss, statistics = gpf_loss(
            advantages, values, *taken, coefficients=self._coefficients, fresh=rows.fresh, n_total=n_total
        )
        loss.backward()
        return statistics

    def _explicit(self, networks: MlpTowers, rows: Samples, n_total: int) -> Tensor:
        tensors, relu = networks.tensors, networks.layout.activation == "relu"
        pi = mlp_gradient.forward(tensors, "pi", "action", rows.obs, relu=relu)
        vf = mlp_gradient.forward(tensors, "vf", "value", rows.obs, relu=relu)
        d_advantages, d_values, statistics = gpf_gradient(
            pi[-1], vf[-1][:, 0], rows, coefficients=self._coefficients, n_total=n_total
        )
        towers = ("pi", "action", pi, d_advantages), ("vf", "value", vf, d_values[:, None])
        for prefix, head, layers, d_out in towers:
            mlp_gradient.backward(tensors, self._part_grads, prefix, head, layers, d_out, relu=relu)
        networks.kept.adam.grad += self._part
        return statistics
