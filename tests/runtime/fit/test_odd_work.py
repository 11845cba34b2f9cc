"""Ordinary work whose samples or gradients are easily counted wrong: shares of it are one batch, too."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.shares.step import compute_share
from tests.runtime.fit.shared import plain_steps, shared_steps, written

MSE = nn.functional.mse_loss


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


class Named(Dataset):
    """Has the name of a sample, which is no tensor, before its numbers."""

    def __init__(self, n=48):
        self.inputs = torch.randn(n, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return {"name": f"sample {index}", "x": self.inputs[index]}, self.inputs[index].sum(0, keepdim=True).tanh()


class Net(nn.Module):
    """Takes the numbers out of a mapping."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def forward(self, inputs):
        return self.layers(inputs["x"])


def last_layer(parameters, lr):
    """Make an optimiser of the last layer alone; the other one has gradients all the same."""
    return torch.optim.SGD(list(parameters)[-2:], lr=lr)


def furthest(ours, theirs):
    pairs = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)


def test_a_share_counts_its_samples_whatever_comes_first_in_them(tmp_path):
    """Before the numbers there are strings, which have no axes: uneven shares must not count alike."""
    module, data = Net(), Named()
    spec = written(tmp_path, module, data, MSE, batch_size=20)
    assert compute_share(FitLearner(spec), 0, 0, 5, 0, lambda: True).denominator == 5.0
    spec = written(tmp_path, module, data, MSE, batch_size=48)
    assert furthest(shared_steps(spec, (40, 8), 2).module, plain_steps(module, data, MSE, 2, batch_size=48)) < 1e-12


def zeroed_steps(module, data, n_steps, clip):
    """Train a copy of a module, of which each step clips its own gradient: by hand."""
    module = copy.deepcopy(module)
    optimizer = last_layer(module.parameters(), lr=0.1)
    for step in range(n_steps):
        order = np.random.default_rng((0, step)).permutation(len(data))
        inputs, targets = torch.utils.data.default_collate([data[index] for index in order.tolist()])
        gradients = torch.autograd.grad(MSE(module(inputs), targets), list(module.parameters()))
        norm = torch.cat([each.flatten() for each in gradients]).norm()
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter.grad = gradient * min(1.0, clip / (float(norm) + 1e-6))
        optimizer.step()
    return module


@pytest.mark.parametrize("shares", [(40, 8), None])
def test_what_the_optimizer_does_not_have_counts_once_in_the_norm(tmp_path, shares):
    """By hand: the norm is that of the step's gradient, not of all steps' since the process began."""
    module, data = Net(), Named()
    spec = written(tmp_path, module, data, MSE, batch_size=48, optimizer=last_layer, max_grad_norm=0.05)
    if shares:
        ours = shared_steps(spec, shares, 4)
    else:
        ours = FitLearner(spec)
        ours.begin(1, 4)
        ours.finish()
    assert furthest(ours.module, zeroed_steps(module, data, 4, 0.05)) < 1e-12
    assert torch.equal(ours.module.layers[0].weight, module.layers[0].weight)


class Centred(nn.Module):
    """Keeps a mean of what it has seen, as losses that centre their outputs do."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(1, dtype=torch.float64))

    def forward(self, outputs, targets):
        self.centre = 0.5 * self.centre + 0.5 * outputs.detach().mean(0)
        return MSE(outputs - self.centre, targets)


def test_what_a_loss_keeps_is_saved_and_undone_with_the_round(tmp_path):
    """Another process goes on as if it were the first one; a round that is interrupted leaves nothing behind."""
    module, data, loss = Net(), Named(), Centred()
    spec = written(tmp_path, module, data, loss, batch_size=48, n_learners=1)
    first, second = FitLearner(spec), FitLearner(spec)
    first.begin(1, 3)
    first.finish()
    first.begin(2, 5)
    with pytest.raises(KeyboardInterrupt):
        first.finish(interrupted)
    second.restore(*first.state())
    second.begin(2, 5)
    second.finish()
    assert furthest(second.module, plain_steps(module, data, loss, 5, batch_size=48)) == 0.0


def interrupted(number, n_steps):
    if number == n_steps:
        raise KeyboardInterrupt


def test_several_learners_refuse_a_loss_that_keeps_something(tmp_path):
    learner = FitLearner(written(tmp_path, Net(), Named(), Centred(), batch_size=48))
    with pytest.raises(RuntimeError, match=r"^step 0 .*: a forward pass changes centre of the loss, .* n_learners=1$"):
        compute_share(learner, 0, 0, 24, 0, lambda: True)
    assert learner.loss.centre == 0.0


class Keeping(torch.optim.SGD):
    """Keeps something in its state, for its first parameter or for none."""

    def __init__(self, parameters, lr, key, value):
        super().__init__(parameters, lr=lr)
        self.key, self.value = key, value

    def step(self, closure=None):
        first = self.param_groups[0]["params"][0]
        self.state.update({self.key: self.value} if self.key else {first: {"kept": self.value}})
        return super().step(closure)


@pytest.mark.parametrize("value", [torch.ones(2), 3, 0.5, None, True, [1, 2.5], {"a": [1]}])
def test_what_an_optimizer_keeps_is_the_same_elsewhere(tmp_path, value):
    kwargs = {"lr": 0.1, "key": "", "value": value}
    spec = written(tmp_path, Net(), Named(), MSE, batch_size=48, optimizer=Keeping, kwargs=kwargs, n_learners=1)
    first, second = FitLearner(spec), FitLearner(spec)
    first.begin(1, 1)
    first.finish()
    facts, buffer = first.state()
    second.restore(json.loads(json.dumps(facts)), buffer)
    kept = second.optimizer.state[second.optimizer.param_groups[0]["params"][0]]["kept"]
    assert type(kept) is type(value)
    assert torch.equal(kept, value) if isinstance(value, torch.Tensor) else kept == value


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("n_steps", 3, "the optimizer keeps 'n_steps' in its state, which is no parameter: use its groups"),
        (
            "",
            [torch.ones(2)],
            r"the optimizer keeps kept = \[tensor\(\[1., 1.\]\)\], which cannot be saved: let it be a ",
        ),
        (
            "",
            np.float32(2.0),
            r"the optimizer keeps kept = np.float32\(2.0\), which cannot be saved: let it be a tensor",
        ),
        ("", {1: 2}, "the optimizer keeps kept = {1: 2}, which cannot be saved: let it be a tensor, or numbers of"),
        (
            "",
            ["a"],
            r"the optimizer keeps kept = \['a'\], which cannot be saved: let it be a tensor, or numbers of Python",
        ),
    ],
)
def test_what_would_not_be_the_same_elsewhere_is_named(tmp_path, key, value, said):
    """JSON has no such keys, and numbers of Python alone; torch itself makes something else of texts."""
    kwargs = {"lr": 0.1, "key": key, "value": value}
    spec = written(tmp_path, Net(), Named(), MSE, batch_size=48, optimizer=Keeping, kwargs=kwargs, n_learners=1)
    learner = FitLearner(spec)
    learner.begin(1, 1)
    learner.finish()
    with pytest.raises(RuntimeError, match=f"^{said}"):
        learner.state()
