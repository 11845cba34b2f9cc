"""Traps 1 to 7, of the hooks of saved tensors."""

import gc
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from drlnb.planning.swapping.profile import KEEP, SWAP
from tests.runtime.swapping.rig import stepping


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.mark.parametrize("action", [KEEP, SWAP])
def test_trap_1_a_graph_that_is_never_run_is_freed_without_the_collector(action):
    """The output of an operation that saves it makes no cycle with it."""
    gc.disable()
    try:
        with stepping(action) as step, step.open() as tape:
            y = leaf(64).exp()  # exp saves its own result
            step.away()
            assert list(tape.rows) == [("", 0)]
            del y
            assert list(tape.rows) == []
            assert (step.meter.n_bytes, step.n_places) == (0, 0)
    finally:
        gc.enable()


@pytest.mark.parametrize("action", [KEEP, SWAP])
@pytest.mark.parametrize("away", [False, True])
def test_trap_2_a_change_in_place_after_the_save_raises(action, away):
    """The backward pass refuses contents that were written since, whether the copy was finished before or not."""
    with stepping(action) as step, step.open():
        x = leaf(64)
        y = x * 1
        z = (y * y).sum()
        if away:
            step.away()
        y.detach().mul_(3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation: it is at version 1"):
            z.backward()


def test_trap_2_what_is_kept_as_it_is_is_watched_too():
    """A parameter, which no tape moves, must not be written before its backward pass either."""
    weight = torch.nn.Linear(4, 4, bias=False)
    with stepping(SWAP, module=weight) as step, step.open():
        out = weight(leaf(2, 4)).sum()
        with torch.no_grad():
            weight.weight.mul_(2)
        with pytest.raises(RuntimeError, match=r"shape \(4, 4\).*modified by an inplace operation"):
            out.backward()


def test_trap_3_a_graph_can_be_run_again_and_its_tensors_read():
    """Every pass, and every look at a node, gives the same; the place is free once the graph is gone."""
    with stepping() as step, step.open():
        x = leaf(64)
        y = x.exp()
        loss = (y * y).sum()
        del y
        step.away()
        assert torch.equal(loss.grad_fn.next_functions[0][0]._saved_self, x.exp())
        first, again = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
        assert torch.equal(first, again)
        assert torch.equal(first, 2 * x.detach().exp() * x.detach().exp())
        assert step.n_places == 1
        loss.backward()
        assert torch.equal(first, x.grad)
        assert step.n_places == 0


def test_trap_4_inside_of_a_checkpoint_nothing_is_seen():
    """Only the innermost pair of hooks runs: a checkpoint's input is seen once, what it saves is not."""
    x = leaf(8, 4)
    inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Tanh())
    with stepping(module=inner) as step, step.open() as tape:
        checkpoint(inner, x * 1, use_reentrant=False).sum().backward()
        assert list(tape.rows) == []
        assert (tape.n_saved, tape.n_packs) == (1, 1)
        assert step.attribution.call.path == ""


def test_trap_5_another_thread_is_not_hooked():
    """What another thread computes meanwhile is plain."""
    with stepping() as step, step.open() as tape:
        other = threading.Thread(target=lambda: leaf(64).exp().sum().backward())
        other.start()
        other.join()
        assert tape.n_packs == 0


def test_trap_6_a_backward_pass_that_raises_leaves_nothing():
    """After the graph is gone, no byte is held and no place taken."""

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ArithmeticError("in the backward pass")

    with stepping() as step:
        with step.open():
            y = leaf(64).exp()
            z = Fails.apply(y * y).exp().exp().sum()
            step.away()
            with pytest.raises(ArithmeticError):
                z.backward()
        del y, z
        gc.collect()  # the error's traceback holds the graph
        step.tier.reader.submit(gc.isenabled).result()  # a read that nobody waits for any more has ended
        assert (step.meter.n_bytes, step.n_places) == (0, 0)


def test_trap_7_without_gradients_nothing_is_packed():
    """An evaluation within a step costs nothing."""
    with stepping() as step, step.open() as tape, torch.no_grad():
        leaf(64).exp()
        assert tape.n_packs == 0


def test_trap_7_two_forward_passes_before_a_backward_pass():
    """Each graph finds its own tensors; one that is dropped frees its place."""
    with stepping() as step, step.open():
        x = leaf(64)
        first, second, dropped = x.exp(), (x * 2).exp(), (x * 3).exp()
        loss, dropped = first.sum() + second.sum(), dropped.sum()
        del first, second
        step.away()
        assert step.n_places == 3
        del dropped
        assert step.n_places == 2
        loss.backward()
        assert torch.equal(x.grad, (2 * x).exp() * 2 + x.exp())


def test_trap_7_part_of_a_graph():
    """A pass to the middle of a graph leaves the rest, which a later pass uses."""
    with stepping() as step, step.open():
        x = leaf(64)
        middle = x.exp()
        loss = (middle * middle).sum()
        step.away()
        (half,) = torch.autograd.grad(loss, middle, retain_graph=True)
        assert torch.equal(half, 2 * middle)
        assert torch.equal(torch.autograd.grad(loss, x)[0], 2 * x.exp() * x.exp())


def test_trap_7_what_a_function_puts_on_its_context_by_attribute_is_its_own():
    """Tensors that an operation keeps without saving them stay with it."""

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = x.detach().clone()
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.kept

    with stepping() as step, step.open() as tape:
        x = leaf(64)
        y = Keeps.apply(x)
        assert tape.n_packs == 0
        y.sum().backward()
        assert torch.equal(x.grad, x)
