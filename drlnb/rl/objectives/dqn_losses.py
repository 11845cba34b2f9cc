"""Compute DQN's loss: Huber's, between an action's value and its one-step target, as pure functions."""

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

__all__ = ["dqn_loss", "huber_gradient", "td_target"]


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


def dqn_loss(q: Tensor, action: Tensor, target: Tensor, *, n_total: int | None = None) -> Tensor:
    """Return the sum of Huber's losses (threshold 1) over `n_total` samples: their mean if these are all.

    Parameters
    ----------
    q
        Values of the trained network; shape ``(B, A)``.
    action
        int64, shape ``(B,)``.
    target
        Shape ``(B,)``; no gradient flows through it.
    n_total
        Samples of the whole minibatch of which these are a part; None: these are all.
    """
    chosen = q.gather(1, action[:, None])[:, 0]
    return smooth_l1_loss(chosen, target.detach(), reduction="sum") / (n_total or len(q))


def huber_gradient(q: Tensor, action: Tensor, target: Tensor, *, n_total: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the gradient of :func:`dqn_loss` with respect to `q`, shape ``(B, A)``, and the loss.

    The gradient of one sample is its error, cut to [-1, 1]: with ``c`` the cut error the loss is ``c (e - c / 2)``.
    """
    column = action[:, None]
    error = q.gather(1, column)[:, 0] - target
    cut = error.clamp(-1.0, 1.0)
    loss = torch.dot(cut, error - 0.5 * cut) / (n_total or len(q))
    return torch.zeros_like(q).scatter_(1, column, (cut / (n_total or len(q)))[:, None]), loss
