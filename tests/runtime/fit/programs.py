"""Programs of supervised work: what a user writes, good and bad."""

import random
from collections import namedtuple

import numpy as np
import torch
from torch import nn

WEIGHTS = torch.arange(1.0, 11.0)


def batches(step):
    numbers = torch.Generator().manual_seed(step)
    inputs = torch.randn(64, 10, generator=numbers)
    return inputs, (inputs @ WEIGHTS)[:, None] + 0.1 * torch.randn(64, 1, generator=numbers)


def regression():
    """Ten lines with a batch: dropout draws random numbers, batch normalisation has buffers."""
    module = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    return module, torch.optim.Adam(module.parameters(), lr=0.01), nn.functional.mse_loss, batches


def wide():
    """Its steps save six rows of 512 KiB, more than its parameters; random numbers and buffers are in their midst."""
    body = [nn.Linear(10, 128), nn.BatchNorm1d(128), nn.Tanh(), nn.Dropout(0.1)]
    body += [nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1)]
    module = nn.Sequential(*body)

    def given(step):
        numbers = torch.Generator().manual_seed(step)
        inputs = torch.randn(1024, 10, generator=numbers)
        return inputs, (inputs @ WEIGHTS)[:, None]

    return module, torch.optim.Adam(module.parameters(), lr=0.01), nn.functional.mse_loss, given


def plain_loop(program, n_steps, seed=0):
    """Return the parameters after a plain PyTorch loop, by name."""
    threads, numbers = torch.get_num_threads(), torch.get_rng_state()
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch.set_num_threads(1)
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        module, optimizer, loss, give = program()
        for step in range(n_steps):
            inputs, targets = give(step)
            optimizer.zero_grad()
            loss(module(inputs), targets).backward()
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(numbers)
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
    return module.state_dict()


def _with(**parts):
    whole = dict(zip(("module", "optimizer", "loss", "batches"), regression(), strict=True)) | parts
    return tuple(whole.values())


def ends_early():
    """Its data ends after 120 steps."""

    def given(step):
        if step == 120:
            raise IndexError("row 7680\nis not there")
        return batches(step)

    return _with(batches=given)


def leaves():
    """Its data function would end the process that others use."""
    return _with(batches=lambda step: raise_exit())


def raise_exit():
    raise SystemExit(3)


def gives_one():
    return _with(batches=lambda step: batches(step)[0])


def gives_three():
    return nn.Linear(1, 1), None, None


def loses_by_row():
    return _with(loss=lambda ours, theirs: ((ours - theirs) ** 2)[:, 0])


def diverges():
    """Its loss is infinite from step 5 on."""
    return _with(batches=lambda step: (batches(step)[0], batches(step)[1] * (float("inf") if step >= 5 else 1.0)))


def doubles():
    """Train in float64, which is a setting of the whole process."""
    torch.set_default_dtype(torch.float64)
    module = nn.Linear(3, 1)
    return (
        *(module, torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9), nn.functional.mse_loss),
        lambda step: (torch.rand(8, 3), torch.rand(8, 1)),
    )


Pair = namedtuple("Pair", "left right")


class Both(nn.Module):
    """Takes a named tuple."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 1)

    def forward(self, pair):
        return self.layer(pair.left) + self.layer(pair.right)


def named():
    """Its inputs are a named tuple, and its optimiser's learning rate is a tensor."""
    module = Both()

    def given(step):
        inputs, targets = batches(step)
        return Pair(inputs, -inputs), targets

    return module, torch.optim.Adam(module.parameters(), lr=torch.tensor(0.01)), nn.functional.mse_loss, given


def tied():
    """Return a module of which two layers share a parameter."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return module, optimizer, nn.functional.mse_loss, lambda step: (torch.full((2, 4), step / 10), torch.ones(2, 4))


class Counting(nn.Module):
    """Has a buffer that is no part of its state."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("n_calls", torch.zeros(()), persistent=False)

    def forward(self, inputs):
        self.n_calls += 1
        return self.layer(inputs) * self.n_calls


def noisy():
    """Its data draws from the random numbers of Python, numpy and torch, and its module counts its calls."""
    module = Counting()

    def given(step):
        noise = torch.tensor([random.gauss(0.0, 1.0), np.random.normal(), torch.randn(()).item()])  # noqa: NPY002
        return noise.repeat(4, 1), torch.ones(4, 1)

    return module, torch.optim.Adam(module.parameters()), nn.functional.mse_loss, given


class Alone(nn.Module):
    """Takes nothing: what is trained is a constant."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(3))

    def forward(self, nothing):
        return self.value


def alone():
    """Its inputs are empty."""
    module = Alone()
    return (
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        nn.functional.mse_loss,
        lambda step: ((), torch.ones(3)),
    )
