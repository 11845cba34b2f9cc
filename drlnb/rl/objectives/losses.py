"""Compute PPO's clipped surrogate, value error and entropy, and DQN's error, as pure functions of tensors.

DQN's loss is Huber's, between an action's value and its one-step target.
"""

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

__all__ = ["STATISTICS", "dqn_loss", "huber_gradient", "normalised_advantages", "ppo_loss", "td_target"]

#: Order of the statistics that :func:`ppo_loss` returns.
STATISTICS = ("loss", "policy_gradient_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


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


def td_target(
    reward: Tensor, terminated: Tensor, next_q_target: Tensor, gamma: float, *, next_q_online: Tensor | None = None
) -> Tensor:
    """Return ``r + gamma Q_target(s', a*)``, and `r` alone after a true end.

    Parameters
    ----------
    reward
        Shape ``(B,)``.
    terminated
        1 after a true end, else 0 (a time limit is no end); float, shape ``(B,)``.
    next_q_target
        Values of the target network at the next observation; shape ``(B, A)``.
    gamma
        Discount per step.
    next_q_online
        Values of the trained network there, shape ``(B, A)``: then a* is its best action (double Q-learning), else
        the target network's own.

    Returns
    -------
    Tensor
        Shape ``(B,)``.

    References
    ----------
    Mnih et al. 2015, Nature 518, 529; double Q-learning: van Hasselt et al. 2016, arXiv 1509.06461.

    Examples
    --------
    >>> import torch
    >>> reward, end = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])
    >>> target, online = torch.tensor([[2.0, 4.0], [2.0, 4.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    >>> td_target(reward, end, target, 0.5).tolist()
    [3.0, 1.0]
    >>> td_target(reward, end, target, 0.5, next_q_online=online).tolist()
    [2.0, 1.0]
    """
    if next_q_online is None:
        best = next_q_target.max(1).values
    else:
        best = next_q_target.gather(1, next_q_online.argmax(1, keepdim=True))[:, 0]
    return reward + (1.0 - terminated) * gamma * best


def dqn_loss(q: Tensor, action: Tensor, target: Tensor) -> Tensor:
    """Return the mean of Huber's losses (threshold 1).

    Parameters
    ----------
    q
        Values of the trained network; shape ``(B, A)``.
    action
        int64, shape ``(B,)``.
    target
        Shape ``(B,)``; no gradient flows through it.
    """
    chosen = q.gather(1, action[:, None])[:, 0]
    return smooth_l1_loss(chosen, target.detach(), reduction="sum") / len(q)


def huber_gradient(q: Tensor, action: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of :func:`dqn_loss` with respect to `q`, shape ``(B, A)``, and the loss.

    The gradient of one sample is its error, cut to [-1, 1]: with ``c`` the cut error the loss is ``c (e - c / 2)``.
    """
    column = action[:, None]
    error = q.gather(1, column)[:, 0] - target
    cut = error.clamp(-1.0, 1.0)
    loss = torch.dot(cut, error - 0.5 * cut) / len(q)
    return torch.zeros_like(q).scatter_(1, column, (cut / len(q))[:, None]), loss
