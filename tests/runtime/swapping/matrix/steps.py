"""Name the training steps of the matrix: each is made anew from a seed, and says what it leaves behind."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

__all__ = ["STEPS", "Made", "Residual", "mlp", "ordinary", "seeded", "sgd", "training"]


@dataclass
class Made:
    """A network, and one step of its training; a step returns what it saw beside gradients and parameters."""

    net: nn.Module
    step: Callable[[int], object]


#: Name of a step -> what makes it.
STEPS: dict[str, Callable[[], Made]] = {}


def ordinary(make: Callable[[], Made]) -> Callable[[], Made]:
    """Have a step in the matrix."""
    STEPS[make.__name__] = make
    return make


def seeded(make: Callable[[], Made]) -> Made:
    """Make a step: the same one each time."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global numbers are what is tested
    return make()


def sgd(net: nn.Module, **more) -> torch.optim.Optimizer:
    """Return an optimiser that has a state."""
    return torch.optim.SGD([each for each in net.parameters() if each.requires_grad], 0.05, momentum=0.9, **more)


def training(net: nn.Module, forward: Callable[[int], torch.Tensor]) -> Made:
    """Train a network on what a forward pass returns; gradients stay until the next step."""
    optimiser = sgd(net)

    def step(i: int) -> torch.Tensor:
        optimiser.zero_grad()
        loss = forward(i).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    return Made(net, step)


def mlp(*widths: int, between: Callable[[], nn.Module] = nn.Tanh) -> nn.Sequential:
    """Return linear layers with something between them."""
    layers: list[nn.Module] = []
    for one, other in pairwise(widths):
        layers += [nn.Linear(one, other), between()]
    return nn.Sequential(*layers[:-1])


class Residual(nn.Module):
    """Two layers around which the input goes, and whatever is done between them."""

    def __init__(self, width: int = 8, between: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.one, self.norm, self.other = nn.Linear(width, 16), nn.LayerNorm(16), nn.Linear(16, width)
        self.between = between

    def forward(self, x):
        y = functional.gelu(self.norm(self.one(x)))
        return x + self.other(self.between(y) if self.between else y)


def saw(net: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield gradients, parameters and buffers, and the states of all random numbers."""
    for name, each in net.named_parameters():
        yield name, each.detach()
        if each.grad is not None:
            yield f"{name}.grad", each.grad
    yield from net.named_buffers()
    yield "torch's numbers", torch.get_rng_state()
    if torch.cuda.is_initialized():
        yield "the device's numbers", torch.cuda.get_rng_state()
    yield "numpy's numbers", torch.from_numpy(np.random.get_state()[1].astype(np.int64))  # noqa: NPY002
    yield "random's numbers", torch.tensor(random.getstate()[1])


def told(value: object) -> Iterator[torch.Tensor]:
    """Yield what a step returned, as tensors."""
    if isinstance(value, torch.Tensor):
        yield value.detach()
    elif isinstance(value, dict):
        yield from told(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from told(each)
    elif value is not None:
        yield torch.tensor(float(value), dtype=torch.float64)


def after(made: Made, value: object) -> dict[str, torch.Tensor]:
    """Return copies, on the host, of all that a step leaves behind."""
    seen = [*saw(made.net), *((f"returned {i}", each) for i, each in enumerate(told(value)))]
    return {
        name: (each.to_dense() if each.layout != torch.strided else each).to("cpu", copy=True) for name, each in seen
    }
