"""A budget that can be kept is kept, whatever a module's forward pass looks like; one that is not is told of."""

import pytest
import torch
from torch import nn

from tests.runtime.swapping.rig import swapper

MIB = 1 << 20


class Functional(nn.Module):
    """Eight layers without a module of their own: one call saves all rows."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(64))

    def forward(self, x):
        for _ in range(8):
            x = torch.tanh(x @ self.weight)
        return x


class Last(nn.Module):
    """Two layers of an LSTM, whose last output alone is read: a slice of a storage is saved."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(64, 64, 2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


NETS = {"functional": (Functional, (2048, 64)), "lstm": (Last, (64, 16, 64))}


def trained(swapped, net, x, n_steps=1):
    steps = []
    for _ in range(n_steps):
        net.zero_grad()
        with swapped.step() as step:
            net(x).square().sum().backward()
        steps.append(step)
    return steps


def need_bytes(net, x):
    """Return the peak of a step that keeps all, and what stays anyway."""
    with swapper(net, planner="none") as watched:
        (step,) = trained(watched, net, x)
        return step.peak_bytes, watched._fixed_bytes()


def share(net, x, frac):
    """Return a budget that leaves room for a share of what a plain step saves."""
    peak_bytes, fixed_bytes = need_bytes(net, x)
    return fixed_bytes + int(frac * (peak_bytes - fixed_bytes))


@pytest.mark.parametrize("planner", ["auto", "hybrid", "greedy", "capuchin"])
@pytest.mark.parametrize("name", NETS)
def test_a_module_that_saves_many_rows_in_one_call_keeps_its_budget(name, planner):
    """Its rows are not all needed at once: a plan is predicted to fit, fits, and has the predicted peak."""
    make, shape = NETS[name]
    net, x = make(), torch.randn(shape)
    with swapper(net, planner=planner, budget=(budget := share(net, x, 0.7))) as swapped:
        *_, last = trained(swapped, net, x, 9)
        report = swapped.report()
    assert report.predicted.fits
    assert last.peak_bytes <= budget
    assert last.peak_bytes == pytest.approx(report.predicted.peak_bytes, rel=0.05)
