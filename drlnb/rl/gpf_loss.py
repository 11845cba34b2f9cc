"""What does GPF minimise?  The squared error of an action value whose advantage network is the policy, too.

``Q(s, a) = A(s, a) - sum_b sg[pi(b|s)] A(s, b) + sg[V(s)]`` with sg = stop-gradient.  The policy is one of a
family built from the same A: ``pi = eps softmax(A / tau1) + (1 - eps) softmax(A / tau2)``.  For eps = 1 the gradient
of Q is tau times the gradient of log pi, so the regression of Q improves the policy without a loss of its own.

Legend: B samples, A actions.
"""

import torch
from torch import Tensor

__all__ = ["GPF_STATISTICS", "action_values", "gpf_loss", "log_strategy"]

#: Order of the statistics that :func:`gpf_loss` returns.
GPF_STATISTICS = ("loss", "q_loss", "value_loss", "policy_gradient_loss", "entropy", "approx_kl", "q_gap")


def log_strategy(advantages: Tensor, strategy: Tensor) -> Tensor:
    """Return log-probabilities of all actions under the members that the samples belong to.

    Parameters
    ----------
    advantages
        A(s, .); shape ``(B, A)``.
    strategy
        ``eps, tau1, tau2`` per sample; shape ``(B, 3)``; eps in ``[0, 1]``, temperatures > 0, in units of A.

    Returns
    -------
    Tensor
        ``log(eps softmax(A / tau1) + (1 - eps) softmax(A / tau2))``; shape ``(B, A)``.
    """
    eps, tau1, tau2 = strategy[:, :1], strategy[:, 1:2], strategy[:, 2:]
    sharp = torch.log_softmax(advantages / tau1, 1)
    if bool((eps == 1.0).all()):
        return sharp
    return torch.logaddexp(eps.log() + sharp, torch.log1p(-eps) + torch.log_softmax(advantages / tau2, 1))


def action_values(advantages: Tensor, actions: Tensor, weights: Tensor, values: Tensor) -> Tensor:
    """Return ``Q(s, a) = A(s, a) - sum_b sg[w_b] A(s, b) + sg[V(s)]``.

    Parameters
    ----------
    advantages
        A(s, .); shape ``(B, A)``.
    actions
        Taken actions; shape ``(B,)``, int64.
    weights
        What the expectation weighs with: the policy, or shares of actions drawn from it afresh; shape ``(B, A)``.
        Shares of the *taken* action alone would leave ``Q = V`` and no gradient.
    values
        V(s); shape ``(B,)``.

    Returns
    -------
    Tensor
        Shape ``(B,)``; gradients reach A alone.
    """
    taken = advantages.gather(1, actions[:, None])[:, 0]
    return taken - (weights.detach() * advantages).sum(1) + values.detach()


def gpf_loss(
    advantages: Tensor,
    values: Tensor,
    actions: Tensor,
    old_log_p: Tensor,
    strategy: Tensor,
    q_target: Tensor,
    v_target: Tensor,
    *,
    q_coef: float,
    vf_coef: float,
    pg_coef: float,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return GPF's loss and its statistics.

    ``q_coef mean (Qhat - Q)^2 + vf_coef mean (Vhat - V)^2 - pg_coef mean min(1, rho) sg(Qhat - V) log pi``, with
    ``rho = sg(pi / mu)`` of the taken action.

    Parameters
    ----------
    advantages, values
        Network outputs; shapes ``(B, A)`` and ``(B,)``.
    actions, old_log_p
        Taken actions, int64, and their log-probability when acting; shape ``(B,)``.
    strategy
        ``eps, tau1, tau2`` of the member whose policy each sample is judged by; shape ``(B, 3)``.
    q_target, v_target
        Qhat and Vhat; shape ``(B,)``.
    q_coef, vf_coef, pg_coef
        Dimensionless.
    weights
        Of the expectation, see :func:`action_values`; None: the policy itself, the exact sum.

    Returns
    -------
    tuple of Tensor
        The loss, and the values of `GPF_STATISTICS`, detached, shape ``(7,)``.

    References
    ----------
    The action value and its loss: Xiao, Shi, Fan and Deng 2021 (CASA), arXiv 2105.03923, as far as its abstract and
    the relation in this module's docstring go; weights, targets and the optional third term are ours.
    """
    log_pi = log_strategy(advantages, strategy)
    pi = log_pi.detach().exp()
    q = action_values(advantages, actions, pi if weights is None else weights, values)
    q_loss = torch.square(q_target - q).mean()
    value_loss = torch.square(v_target - values).mean()
    loss = q_coef * q_loss + vf_coef * value_loss
    log_p = log_pi.gather(1, actions[:, None])[:, 0]
    log_ratio = (log_p - old_log_p).detach()
    policy_loss = -(log_ratio.exp().clamp(max=1.0) * (q_target - values).detach() * log_p).mean()
    if pg_coef:
        loss = loss + pg_coef * policy_loss
    with torch.no_grad():
        best = advantages.topk(min(2, advantages.shape[1]), 1).values  # a space of one action has no gap
        entropy = -(pi * log_pi).sum(1).mean()
        kl = (log_ratio.exp() - 1.0 - log_ratio).mean()
        gap = (best[:, 0] - best[:, -1]).mean()
        return loss, torch.stack((loss, q_loss, value_loss, policy_loss, entropy, kl, gap))
