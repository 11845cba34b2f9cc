"""Others' hooks of saved tensors within a step: what they packed is theirs to unpack, not ours to look at."""

import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu, saved_tensors_hooks
from torch.nn import functional
from torch.utils.checkpoint import CheckpointError, checkpoint

from tests.runtime.swapping.autograd.compare import PLANNERS, Net, assert_plain
from tests.runtime.swapping.rig import swapper


def images():
    return torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def block():
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))


def simple(net, x, reentrant):
    return net.last(checkpoint(net.block, net.first(x), use_reentrant=reentrant))


def nested(net, x, reentrant):
    def inner(y):
        return checkpoint(net.block, torch.relu(y), use_reentrant=reentrant)

    return net.last(checkpoint(inner, net.first(x), use_reentrant=reentrant))


def around_a_recurrent_net(net, x, reentrant):
    def inner(y):
        return net.cell(y.flatten(2).transpose(0, 1))[0]

    return checkpoint(inner, net.first(x), use_reentrant=reentrant)


def made(function):
    torch.manual_seed(0)
    layers = {"first": nn.Conv2d(3, 4, 3, padding=1), "block": block(), "last": nn.Conv2d(4, 2, 3)}
    return Net(function, **layers, cell=nn.LSTM(144, 8))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("function", [simple, nested, around_a_recurrent_net])
def test_checkpoints_within_a_module(function, reentrant, planner):
    """Both forms, one within another, and around a recurrent net."""
    net = made(lambda net, x: function(net, x, reentrant))
    if reentrant and function is not around_a_recurrent_net:
        net.block[1].eval()  # batch statistics count twice in plain PyTorch, too
    assert_plain(net, planner, images())


@pytest.mark.parametrize("planner", ["all", "hybrid", pytest.param("auto", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("hooks", [save_on_cpu, lambda: saved_tensors_hooks(lambda x: x.clone(), lambda x: x)])
def test_hooks_of_the_users_own(hooks, planner):
    """What is saved within them is theirs; what is saved after them is the swapper's."""

    def function(net, x):
        with hooks():
            y = net.block(net.first(x))
        return functional.max_pool2d(net.last(y).relu(), 2)

    assert_plain(made(function), planner, images())


def test_one_tensor_given_to_a_checkpoint_twice_comes_back_as_two():
    """Attention asks whether query, key and value are one tensor, and saves others if not: checkpoints refuse that."""
    x = torch.randn(2, 4, 16, requires_grad=True)
    heads = nn.MultiheadAttention(16, 2)
    for given, error in (((x, x, x), CheckpointError), ((x, x * 1, x * 2), None)):
        with swapper(heads) as swap, swap.step(), pytest.raises(error) if error else nullcontext():
            checkpoint(heads, *given, use_reentrant=False)[0].sum().backward()


def test_allowed_mutations_within_a_step():
    """PyTorch's own way to write what was saved."""

    def step(net, x):
        with allow_mutation_on_saved_tensors():
            h = net.first(x)
            y = h * h
            h.mul_(2)
            y.sum().backward()

    assert_plain(made(simple), "all", images(), step)


def test_no_hook_of_others_is_run_by_a_look_at_the_graph():
    """Recording and squeezing look at ReLUs and max-pools; what others packed for those autograd alone unpacks."""
    unpacked = []

    def function(net, x):
        with saved_tensors_hooks(lambda x: x.clone(), lambda x: unpacked.append(None) or x):
            return net.block(net.first(x))

    net = made(function)
    with swapper(net, planner="hybrid", budget=1 << 20) as swap:
        for _ in range(6):
            with swap.step():
                loss = net(images()).sum()
                assert unpacked == []
                loss.backward()
            assert unpacked
            unpacked.clear()


@pytest.mark.slow
def test_a_compiled_function_within_a_module():
    """What its graph saves goes through the hooks, or not: the gradient is plain's."""

    def function(net, x):
        return net.last(compiled(net.first(x)))

    compiled = torch.compile(lambda y: (y.tanh() * y).relu(), backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for planner in ("all", "hybrid"):
            assert_plain(made(function), planner, images())
