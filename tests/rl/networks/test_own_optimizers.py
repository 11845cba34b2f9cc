"""An optimiser of the user's own steps each tensor, and its state travels; what would not go on is refused."""

import numpy as np
import pytest
import torch

import drlnb
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.networks import own_optimizer


class Whole(torch.optim.Optimizer):
    """Divides each tensor's gradient by its norm, counts in a float64 tensor, and puts new tensors in their places."""

    def __init__(self, params, lr=1e-3, drag=0.0):
        super().__init__(params, {"lr": lr, "drag": drag})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for each in group["params"]:
                state = self.state[each]
                before = state.get("velocity", torch.zeros_like(each))
                state["velocity"] = group["drag"] * before + each.grad / (each.grad.norm() + 1e-12)
                state["count"] = state.get("count", 0) + 1
                each.data = each.data - group["lr"] * state["velocity"] / state["count"] ** 0.1


class Counting(torch.optim.SGD):
    """Keeps a count outside of its state."""

    n_steps = 0

    def step(self, closure=None):
        self.n_steps += 1
        self.param_groups[0]["lr"] /= self.n_steps
        super().step(closure)


class Noisy(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for each in self.param_groups[0]["params"]:
            each.data.add_(torch.randn_like(each))


def ppo(kind=Whole, arguments=None, **given):
    kwargs = {"net_arch": [4], "optimizer_class": kind, "optimizer_kwargs": arguments}
    small = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "learning_rate": 0.01, "seed": 0}
    return drlnb.PPO("MlpPolicy", "CartPole-v1", **{"policy_kwargs": kwargs, **small, **given})


def dqn(kind=Whole, arguments=None):
    kwargs = {"net_arch": [4], "optimizer_class": kind, "optimizer_kwargs": arguments}
    small = {"learning_starts": 8, "buffer_size": 64, "batch_size": 8, "learning_rate": 0.01, "seed": 0}
    return drlnb.DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, **small)


def test_a_policy_has_one_of_its_own():
    """With the class that the model learns with, at its rate."""
    policy = ppo().policy
    assert type(policy.optimizer).__name__ == "Whole"
    before = policy.action_net.weight.detach().clone()
    policy(torch.randn(3, 4))[1].sum().backward()
    policy.get_distribution(torch.randn(3, 4)).entropy().sum().backward()
    policy.optimizer.step()
    assert not torch.equal(policy.action_net.weight, before)


def test_each_tensor_is_stepped_on_its_own():
    """One minibatch is one step: every tensor moves by the rate times its gradient's own direction."""
    model = ppo(n_epochs=1, batch_size=16)
    before = {name: tensor.clone() for name, tensor in model.get_parameters()["policy"].items()}
    after = model.learn(16, local=True).get_parameters()["policy"]
    moved = [float((after[name] - tensor).norm()) for name, tensor in before.items()]
    assert len(moved) == 8
    assert moved == pytest.approx([0.01] * 8, rel=0.05)


@pytest.mark.thorough  # torch's own classes load its compiler
def test_a_class_of_torchs_trains_as_the_one_with_a_name():
    """Adam by its name steps one flat tensor, a class derived from it each tensor."""

    class Mine(torch.optim.Adam):
        pass

    named, own = (ppo(kind, {"eps": 1e-5}).learn(64, local=True) for kind in (torch.optim.Adam, Mine))
    for name, tensor in named.get_parameters()["policy"].items():
        torch.testing.assert_close(own.get_parameters()["policy"][name], tensor, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("make", [ppo, pytest.param(dqn, marks=pytest.mark.thorough)])
def test_it_goes_on_with_the_same_bits(make, tmp_path):
    """From a saved file, whose optimiser is code and is taken on trust alone."""
    whole, half = (make(arguments={"drag": 0.9}).learn(n, local=True) for n in (64, 32))
    half.learn(32, reset_num_timesteps=False, local=True)
    assert np.array_equal(whole.parameters, half.parameters)
    path = half.save(tmp_path / "m")
    with pytest.raises(CheckpointError, match="its optimizer_class came from its author's own code"):
        type(half).load(path)
    again = type(half).load(path, trust=True)
    assert again.trained.state.facts == half.trained.state.facts
    with pytest.raises(ConfigError, match="optimizer_class of a model that is made is Whole: make another one"):
        type(half).load(path, trust=True, policy_kwargs={"net_arch": [4]})


def test_a_round_that_breaks_off_leaves_its_state():
    """Parameters and what it keeps have the bits from before it."""
    kept = make_learner(ppo(arguments={"drag": 0.9}).spec).kept
    kept.adam.learning_rate = 0.01

    def step(gradient):
        kept.adam.grad.fill_(gradient)
        kept.adam.step(1.0, norm_out=torch.zeros(()))

    step(1.0)
    facts, buffer = kept.state()

    def broken_off():
        with kept.all_or_nothing():
            step(-1.0)
            assert kept.state()[0] != facts
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert kept.state()[0] == facts
    assert np.array_equal(kept.state()[1], buffer)


def test_a_state_that_is_too_large_is_told(monkeypatch):
    """It would not fit into the header of a frame."""
    monkeypatch.setattr(own_optimizer, "_MOST_BYTES", 4000)
    with pytest.raises(ConfigError, match=r"optimizer_class Whole keeps .* bytes, at most 4,000 can travel: take a sm"):
        ppo(policy_kwargs={"net_arch": [64], "optimizer_class": Whole}).learn(16, local=True)


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        (Counting, {}, "Counting would not go on after a resume as without one: let it keep everything in its state"),
        (Noisy, {}, "Noisy would not go on after a resume"),
        (Whole, {"drags": 1}, r"Whole cannot train here: TypeError: .*unexpected keyword argument 'drags'"),
        (lambda parameters, lr: None, {}, "lambda cannot train here: AttributeError: 'NoneType'"),
    ],
)
def test_what_would_not_go_on_is_refused(kind, arguments, said):
    """When the model is made, in one line."""
    with pytest.raises(ConfigError, match=f"^policy_kwargs: optimizer_class {said}"):
        ppo(kind, arguments)
