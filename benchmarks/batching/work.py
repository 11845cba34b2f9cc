"""Define the supervised work that is trained here, by `fleet.fit` and by a plain loop: steps of about 100 ms."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ADAM", "BATCH", "LR", "N_SAMPLES", "data_set", "loss", "module", "plain_loop", "small"]

#: Samples of a step and of the data set, and the learning rate.
BATCH, N_SAMPLES, LR = 512, 4096, 1e-4
#: What trains the large network.
ADAM = torch.optim.Adam
_WIDTH, _LAYERS = 768, 5
_SEED = 0


def data_set() -> TensorDataset:
    """Return samples whose target is a function of the input."""
    inputs = torch.randn(N_SAMPLES, _WIDTH, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs[:, :8].sin().sum(1))


def module() -> nn.Module:
    """Return a network of three million parameters, that of a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        hidden = [layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.Tanh())]
        return nn.Sequential(*hidden, nn.Linear(_WIDTH, 1), nn.Flatten(0))


def loss(ours: "Tensor", theirs: "Tensor") -> "Tensor":
    """Return the mean squared error."""
    return nn.functional.mse_loss(ours, theirs)


def small() -> tuple[nn.Module, TensorDataset]:
    """Return a network and as many samples as above, of float64, whose steps take hardly any time."""
    numbers = torch.Generator().manual_seed(1)
    inputs = torch.randn(N_SAMPLES, 16, generator=numbers, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        module = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0)).double()
    return module, TensorDataset(inputs, inputs[:, :4].sin().sum(1))


def plain_loop(
    module: nn.Module,
    data: TensorDataset,
    n_steps: int,
    after_step: Callable[["Tensor"], None],
    optimizer: Callable[..., torch.optim.Optimizer] = ADAM,
    lr: float = LR,
) -> None:
    """Train a module as docs/batching.md has it; `after_step` gets each step's loss."""
    torch.manual_seed(_SEED)
    made = optimizer(module.parameters(), lr=lr)
    for epoch in range(-(-n_steps * BATCH // N_SAMPLES)):
        order = np.random.default_rng((_SEED, epoch)).permutation(N_SAMPLES)
        for start in range(0, N_SAMPLES, BATCH):
            samples = [data[index] for index in order[start : start + BATCH].tolist()]
            inputs, targets = default_collate(samples)
            made.zero_grad()
            value = loss(module(inputs), targets)
            value.backward()
            made.step()
            after_step(value.detach())
