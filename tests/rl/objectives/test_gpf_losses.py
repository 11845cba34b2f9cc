"""GPF's action value, family and loss: the identity, its traps, and numpy beside torch."""

import numpy as np
import pytest
import torch
from torch import Tensor

from drlnb.rl.algorithms import gpf_actor
from drlnb.rl.objectives.gpf_losses import (
    GPF_STATISTICS,
    Coefficients,
    Samples,
    action_values,
    gpf_gradient,
    gpf_loss,
    log_strategy,
)


def rows(*strategy: float, n: int) -> Tensor:
    return torch.tensor([strategy], dtype=torch.float64).expand(n, 3)


def drawn(seed: int, *shape: int, grad: bool = False) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.requires_grad_(grad)


ACTIONS = torch.tensor([0, 1, 2, 3, 1])


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_gradient_of_q_is_tau_times_gradient_of_log_pi(tau):
    """One softmax: for each sample dQ(s,a)/dA(s,.) = tau d log pi(a|s)/dA(s,.), to 1e-15."""
    a = drawn(0, 5, 4, grad=True)
    log_pi = torch.log_softmax(a / tau, 1)
    q = action_values(a, ACTIONS, log_pi.exp(), drawn(1, 5))
    of_q = torch.autograd.grad(q.sum(), a)[0]
    log_p = torch.log_softmax(a / tau, 1).gather(1, ACTIONS[:, None])
    of_log_pi = torch.autograd.grad(log_p.sum(), a)[0]
    assert of_q.abs().max() > 0.1
    assert (of_q - tau * of_log_pi).abs().max() < 1e-15


def test_without_stop_gradient_on_pi_the_identity_fails():
    """Letting the gradient through the expectation's policy gives another gradient, off by more than 0.1."""
    a = drawn(0, 5, 4, grad=True)
    pi = torch.softmax(a, 1)
    through = a.gather(1, ACTIONS[:, None])[:, 0] - (pi * a).sum(1)
    of_q = torch.autograd.grad(through.sum(), a, retain_graph=True)[0]
    log_p = torch.log_softmax(a, 1).gather(1, ACTIONS[:, None])
    of_log_pi = torch.autograd.grad(log_p.sum(), a)[0]
    assert (of_q - of_log_pi).abs().max() > 0.1


def test_the_identity_reaches_the_parameters():
    """Through a linear network, too: the weight's gradient of sum Q is tau times that of sum log pi."""
    weight, obs, tau = drawn(2, 3, 4, grad=True), drawn(3, 5, 3), 0.3
    a = obs @ weight
    q = action_values(a, ACTIONS, torch.softmax(a / tau, 1), drawn(1, 5))
    log_p = torch.log_softmax(a / tau, 1).gather(1, ACTIONS[:, None])
    of_q, of_log_pi = (torch.autograd.grad(x.sum(), weight, retain_graph=True)[0] for x in (q, log_p))
    torch.testing.assert_close(of_q, tau * of_log_pi, atol=1e-14, rtol=0)


@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_fitting_q_is_the_policy_gradient_with_an_entropy_bonus(tau):
    """In expectation over the policy: gradient of (Qhat - Q)^2 / 2 = - tau (policy gradient + tau entropy gradient)."""
    a = drawn(0, 3, 4, grad=True)
    v, target = drawn(1, 3), drawn(6, 3, 4)
    pi = torch.softmax(a / tau, 1)
    fixed, error = pi.detach(), 0.0
    for action in range(4):
        q = action_values(a, torch.full((3,), action), fixed, v)
        error = error + (fixed[:, action] * (target[:, action] - q).square() / 2).sum()
    of_error = torch.autograd.grad(error, a)[0]
    gain = (pi * (target - v[:, None])).sum() - tau * (pi * pi.log()).sum()
    of_gain = torch.autograd.grad(gain, a)[0]
    torch.testing.assert_close(of_error, -tau * of_gain, atol=1e-14, rtol=0)


def test_the_taken_action_alone_as_sample_mean_teaches_nothing():
    """T1: weights with the taken action's 1 leave Q = V and gradient 0; the exact sum leaves neither."""
    a, v = drawn(0, 5, 4, grad=True), drawn(1, 5)
    alone = torch.nn.functional.one_hot(ACTIONS, 4).double()
    q = action_values(a, ACTIONS, alone, v)
    assert torch.equal(q.detach(), v)
    assert torch.autograd.grad(q.sum(), a)[0].abs().max() == 0.0
    exact = action_values(a, ACTIONS, torch.softmax(a, 1), v)
    assert torch.autograd.grad(exact.sum(), a)[0].abs().max() > 0.1


def test_action_value_by_hand():
    """A = (1, 3), pi = (1/4, 3/4), V = 10: the mean of A is 2.5, so Q = 8.5 and 10.5, and E_pi Q = V."""
    a = torch.tensor([[1.0, 3.0], [1.0, 3.0]])
    q = action_values(a, torch.tensor([0, 1]), torch.tensor([[0.25, 0.75]]), torch.tensor([10.0, 10.0]))
    assert q.tolist() == [8.5, 10.5]


def test_the_mean_over_sequences_by_hand():
    """Taken A = (1, 3) and (5, 5, 8): means 2 and 6, so Q - V = -1, 1, -1, -1, 2, whatever A of the other action is.

    Targets V + (0, 0, 0, 3, 0) leave the errors -1, 1 and -1, -4, 2.  Each A pushes its sequence's mean, too: the
    gradient of the mean square / 2 is the errors less their means 0 and -1, over 5 samples.
    """
    taken, actions = torch.tensor([1.0, 3.0, 5.0, 5.0, 8.0]), torch.tensor([0, 1, 1, 0, 1])
    a = torch.full((5, 2), 7.0).scatter_(1, actions[:, None], taken[:, None]).requires_grad_()
    v = torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0])
    target = v + torch.tensor([0.0, 0.0, 0.0, 3.0, 0.0])
    sequence = torch.tensor([0, 0, 1, 1, 1])
    judged = Samples(a, actions, torch.zeros(5), torch.ones(5, 1), target, v, v, sequence=sequence)
    weights = Coefficients(q_coef=0.5, vf_coef=1.0)
    loss, statistics = gpf_loss(a, v, judged, coefficients=weights)
    assert statistics[GPF_STATISTICS.index("q_loss")].item() == pytest.approx((1 + 1 + 1 + 16 + 4) / 5)
    assert loss.item() == pytest.approx(0.5 * 23 / 5)
    loss.backward()
    expected = torch.zeros(5, 2).scatter_(1, actions[:, None], torch.tensor([-1.0, 1.0, 0.0, -3.0, 3.0])[:, None] / 5)
    torch.testing.assert_close(a.grad, expected)
    by_hand, _, told = gpf_gradient(a.detach(), v, judged, coefficients=weights)
    torch.testing.assert_close(by_hand, expected)
    torch.testing.assert_close(told, statistics)


def test_a_member_by_hand():
    """A = log(1, 3): tau 1 gives 1/4 3/4, tau 1/2 gives 1/10 9/10, half of each 7/40 33/40."""
    a = torch.log(torch.tensor([[1.0, 3.0]], dtype=torch.float64)).expand(3, 2)
    strategy = torch.tensor([[1.0, 1.0, 0.5], [0.0, 1.0, 0.5], [0.5, 1.0, 0.5]], dtype=torch.float64)
    expected = [[0.25, 0.75], [0.1, 0.9], [0.175, 0.825]]
    np.testing.assert_allclose(log_strategy(a, strategy).exp(), expected, atol=1e-15)


@pytest.mark.parametrize("strategy", [(1.0, 0.02, 1.0), (0.3, 0.02, 2.0), (0.0, 1.0, 0.1)])
def test_numpy_member_equals_torch(strategy):
    """The acting side's log-probabilities are the learner's, to 1e-5 in float32, also where a softmax is saturated."""
    a = drawn(5, 64, 3).float()
    table = rows(*strategy, n=64).float()
    found = gpf_actor.log_strategy(a.numpy(), table.numpy())
    assert found.dtype == np.float32
    expected = torch.log(
        table[:, :1].double() * torch.softmax(a.double() / table[:, 1:2], 1)
        + (1 - table[:, :1].double()) * torch.softmax(a.double() / table[:, 2:], 1)
    )
    likely = expected > -30
    np.testing.assert_allclose(found[likely], expected[likely], atol=1e-5)
    np.testing.assert_allclose(log_strategy(a, table)[likely], expected[likely], atol=1e-5)


def loss_of(a, v, **given):
    weights = Coefficients(**{"q_coef": 0.5, "vf_coef": 0.25, "pg_coef": 0.0, **given})
    old, q_target, v_target = drawn(7, 5) - 2, drawn(8, 5), drawn(9, 5)
    judged = Samples(a, ACTIONS, old, rows(0.6, 0.5, 2.0, n=5), q_target, v_target, v)
    return gpf_loss(a, v, judged, coefficients=weights)


def test_the_loss_is_made_of_its_parts():
    """Loss = .5 q_loss + .25 value_loss + 2 policy loss; the entropy is that of the mixture, the gap best - second."""
    a, v = drawn(0, 5, 4), drawn(1, 5)
    loss, told = loss_of(a, v, pg_coef=2.0)
    found = dict(zip(GPF_STATISTICS, told.tolist(), strict=True))
    parts = 0.5 * found["q_loss"] + 0.25 * found["value_loss"] + 2.0 * found["policy_gradient_loss"]
    assert loss.item() == pytest.approx(parts)
    assert found["value_loss"] == pytest.approx(float(((drawn(9, 5) - v) ** 2).mean()))
    pi = 0.6 * torch.softmax(a / 0.5, 1) + 0.4 * torch.softmax(a / 2.0, 1)
    assert found["entropy"] == pytest.approx(float(-(pi * pi.log()).sum(1).mean()))
    ordered = a.sort(1).values
    assert found["q_gap"] == pytest.approx(float((ordered[:, -1] - ordered[:, -2]).mean()))
    taken = pi.gather(1, ACTIONS[:, None])[:, 0]
    rho = torch.minimum(taken / torch.exp(drawn(7, 5) - 2), torch.ones(5))
    assert found["policy_gradient_loss"] == pytest.approx(float(-(rho * (drawn(8, 5) - v) * taken.log()).mean()))


def test_value_and_advantage_networks_get_only_their_own_error():
    """V learns from value_loss alone, A from q_loss alone; with pg_coef, V still does not."""
    for pg_coef in (0.0, 1.0):
        a, v = drawn(0, 5, 4, grad=True), drawn(1, 5, grad=True)
        of_v = torch.autograd.grad(loss_of(a, v, pg_coef=pg_coef)[0], v, retain_graph=True)[0]
        torch.testing.assert_close(of_v, 0.25 * 2 / 5 * (v.detach() - drawn(9, 5)), atol=1e-15, rtol=0)
        of_a = torch.autograd.grad(loss_of(a, v, vf_coef=9.0)[0], a)[0]
        of_a_alone = torch.autograd.grad(loss_of(a, v, vf_coef=0.0)[0], a)[0]
        assert torch.equal(of_a, of_a_alone)


def test_a_space_of_one_action_has_no_gap_and_no_entropy():
    """One action: Q = V, gap 0, entropy 0, nothing fails."""
    v = drawn(1, 2)
    zeros = torch.zeros(2, dtype=torch.int64)
    judged = Samples(v, zeros, torch.zeros(2), rows(1, 1, 1, n=2), v, v, v)
    _, told = gpf_loss(drawn(0, 2, 1), v, judged, coefficients=Coefficients())
    assert told.abs().max() < 1e-30
