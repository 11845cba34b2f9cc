"""Supervised work of a user, and the plain loop that it must equal."""

import copy
import math
import random
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.torch import load
from torch import nn
from torch.utils.data import Dataset, TensorDataset, default_collate

from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.master.work import located

#: 70 samples are seven batches of 9 and one of 7.
N_SAMPLES, BATCH, EPOCH = 70, 9, 8
ADAM = {"optimizer_kwargs": {"lr": 0.01}, "batch_size": BATCH, "n_epochs": 3}


def tensors(n=N_SAMPLES):
    numbers = torch.Generator().manual_seed(1)
    inputs = torch.randn(n, 10, generator=numbers)
    return inputs, (inputs @ torch.arange(10.0) > 0).long()


def table():
    return TensorDataset(*tensors())


class Noisy(Dataset):
    """Each sample has noise of its own, from each of the random generators that users draw from."""

    def __init__(self):
        self.inputs, self.targets = tensors()

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        noise = random.gauss(0.0, 0.1) + np.random.normal() + torch.randn(())  # noqa: NPY002
        return {"x": self.inputs[index] + noise}, self.targets[index]


class AtOnce(Noisy):
    """Reads several samples at once, as PyTorch's loader would have it do."""

    def __getitems__(self, indices):
        return [(self.inputs[index], int(self.targets[index])) for index in indices]


class Net(nn.Module):
    """Normalises its batch, drops out, and takes a tensor or a mapping."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))

    def forward(self, inputs):
        return self.layers(inputs["x"] if isinstance(inputs, dict) else inputs)


def net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return Net()


def linear():
    """Return a small network of float64 that neither mixes samples nor draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 2)).double()


def cosine(parameters, lr, n_steps):
    """Return an optimiser whose learning rate falls to 0; the step is kept where it is saved, in the groups."""
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)

    def set_rate(optimizer, *_):
        for group in optimizer.param_groups:
            group["step"] = group.get("step", 0) + 1
            group["lr"] = 0.5 * lr * (1.0 + math.cos(math.pi * group["step"] / n_steps))

    optimizer.register_step_pre_hook(set_rate)
    return optimizer


def plain_loop(
    module,
    dataset,
    loss,
    optimizer,
    *,
    optimizer_kwargs,
    batch_size,
    n_epochs,
    max_grad_norm=None,
    seed=0,
    is_copied=True,
):
    """Return the module, or a copy of it, after the loop of docs/batching.md, in plain PyTorch."""
    module = copy.deepcopy(module) if is_copied else module
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    made = optimizer(module.parameters(), **optimizer_kwargs)
    for epoch in range(n_epochs):
        order = np.random.default_rng((seed, epoch)).permutation(len(dataset))
        for start in range(0, len(dataset), batch_size):
            indices = order[start : start + batch_size].tolist()
            several = getattr(dataset, "__getitems__", None)
            samples = several(indices) if several else [dataset[i] for i in indices]
            inputs, targets = default_collate(samples)
            made.zero_grad()
            loss(module(inputs), targets).backward()
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(module.parameters(), max_grad_norm)
            made.step()
    return module


class Door:
    """Takes what a fleet would start."""

    def __init__(self):
        self.begun = []

    def begin(self, spec, out, on_existing, start=None, files=None):
        self.begun.append(SimpleNamespace(spec=spec, task=spec.tasks[0], files=files, out=out))
        return self.begun[-1]


def learner(begin, task, data_sets=None):
    return FitLearner(located(task, begin.out), data_sets=data_sets, task="r/fit")


def make(learner, *ends):
    metrics = []
    for number, end in enumerate(ends, 1):
        learner.begin(number, end)
        metrics.append(learner.finish())
    return metrics


def assert_same(learner, module):
    ours, wanted = load(learner.published().tobytes()), module.state_dict()
    assert ours.keys() == wanted.keys()
    assert all(torch.equal(ours[name], value) for name, value in wanted.items())
