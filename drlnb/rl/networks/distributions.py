"""Compute log-probabilities, entropies and samples: the heads of :mod:`drlnb.rl.heads`, in torch.

Functions of the network's outputs, no objects: building a ``torch.distributions`` object costs more than the forward
pass of a small network.  Legend: B samples, W outputs, D dimensions or decisions.
"""

from math import log, pi

import torch
from torch import Tensor
from torch.nn.functional import softplus

from drlnb.rl.heads import SDE_EPSILON, Head
from drlnb.rl.objectives.losses import categorical, gaussian

__all__ = ["evaluate", "sample"]


def evaluate(head: Head, outputs: Tensor, actions: Tensor, log_std: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the actions, shape ``(B,)``, and the mean entropy.

    Parameters
    ----------
    head
        Of the action space.
    outputs
        Logits or means; shape ``(B, W)``.
    actions
        As a fragment holds them: ``(B,)`` int64, or ``(B, D)``; boxes unclipped.
    log_std
        Of a box, shape ``(W,)``; of state-dependent exploration, ``(L, d)``.
    """
    if head.kind == "discrete":
        return categorical(outputs, actions)
    if head.kind == "box":
        assert log_std is not None
        return gaussian(outputs, log_std, actions)
    if head.kind == "sde":
        assert log_std is not None
        d = head.sizes[0]
        variance = outputs[:, d:].detach().square() @ log_std.exp().square() + SDE_EPSILON
        spread = variance.log() + log(2.0 * pi)
        log_p = -0.5 * ((actions - outputs[:, :d]).square() / variance + spread).sum(1)
        return log_p, 0.5 * (spread + 1.0).sum(1).mean()
    if head.kind == "multibinary":
        log_p = -softplus((1.0 - 2.0 * actions) * outputs).sum(1)
        probs = torch.sigmoid(outputs)
        return log_p, (softplus(outputs) - probs * outputs).sum(1).mean()
    terms = [categorical(outputs[:, part], actions[:, d]) for d, part in enumerate(head.parts())]
    return torch.stack([log_p for log_p, _ in terms]).sum(0), torch.stack([entropy for _, entropy in terms]).sum()


def sample(head: Head, outputs: Tensor, noise: Tensor, std: Tensor | None = None) -> Tensor:
    """Return actions for outputs ``(B, W)`` and noise of the head's kind; noise 0: the most likely ones."""
    if head.kind == "sde":
        assert std is not None
        d, n = head.sizes
        matrices = noise.reshape(len(noise), n, d) * std
        return outputs[:, :d] + torch.bmm(outputs[:, None, d:], matrices)[:, 0]
    if head.kind == "box":
        return outputs + std * noise
    perturbed = outputs + noise
    if head.kind == "discrete":
        return perturbed.argmax(-1)
    if head.kind == "multibinary":
        return (perturbed > 0.0).long()
    return torch.stack([perturbed[..., part].argmax(-1) for part in head.parts()], -1)
