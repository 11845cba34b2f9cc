"""Compute PPO's clipped surrogate, value error and entropy, as pure functions of tensors."""

from math import log, pi

import torch
from torch import Tensor

__all__ = ["STATISTICS", "categorical", "gaussian", "normalised_advantages", "ppo_loss"]

#: Order of the statistics that :func:`ppo_loss` returns.
STATISTICS = ("loss", "policy_gradient_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def categorical(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the actions, shape ``(B,)``, and the mean entropy, for logits ``(B, A)``."""
    log_p = torch.log_softmax(logits, 1)
    return log_p.gather(1, actions[:, None])[:, 0], -(log_p.exp() * log_p).sum(1).mean()


def gaussian(mean: Tensor, log_std: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities, shape ``(B,)``, and the entropy, for means ``(B, d)`` and log deviations ``(d,)``."""
    z = (actions - mean) * torch.exp(-log_std)
    width = actions.shape[1]
    spread = log_std.sum()
    log_p = -0.5 * (z * z).sum(1) - spread - 0.5 * log(2.0 * pi) * width
    return log_p, spread + 0.5 * (1.0 + log(2.0 * pi)) * width


def normalised_advantages(advantages: Tensor) -> Tensor:
    """Return ``(A - mean) / (std + 1e-8)`` with the sample standard deviation; one sample is left alone."""
    if len(advantages) < 2:
        return advantages
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def ppo_loss(
    log_p: Tensor,
    old_log_p: Tensor,
    advantages: Tensor,
    entropy: Tensor,
    value_loss: Tensor,
    *,
    clip_range: float,
    ent_coef: float,
    vf_coef: float,
) -> tuple[Tensor, Tensor]:
    """Return PPO's loss and its statistics.

    ``- mean min(A r, A clip(r, 1 - c, 1 + c)) - ent_coef H + vf_coef value_loss`` with ``r = exp(log_p - old_log_p)``.

    Parameters
    ----------
    log_p, old_log_p
        Log-probabilities now and when acting; shape ``(B,)``.
    advantages
        Normalised or not; shape ``(B,)``.
    entropy, value_loss
        Mean over the minibatch; scalars.
    clip_range, ent_coef, vf_coef
        Dimensionless.

    Returns
    -------
    tuple of Tensor
        The loss, and the values of `STATISTICS`, detached, shape ``(6,)``; the KL is ``mean((r - 1) - log r)``.

    References
    ----------
    Schulman et al. 2017, arXiv 1707.06347, equation 9; the KL estimate: Schulman, "Approximating KL divergence", 2020.
    """
    log_ratio = log_p - old_log_p
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
    loss = policy_loss + vf_coef * value_loss
    if ent_coef:
        loss = loss - ent_coef * entropy
    with torch.no_grad():
        kl = (ratio - 1.0 - log_ratio).mean()
        fraction = ((ratio - 1.0).abs() > clip_range).float().mean()
        table = torch.stack((loss, policy_loss, value_loss, entropy, kl, fraction))
    return loss, table
