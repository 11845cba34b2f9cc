"""Make the same training steps with a swapper and without, and compare every gradient bit by bit."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.memory import fixed_bytes
from tests.runtime.swapping.nets import differing, state
from tests.runtime.swapping.rig import swapper

#: Planners that swap; one alone in the quick tier.
PLANNERS = [
    "all",
    *[pytest.param(each, marks=pytest.mark.thorough) for each in ("hybrid", "greedy", "capuchin", "auto", "vdnn_all")],
    pytest.param("hybrid:actions=derive+squeeze", marks=pytest.mark.thorough),
]
#: Those among them that run no module twice.
SWAPPING = [
    pytest.param(each, marks=pytest.mark.thorough)
    for each in ("hybrid:actions=swap+derive+squeeze", "greedy:actions=swap", "capuchin:actions=swap", "vdnn_all")
]
#: Bytes above the module's own size: no step of these tests fits.
ROOM_BYTES = 1000


class Net(nn.Module):
    """Layers, and a function of them and the input."""

    def __init__(self, function: Callable, **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def once(net: nn.Module, x: torch.Tensor) -> None:
    """Make a gradient of the mean of squares."""
    net(x).float().square().mean().backward()


def assert_plain(net: nn.Module, planner: str, x: torch.Tensor, step: Callable = once, n_steps: int = 0) -> int:
    """Compare steps with those of a copy without a swapper, and return the bytes that moved in all of them.

    Parameters
    ----------
    n_steps
        Of both; 0: two of what swaps everything, otherwise one under the planner's plan after those that are recorded.
    """
    plain, moved_bytes = copy.deepcopy(net), 0
    budget = {} if planner == "all" else {"budget": fixed_bytes(net) + ROOM_BYTES}
    with swapper(net, planner=planner, **budget) as swap, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "swapping: the budget of")  # so little that all moves which can
        for i in range(n_steps or (2 if planner == "all" else FIRST_STEPS + 2)):
            for each in (plain, net):
                each.zero_grad()
                torch.manual_seed(i)
                if each is plain:
                    step(each, x + i)
                    continue
                with swap.step() as seen:
                    step(each, x + i)
                moved_bytes += seen.swapped_bytes
            assert differing(state(plain), state(net)) == []
    return moved_bytes
