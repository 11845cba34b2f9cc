"""Compute GPF's loss: the squared error of an action value whose advantage network is the policy, too.

``Q(s, a) = A(s, a) - sum_b sg[pi(b|s)] A(s, b) + sg[V(s)]`` with sg = stop-gradient.  The policy is one of a
family built from the same A: ``pi = eps softmax(A / tau1) + (1 - eps) softmax(A / tau2)``.  For eps = 1 the gradient
of Q is tau times the gradient of log pi, so the regression of Q improves the policy without a loss of its own.

Instead of the sum over actions the mean of A over the samples of a sequence may stand, ``1/N sum_u A(s_u, a_u)``: one
number for all states of the sequence, so the identity does not hold.

Legend: B samples, A actions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from drlnb.rl.objectives.samples import Rows

__all__ = ["GPF_STATISTICS", "Coefficients", "Samples", "gpf_gradient", "gpf_loss"]

#: Order of the statistics that :func:`gpf_loss` returns.
GPF_STATISTICS = ("loss", "q_loss", "value_loss", "policy_gradient_loss", "entropy", "approx_kl", "q_gap")


class Coefficients(NamedTuple):
    """Weights of the loss's three terms, dimensionless."""

    q_coef: float = 0.5
    vf_coef: float = 0.5
    pg_coef: float = 0.0


@dataclass(frozen=True, slots=True)
class Samples(Rows):
    """Prepared samples on the device; first axis: samples, each environment's in time order."""

    obs: Tensor
    action: Tensor
    #: Log-probability when acting.
    log_prob: Tensor
    #: ``eps, tau1, tau2`` of the member that judges, shape ``(B, 3)``; tau1 alone where no member has a second softmax.
    strategy: Tensor
    q_target: Tensor
    v_target: Tensor
    #: V(s) when staged.
    value: Tensor
    #: Uniform deviates for fresh actions; shape ``(B, n_action_samples)``; None: the exact sum.
    fresh: Tensor | None = None
    #: Which sequence a sample belongs to, counted from 0, int64, shape ``(B,)``: the mean of A over the samples of a
    #: sequence is its expectation; None: that is under the policy of each state.
    sequence: Tensor | None = None


def log_strategy(advantages: Tensor, strategy: Tensor) -> Tensor:
    """Return log-probabilities of all actions under the members that the samples belong to.

    Parameters
    ----------
    advantages
        A(s, .); shape ``(B, A)``.
    strategy
        ``eps, tau1, tau2`` per sample, shape ``(B, 3)``, or tau1 alone for eps = 1, shape ``(B, 1)``; eps in
        ``[0, 1]``, temperatures > 0, in units of A.

    Returns
    -------
    Tensor
        ``log(eps softmax(A / tau1) + (1 - eps) softmax(A / tau2))``; shape ``(B, A)``.
    """
    if strategy.shape[1] == 1:
        return torch.log_softmax(advantages / strategy, 1)
    eps, tau1, tau2 = strategy[:, :1], strategy[:, 1:2], strategy[:, 2:]
    first = torch.log_softmax(advantages / tau1, 1)
    return torch.logaddexp(eps.log() + first, torch.log1p(-eps) + torch.log_softmax(advantages / tau2, 1))


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


def centred(numbers: Tensor, sequence: Tensor) -> Tensor:
    """Return numbers ``(B,)`` less their mean over each sequence, of the same shape.

    Parameters
    ----------
    numbers
        One per sample.
    sequence
        Which one a sample belongs to, from 0 to below B; int64, shape ``(B,)``.
    """
    zeros = torch.zeros_like(numbers)
    counts = zeros.index_add(0, sequence, torch.ones_like(numbers))
    return numbers - (zeros.index_add(0, sequence, numbers) / counts.clamp(min=1.0))[sequence]


def action_shares(log_pi: Tensor, fresh: Tensor | None) -> Tensor:
    """Return which share of `n` fresh actions of each state fell on which action: the sample mean's weights.

    Parameters
    ----------
    log_pi
        Log-probabilities; shape ``(B, A)``.
    fresh
        Uniform deviates in ``[0, 1)``, one per fresh action; shape ``(B, n)``.  None: the exact probabilities.

    Returns
    -------
    Tensor
        Shape ``(B, A)``, without gradient; rows sum to 1.
    """
    pi = log_pi.detach().exp()
    if fresh is None:
        return pi
    drawn = (fresh[:, :, None] >= pi.cumsum(1)[:, None, :-1]).sum(2)  # inverse distribution function
    return torch.zeros_like(pi).scatter_add_(1, drawn, torch.full_like(fresh, 1.0 / fresh.shape[1]))


def gpf_loss(
    advantages: Tensor, values: Tensor, rows: Samples, *, coefficients: Coefficients, n_total: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return GPF's loss and its statistics.

    ``q_coef mean (Qhat - Q)^2 + vf_coef mean (Vhat - V)^2 - pg_coef mean min(1, rho) sg(Qhat - V) log pi``, with
    ``rho = sg(pi / mu)`` of the taken action.

    Parameters
    ----------
    advantages, values
        Network outputs; shapes ``(B, A)`` and ``(B,)``.
    rows
        The samples; their observations are not read.
    coefficients
        Of the three terms.
    n_total
        Samples that the mean is over, when these are a part of them; None: B.

    Returns
    -------
    tuple of Tensor
        The loss, and the values of `GPF_STATISTICS`, detached, shape ``(7,)``: of a part, its share of both.
    """
    log_pi, _, q_error, log_p, pull = _terms(advantages, values, rows)
    n, c = n_total or len(rows), coefficients
    sums = q_error.square().sum(), (values - rows.v_target).square().sum(), -(pull * log_p).sum()
    loss = (c.q_coef * sums[0] + c.vf_coef * sums[1]) / n
    if c.pg_coef:
        loss = loss + c.pg_coef * sums[2] / n
    with torch.no_grad():
        return loss, _statistics(loss, sums, advantages, log_pi, log_p - rows.log_prob, n)


def gpf_gradient(
    advantages: Tensor, values: Tensor, rows: Samples, *, coefficients: Coefficients, n_total: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of :func:`gpf_loss`, written out, and its statistics.

    Parameters
    ----------
    advantages, values
        Network outputs; shapes ``(B, A)`` and ``(B,)``.
    rows
        The samples.
    coefficients, n_total
        As of :func:`gpf_loss`.

    Returns
    -------
    tuple of Tensor
        With respect to the advantages ``(B, A)``, to the values ``(B,)``; the statistics ``(7,)``.
    """
    c, n, index = coefficients, n_total or len(rows), rows.action[:, None]
    log_pi, weights, q_error, log_p, pull = _terms(advantages, values, rows)
    v_error = values - rows.v_target
    d_taken = q_error * (2.0 * c.q_coef / n)
    if rows.sequence is not None:
        d_taken = centred(d_taken, rows.sequence)
    d_advantages = torch.mul(weights, -d_taken[:, None]).scatter_add_(1, index, d_taken[:, None])
    if c.pg_coef:
        d_advantages -= (pull * (c.pg_coef / n))[:, None] * _log_p_gradient(advantages, index, rows.strategy, log_p)
    sums = q_error.square().sum(), v_error.square().sum(), -(pull * log_p).sum()
    loss = (c.q_coef * sums[0] + c.vf_coef * sums[1] + c.pg_coef * sums[2]) / n
    statistics = _statistics(loss, sums, advantages, log_pi, log_p - rows.log_prob, n)
    return d_advantages, v_error * (2.0 * c.vf_coef / n), statistics


def _terms(advantages: Tensor, values: Tensor, rows: Samples) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return log pi of all actions, the expectation's weights, the error of Q, log pi of the taken action, its weight.

    Those weights are 0 where the mean over a sequence is the expectation.

    That weight is the policy-gradient term's: ``min(1, rho) (Qhat - V)``, without gradient.
    """
    log_pi = log_strategy(advantages, rows.strategy)
    if rows.sequence is None:
        weights = action_shares(log_pi, rows.fresh)
        q = action_values(advantages, rows.action, weights, values)
    else:
        weights = torch.zeros_like(log_pi)
        q = centred(action_values(advantages, rows.action, weights, torch.zeros_like(values)), rows.sequence)
        q = q + values.detach()
    q_error = q - rows.q_target
    log_p = log_pi.gather(1, rows.action[:, None])[:, 0]
    pull = (log_p.detach() - rows.log_prob).exp().clamp(max=1.0) * (rows.q_target - values.detach())
    return log_pi, weights, q_error, log_p, pull


def _log_p_gradient(advantages: Tensor, index: Tensor, strategy: Tensor, log_p: Tensor) -> Tensor:
    """Return d log pi(a|s) / d A(s, .): each softmax's, weighed by its share of the action's probability."""
    gradient = torch.zeros_like(advantages)
    eps, taus = strategy[:, :1], strategy[:, 1:]
    if strategy.shape[1] == 1:
        eps, taus = torch.ones_like(strategy), strategy
    for tau, share in zip(taus.split(1, 1), (eps, 1.0 - eps), strict=False):
        log_soft = torch.log_softmax(advantages / tau, 1)
        scale = (share.log() + log_soft.gather(1, index) - log_p[:, None]).exp() / tau  # at most 1 / tau
        gradient -= scale * log_soft.exp()
        gradient.scatter_add_(1, index, scale)
    return gradient


def _statistics(
    loss: Tensor, sums: tuple[Tensor, Tensor, Tensor], advantages: Tensor, log_pi: Tensor, log_ratio: Tensor, n: int
) -> Tensor:
    best = advantages.topk(min(2, advantages.shape[1]), 1).values  # a space of one action has no gap
    entropy = -(log_pi.exp() * log_pi).sum()
    kl = (log_ratio.exp() - 1.0 - log_ratio).sum()
    rest = torch.stack((*sums, entropy, kl, (best[:, 0] - best[:, -1]).sum())) / n
    return torch.cat((loss.detach()[None], rest))
