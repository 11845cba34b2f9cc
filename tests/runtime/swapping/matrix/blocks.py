"""Steps of modules whose forward pass must not be made again: they draw numbers, or change what is no buffer."""

import copy
import io
import pickle
import random

import numpy as np
import torch
from torch import nn

from tests.runtime.swapping.matrix.steps import Made, Residual, mlp, ordinary, sgd, training

_OWN = np.random.default_rng(5)
_COUNTS = [0]


class Block(Residual):
    """A residual block that does something beside, with its state in whatever form."""

    def __init__(self) -> None:
        super().__init__(8)
        self.begin()

    def begin(self) -> None:
        """Make what is no module."""

    def beside(self, y: torch.Tensor) -> torch.Tensor:
        """Do it."""
        return y

    def forward(self, x):
        return super().forward(self.beside(x))


def _blocks(kind, told=lambda net: None):
    net, x = nn.Sequential(kind(), kind(), nn.Linear(8, 3)), torch.randn(6, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        loss = net(x + i).square().mean()
        loss.backward()
        optimiser.step()
        return [loss, *[told(block) for block in net[:2]]]

    return Made(net, step)


@ordinary
def counts_in_an_attribute():
    class Counts(Block):
        n = 0

        def beside(self, y):
            self.n += 1
            return y * (1 + 0.01 * self.n)

    return _blocks(Counts, lambda block: block.n)


@ordinary
def counts_in_a_frozen_parameter():
    class Counts(Block):
        def begin(self):
            self.n = nn.Parameter(torch.zeros(()), requires_grad=False)

        def beside(self, y):
            self.n += 1
            return y * (1 + 0.01 * self.n)

    return _blocks(Counts)


@ordinary
def counts_in_a_list():
    class Counts(Block):
        def begin(self):
            self.seen = []

        def beside(self, y):
            self.seen.append(y.mean().item())
            return y + 0.01 * len(self.seen)

    return _blocks(Counts, lambda block: block.seen)


@ordinary
def counts_in_a_buffer():
    class Counts(Block):
        def begin(self):
            self.register_buffer("mean", torch.zeros(8))

        def beside(self, y):
            with torch.no_grad():
                self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            return y - self.mean

    return _blocks(Counts)


@ordinary
def counts_for_all():
    """Keep the state in nobody's attribute."""

    class Counts(Block):
        def beside(self, y):
            _COUNTS[0] += 1
            return y * (1 + 0.01 * _COUNTS[0])

    _COUNTS[0] = 0
    return _blocks(Counts, lambda block: _COUNTS[0])


@ordinary
def clamps_its_parameters():
    class Clamps(Block):
        def beside(self, y):
            self.other.weight.data.mul_(0.99)
            return y

    return _blocks(Clamps)


@ordinary
def keeps_its_output():
    class Keeps(Block):
        kept = None

        def beside(self, y):
            before, self.kept = self.kept, y.detach().mean()
            return y if before is None else y + before

    return _blocks(Keeps, lambda block: block.kept)


@ordinary
def draws_from_numpy():
    class Draws(Block):
        def beside(self, y):
            return y * float(np.random.rand())  # noqa: NPY002 - the global numbers are what is tested

    return _blocks(Draws)


@ordinary
def draws_from_random():
    class Draws(Block):
        def beside(self, y):
            return y if random.random() < 0.5 else y.tanh()

    return _blocks(Draws)


@ordinary
def draws_from_a_generator():
    class Draws(Block):
        def begin(self):
            self.generator = torch.Generator(torch.get_default_device()).manual_seed(3)

        def beside(self, y):
            return y + torch.randn(y.shape, generator=self.generator)

    return _blocks(Draws)


@ordinary
def draws_from_a_generator_of_numpy():
    class Draws(Block):
        def begin(self):
            self.generator = np.random.default_rng(3)

        def beside(self, y):
            return y * float(self.generator.random())

    return _blocks(Draws)


@ordinary
def draws_from_a_generator_for_all():
    """Take nearly always the same branch, by a generator that is nobody's attribute."""

    class Draws(Block):
        def beside(self, y):
            return y.tanh() if _OWN.random() < 0.1 else y

    _OWN.bit_generator.state = np.random.default_rng(5).bit_generator.state
    return _blocks(Draws)


@ordinary
def draws_dropout():
    class Draws(Block):
        def begin(self):
            self.dropout = nn.Dropout(0.3)

        def beside(self, y):
            return self.dropout(y)

    return _blocks(Draws)


@ordinary
def branches_by_torch():
    class Branches(Block):
        def beside(self, y):
            return y.tanh() if torch.rand(()) < 0.5 else y.sin()

    return _blocks(Branches)


@ordinary
def writes_its_input():
    class Writes(Block):
        def beside(self, y):
            return y.mul_(1.5)

    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), Writes(), Writes(), nn.Linear(8, 3))
    x = torch.randn(6, 8)
    return training(net, lambda i: net(x + i))


@ordinary
def toggled_before_the_backward_pass():
    """Dropout and batch statistics count as they were in the forward pass."""
    net = nn.Sequential(*[
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2)) for _ in range(3)
    ])
    x, optimiser = torch.randn(6, 8), sgd(net)

    def step(i):
        net.train(i % 3 != 2)
        optimiser.zero_grad()
        loss = net(x + i).square().mean()
        net.train(i % 2 == 0)
        loss.backward()
        optimiser.step()
        return loss

    return Made(net, step)


@ordinary
def target_copied_in_the_step():
    """Copy the network within the step: the copy has its own parameters from then on."""
    net = nn.Sequential(Residual(), Residual(), nn.Linear(8, 3))
    x, target, optimiser = torch.randn(6, 8), [], sgd(net)

    def step(i):
        optimiser.zero_grad()
        value = net(x + i)
        if i % 3 == 0:
            target[:] = [copy.deepcopy(net).requires_grad_(False)]
        loss = (value - target[0](x + i + 1)).square().mean()
        loss.backward()
        optimiser.step()
        return [loss, target[0](x), copy.copy(net[0])(x)]

    return Made(net, step)


@ordinary
def saved_in_the_step():
    """Pickle the network within the step, by itself and with torch: it is the network and nothing else."""
    net = nn.Sequential(Residual(), Residual(), nn.Linear(8, 3))
    x, optimiser = torch.randn(6, 8), sgd(net)

    def step(i):
        optimiser.zero_grad()
        loss = net(x + i).square().mean()
        other, file = pickle.loads(pickle.dumps(net)), io.BytesIO()
        torch.save(net, file)
        file.seek(0)
        third = torch.load(file, weights_only=False)
        loss.backward()
        optimiser.step()
        return [loss, other(x), third(x), len(net.state_dict())]

    return Made(net, step)


@ordinary
def noise_that_begins_late():
    """Nothing is drawn in the first five steps."""

    class Late(Block):
        begun = False

        def beside(self, y):
            return y + float(np.random.rand()) if self.begun else y  # noqa: NPY002

    net = nn.Sequential(Late(), Late(), nn.Linear(8, 3))
    x, made = torch.randn(6, 8), mlp(3, 3)

    def forward(i):
        for block in net[:2]:
            block.begun = i > 4
        return made(net(x + i))

    return training(net, forward)
