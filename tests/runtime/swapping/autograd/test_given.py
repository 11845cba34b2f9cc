"""What plain PyTorch reads of a tensor that is given other data, and of a block whose tensors are written meanwhile."""

import copy
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from drlnb.planning.swapping.profile import BLOCK
from drlnb.runtime.swapping.torch_private import assignments_told
from tests.runtime.swapping.autograd.compare import Net, once
from tests.runtime.swapping.nets import differing, state
from tests.runtime.swapping.rig import everywhere, swapper


class OwnExp(torch.autograd.Function):
    """Saves its input and its result."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * y + 0.1 * x


def an_input(net, x):
    h = net.first(x)
    y = h * h
    h.data = torch.ones_like(h)
    return y


def gone_long_ago(net, x):
    h = net.first(x)
    y = (h * h).exp()
    h.data = torch.ones_like(h)
    del h
    return y.sin()


def a_result(net, x):
    h = net.first(x).exp()
    h.data = torch.ones_like(h)
    return h * 2


def result_and_input(net, x):
    h = net.first(x).exp()
    y = h * h
    h.data = torch.ones_like(h)
    return y + h


def a_view_of_it(net, x):
    h = net.first(x)
    y = h.view_as(h) * h
    h.data = torch.ones_like(h)
    return y


def what_is_detached(net, x):
    h = net.first(x)
    constant = h.detach()
    y = constant * h
    constant.data = torch.ones_like(h)
    return y


def again_and_again(net, x):
    h = net.first(x)
    y = h * h
    h.data = torch.ones_like(h)
    z = h.exp() * h
    h.data = torch.full_like(h, 0.5)
    return y + z


def a_parameter(net, x):
    h = functional.conv1d(net.first(x)[:, None], net.kernel)
    net.kernel.data = net.kernel.data * 2
    return h.flatten(1)


def of_a_function(net, x):
    h = net.first(x)
    y = OwnExp.apply(h)
    h.data, y.data = h.data * 3, y.data * 2
    return y * y


def a_leaf(net, x):
    mask = torch.ones(len(x), 16)
    y = net.first(x) * mask
    mask.data = mask * 3
    return y


def a_number(net, x):
    h = net.first(x).sum()
    y = h * h
    h.data = torch.tensor(3.0)
    return y * net.first(x)


def straight_through(net, x):
    h = functional.hardtanh(net.first(x))
    h.data = h.data.sign()
    return net.second(h)


def differentiated_twice(net, x):
    h = net.first(x)
    y = (h**3).sum()
    h.data = torch.ones_like(h)
    (gradient,) = torch.autograd.grad(y, h, create_graph=True)
    return gradient * h


def storage_emptied(net, x):
    h = net.first(x)
    y, storage = h * h, h.untyped_storage()
    n_bytes = storage.nbytes()
    storage.resize_(0)
    storage.resize_(n_bytes)
    h.data.fill_(2)
    return y


OTHER_DATA = [
    an_input, gone_long_ago, a_result, result_and_input, a_view_of_it, what_is_detached, again_and_again, a_parameter,
    of_a_function, a_leaf, a_number, straight_through, differentiated_twice, storage_emptied,
]  # fmt: skip


@pytest.mark.parametrize("more", [{"planner": "all"}, {"planner": "none", "budget": "1MiB"}], ids=["all", "none"])
@pytest.mark.parametrize("function", OTHER_DATA)
def test_a_tensor_that_is_given_other_data(function, more):
    """Plain PyTorch saves an operation's input itself, so ``x.data = y`` counts there, and an alias of its result."""
    torch.manual_seed(0)
    net, x = Net(function, first=nn.Linear(8, 16), second=nn.Linear(16, 4)), torch.randn(4, 8)
    net.kernel = nn.Parameter(torch.randn(2, 1, 3))
    plain = copy.deepcopy(net)
    with swapper(net, **more) as swap:
        for _ in range(2):
            for each in (plain, net):
                each.zero_grad()
            once(plain, x)
            with swap.step():
                once(net, x)
            assert differing(state(plain), state(net)) == []
    assert "data" not in vars(torch.Tensor), "torch is as it was"


def test_other_data_are_not_seen_once_the_swapper_is_closed():
    """A graph that outlives its swapper: nobody is told any more, and the gradient is that of what was saved."""
    net, x = Net(lambda net, x: net.first(x), first=nn.Linear(8, 16)), torch.randn(4, 8)
    with swapper(net) as swap, swap.step():
        h = net(x)
        y = h * h
    saved = h.detach()
    h.data = torch.ones_like(h)
    y.sum().backward()
    assert torch.equal(net.first.bias.grad, 2 * saved.sum(0))


class Part(nn.Module):
    """Saves its output, but not its input."""

    def __init__(self, does):
        super().__init__()
        self.one, self.other, self.does = nn.Linear(16, 16), nn.Linear(16, 16), does

    def forward(self, x):
        h = torch.relu(self.one(torch.relu(x)))
        y = torch.tanh(self.other(h))
        if "saved, by data" in self.does:
            h.data.mul_(2)
        if "saved, other data" in self.does:
            h.data = torch.ones_like(h)
        return y


class Parts(nn.Module):
    """Two such parts, around the first of which something is written."""

    def __init__(self, does):
        super().__init__()
        self.first, self.one, self.other, self.does = nn.Linear(8, 16), Part(does), Part(does), does

    def forward(self, x):
        h = self.first(x)
        y = self.one(h)
        if "input, in place" in self.does:
            h += y
        elif "input, by data" in self.does:
            h.data.add_(y.data)
        elif "input, other data" in self.does:
            h.data = torch.ones_like(h)
        elif "output, by data" in self.does:
            y.data.mul_(2)
        elif "output, other data" in self.does:
            y.data = y.data * 2
        elif "bias, by data" in self.does:
            self.one.one.bias.data.add_(1)
        return self.other((h + y).mul_(2))


WRITES = [
    "input, in place", "input, by data", "input, other data", "output, by data", "output, other data",
    "saved, by data", "saved, other data", "bias, by data",
]  # fmt: skip


def _planned(swap, net, x):
    plan = everywhere(swap.profile(lambda _: once(net, x), batches=(len(x),)), BLOCK)
    net.zero_grad()
    swap.apply(plan)
    return plan


@pytest.mark.parametrize("write", WRITES)
def test_a_block_is_not_made_again_whose_tensors_are_written_meanwhile(write):
    """Trials see it: such a block is not offered, and steps are those of plain PyTorch."""
    torch.manual_seed(0)
    net, x = Parts([write]), torch.randn(4, 8)
    with swapper(net) as swap:
        plan = _planned(swap, net, x)
        plain = copy.deepcopy(net)
        assert "one" not in plan.blocks
        for _ in range(2):
            for each in (plain, net):
                each.zero_grad()
            once(plain, x)
            with swap.step():
                once(net, x)
            assert differing(state(plain), state(net)) == []


@pytest.mark.parametrize("write", WRITES)
def test_a_block_that_is_written_late_raises(write):
    """In a later step: what it was is gone, so its gradient would be wrong."""
    torch.manual_seed(0)
    does: list = []
    net, x = Parts(does), torch.randn(4, 8)
    with swapper(net) as swap:
        assert _planned(swap, net, x).blocks == ("one", "other")
        plain = copy.deepcopy(net)
        once(plain, x)
        with swap.step():
            once(net, x)
        assert differing(state(plain), state(net)) == []
        does.append(write)
        refused = pytest.raises(
            RuntimeError, match=r"block '(one|other)' cannot be made again: .*choose a planner without"
        )
        with refused, swap.step():
            once(net, x)


@pytest.mark.parametrize("hooks", [False, True], ids=["plain", "swapping"])
def test_a_saved_tensor_that_is_exchanged_or_set_raises(hooks):
    """With hooks as without."""
    net, x = nn.Linear(8, 16), torch.randn(4, 8)
    with swapper(net) as swap, swap.step() if hooks else nullcontext():
        h = net(x)
        y = h * h
        with pytest.raises(RuntimeError, match=r"swap|use_count"):
            torch.utils.swap_tensors(h, net(x))
        with torch.no_grad():
            h.set_(torch.ones(4, 16))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("planner", ["all", "none"])
def test_what_was_given_data_lives_no_longer_than_its_graph(planner):
    """Plain PyTorch lets go of it with the graph that has saved it; so is it here, without another step."""
    net, x = nn.Linear(8, 8), torch.randn(4, 8)
    with swapper(net, planner=planner) as swap:
        with swap.step():
            h = net(x)
            y = (h * h).sum()
            h.data = torch.ones_like(h)
            there = weakref.ref(h)
            del h
            assert there() is not None
            y.backward()
        del y
        assert there() is None


def test_data_given_after_the_step_count_as_in_plain_pytorch():
    """The graph outlives its step: as long as the swapper is there, it is told."""
    grads = []
    for around in (lambda net: nullcontext(), swapper):
        torch.manual_seed(0)
        net, x = nn.Linear(8, 8), torch.randn(4, 8)
        with around(net) as swap:
            with swap.step() if swap else nullcontext():
                h = net(x)
                y = h * h
            h.data = torch.ones_like(h)
            y.sum().backward()
        grads.append(state(net))
    assert differing(*grads) == []
    assert "data" not in vars(torch.Tensor)


def test_whoever_listens_hears_of_data_that_are_given():
    """Two at once, one of which stops first: the other goes on."""
    heard, x = [], torch.ones(3)
    with assignments_told(lambda tensor: heard.append("first")):
        with assignments_told(lambda tensor: heard.append("second")):
            x.data = torch.zeros(3)
        x.data = torch.zeros(3)
    x.data = torch.zeros(3)
    assert heard == ["first", "second", "first"]
