"""Transforms, forward derivatives and tensors of other kinds: each as in plain PyTorch."""

import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, graph

from drlnb.runtime.swapping.engine import Swapper
from tests.runtime.swapping.autograd.compare import PLANNERS, Net, assert_plain
from tests.runtime.swapping.rig import swapper


def mapped(net, x):
    return torch.func.vmap(lambda row: net.second(row).exp() * row)(net.first(x))


def gradient(net, x):
    h = net.first(x)
    return torch.func.grad(lambda rows: net.second(rows).exp().sum())(h) * h.exp()


def jacobian(net, x):
    h = net.first(x)
    return torch.func.jacrev(lambda row: net.second(row).tanh())(h[0]) @ h.exp().t()


def along(net, x):
    h = net.first(x)
    return torch.func.jvp(lambda rows: net.second(rows).tanh(), (h,), (torch.ones_like(h),))[1]


def per_sample(net, x):
    def loss(parameters, row):
        return torch.func.functional_call(net.second, parameters, (row,)).square().sum()

    h, parameters = net.first(x), dict(net.second.named_parameters())
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, h)
    return each["weight"].exp().mean(0) + h[:1].t() * h[1:2]


def dual(net, x):
    with forward_ad.dual_level():
        h = net.first(x)
        y = forward_ad.make_dual(h, torch.ones_like(h))
        primal, tangent = forward_ad.unpack_dual(net.second(y).tanh() * y)
        return primal * tangent


def nested_rows(net, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = torch.nested.nested_tensor([x[:3], x[3:]], layout=torch.jagged)
        return net.second(net.first(rows)).values().exp()


def made(function):
    torch.manual_seed(0)
    return Net(function, first=nn.Linear(16, 16), second=nn.Linear(16, 16))


def rows():
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("planner", ["none", *PLANNERS])
@pytest.mark.parametrize("function", [mapped, gradient, jacobian, along, per_sample, dual, nested_rows])
def test_a_transform_within_a_step(function, planner):
    """Those that refuse hooks run without ours; what is saved outside of them is swapped."""
    assert_plain(made(function), planner, rows())


def test_a_transform_still_refuses_the_users_own_hooks():
    """As in plain PyTorch; and after the step PyTorch is as it was."""
    before, net = graph.disable_saved_tensors_hooks, made(gradient)
    with swapper(net) as swap, swap.step():
        assert graph.disable_saved_tensors_hooks is not before
        with (
            graph.saved_tensors_hooks(lambda x: x, lambda x: x),
            pytest.raises(RuntimeError, match="saved tensor hooks"),
        ):
            net(rows())
        net(rows()).sum().backward()
    assert graph.disable_saved_tensors_hooks is before


def sparse():
    return torch.eye(8).to_sparse()


def compressed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.eye(8).to_sparse_csr()


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.eye(8), 0.1, 0, torch.quint8)


@pytest.mark.parametrize("planner", ["none", "all", "hybrid"])
@pytest.mark.parametrize("kind", [sparse, compressed, quantised])
def test_buffers_of_other_kinds(kind, planner):
    """A module may have them: they stay, and what a sparse one holds is its indices and values."""

    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 8)
            self.register_buffer("mix", kind())

        def forward(self, x):
            mix = self.mix.dequantize() if self.mix.is_quantized else self.mix
            return (mix @ self.linear(x).exp()).exp()

    torch.manual_seed(0)
    plain, net, grads = Mixing(), Mixing(), []
    net.linear.load_state_dict(plain.linear.state_dict())
    with swapper(net, planner=planner, budget=20_000) as swap:
        for _ in range(6):
            for each in (plain, net):
                each.zero_grad()
            plain(rows()).sum().backward()
            with swap.step():
                net(rows()).sum().backward()
            grads.append(torch.equal(plain.linear.weight.grad, net.linear.weight.grad))
    assert grads == [True] * 6


def test_sparse_gradients_of_an_embedding():
    """The gradient is sparse, the indices are what is saved."""
    torch.manual_seed(0)
    nets = [Net(lambda net, x: net.last(net.words(x)).exp()) for _ in range(2)]
    words, last = nn.Embedding(10, 16, sparse=True), nn.Linear(16, 4)
    for net in nets:
        net.words, net.last = nn.Embedding(10, 16, sparse=True), nn.Linear(16, 4)
        net.words.load_state_dict(words.state_dict())
        net.last.load_state_dict(last.state_dict())
    x = torch.arange(40).view(8, 5) % 10
    nets[0](x).sum().backward()
    with swapper(nets[1]) as swap, swap.step() as step:
        nets[1](x).sum().backward()
    assert step.swapped_bytes > 0
    assert torch.equal(*[net.words.weight.grad.coalesce().values() for net in nets])


def test_where_nothing_is_to_be_swapped_there_are_no_hooks():
    """Without a budget a step is plain PyTorch's, and says that nobody counted; planner none counts."""
    seen = []

    def step(swap, net):
        with swap.step() as done:
            out = net(rows())
            seen.append(out.grad_fn._raw_saved_result.unpack_hook)
            out.sum().backward()
        return done

    net = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    with Swapper(net, min_bytes=0) as swap:
        assert step(swap, net).peak_bytes == 0
        assert "peak not counted" in str(swap.report())
    with Swapper(net, planner="none", min_bytes=0) as swap:
        assert step(swap, net).peak_bytes > 0
    assert seen[0] is None
    assert seen[1] is not None
