"""Compute PPO's gradient on a batch: written out for an MLP, by autograd for every other network."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drlnb.rl.envs.masks import FORBIDDEN
from drlnb.rl.networks.actor_critic import MlpTowers, ModuleNetworks
from drlnb.rl.networks.distributions import evaluate
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.objectives.losses import STATISTICS, ppo_loss
from drlnb.rl.objectives.samples import Rows

__all__ = ["Batch", "PpoGradient", "Terms"]


@dataclass(frozen=True, slots=True)
class Batch(Rows):
    """Samples on the device; first axis: environments in order, each in time order."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    value: Tensor
    returns: Tensor
    #: Forbidden choices, bool, shape ``(B, width)``; None: there are none.
    forbidden: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Weights and limits of the loss, as they are in one round; dimensionless."""

    clip: float
    clip_vf: float | None
    ent_coef: float
    vf_coef: float


class PpoGradient:
    """Compute gradients into the networks' flat buffer.

    Parameters
    ----------
    networks
        Of the task.
    by_hand
        Gradients written out, where the network has them.
    """

    def __init__(self, networks: MlpTowers | ModuleNetworks, *, by_hand: bool) -> None:
        self._networks, self._head = networks, networks.layout.head
        self.by_hand = by_hand and networks.by_hand

    def __call__(self, rows: Batch, advantages: Tensor, terms: Terms, out: Tensor) -> None:
        """Leave the gradient of the mean loss in the flat buffer and the statistics in `out`.

        Parameters
        ----------
        rows
            The samples; their own advantages are not read.
        advantages
            As they enter the loss, normalised or not; shape ``(B,)``.
        terms
            Weights and limits.
        out
            Gets the values of :data:`drlnb.rl.objectives.losses.STATISTICS`; shape ``(6,)`` or longer.
        """
        if self.by_hand:
            assert isinstance(self._networks, MlpTowers)
            self._explicit(self._networks, rows, advantages, terms, out)
        else:
            self._autograd(rows, advantages, terms, out)

    def _explicit(self, networks: MlpTowers, rows: Batch, advantages: Tensor, terms: Terms, out: Tensor) -> None:
        tensors, grads, relu = networks.tensors, networks.grads, networks.layout.activation == "relu"
        discrete = self._head.kind == "discrete"
        pi = mlp_gradient.forward(tensors, "pi", "action", rows.obs, relu=relu)
        if rows.forbidden is not None:
            pi[-1].masked_fill_(rows.forbidden, FORBIDDEN)
        actions = rows.action[:, None] if discrete else rows.action
        if discrete:
            log_probs = torch.log_softmax(pi[-1], 1)
            log_p = log_probs.gather(1, actions)[:, 0]
            entropy = torch.sum(log_probs.exp() * log_probs, 1).neg_()
        else:
            log_p, entropy = mlp_gradient.gaussian_log_prob(pi[-1], tensors["log_std"], actions)
        d_log_p, measured = mlp_gradient.surrogate(log_p, rows.log_prob, advantages, terms.clip)
        if discrete:
            d_pi = mlp_gradient.categorical_gradient(log_probs, actions, d_log_p, entropy, terms.ent_coef)
        else:
            spread, d_spread = tensors["log_std"], grads["log_std"]
            d_pi = mlp_gradient.gaussian_gradient(pi[-1], spread, actions, d_log_p, terms.ent_coef, d_log_std=d_spread)
        mlp_gradient.backward(tensors, grads, "pi", "action", pi, d_pi, relu=relu)
        vf = mlp_gradient.forward(tensors, "vf", "value", rows.obs, relu=relu)
        error = vf[-1][:, 0] - rows.returns
        if terms.clip_vf is not None:
            change = vf[-1][:, 0] - rows.value
            error = rows.value + change.clamp(-terms.clip_vf, terms.clip_vf) - rows.returns
        d_value = error * (2.0 * terms.vf_coef / len(error))
        if terms.clip_vf is not None:
            d_value *= change.abs() <= terms.clip_vf
        mlp_gradient.backward(tensors, grads, "vf", "value", vf, d_value[:, None], relu=relu)
        means = torch.stack((measured[0], error * error, entropy, *measured[1:])).mean(1)
        out[0] = means[0] + terms.vf_coef * means[1] - terms.ent_coef * means[2]
        out[1 : len(STATISTICS)] = means

    def _autograd(self, rows: Batch, advantages: Tensor, terms: Terms, out: Tensor) -> None:
        outputs, values = self._networks.both(rows.obs)
        if rows.forbidden is not None:
            outputs = outputs.masked_fill(rows.forbidden, FORBIDDEN)
        log_p, entropy = evaluate(self._head, outputs, rows.action, self._networks.log_std())
        if terms.clip_vf is not None:
            values = rows.value + (values - rows.value).clamp(-terms.clip_vf, terms.clip_vf)
        loss, statistics = ppo_loss(
            log_p,
            rows.log_prob,
            advantages,
            entropy,
            torch.square(rows.returns - values).mean(),
            clip_range=terms.clip,
            ent_coef=terms.ent_coef,
            vf_coef=terms.vf_coef,
        )
        self._networks.kept.adam.zero_grad()
        loss.backward()
        out[: len(STATISTICS)] = statistics

    def of_parts(self, parts: Sequence[Batch], advantages: Sequence[Tensor], terms: Terms, out: Tensor) -> None:
        """Leave the gradient of all parts' mean loss in the flat buffer, computed one part after the other.

        Parts may have any sizes: each counts by its samples.  `out` gets the statistics over all parts.
        """
        adam, row = self._networks.kept.adam, torch.zeros_like(out)
        if len(parts) == 1:
            self(parts[0], advantages[0], terms, out)
            return
        n = sum(map(len, parts))
        total = torch.zeros_like(adam.grad)
        out[: len(STATISTICS)] = 0.0
        for part, advantage in zip(parts, advantages, strict=True):
            self(part, advantage, terms, row)
            total.add_(adam.grad, alpha=len(part) / n)
            out[: len(STATISTICS)].add_(row[: len(STATISTICS)], alpha=len(part) / n)
        adam.grad.copy_(total)
