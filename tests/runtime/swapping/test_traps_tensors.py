"""Traps 8 to 14 and 22 to 25: which tensors may go, and what must be equal when they are back."""

import copy
import gc
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, SwapPlan
from drlnb.runtime.swapping import torch_private
from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.squeeze import _form
from drlnb.runtime.swapping.tiers.base import Meter
from drlnb.runtime.swapping.torch_private import storage_number
from tests.planning.swapping.swap_words import having
from tests.runtime.swapping.nets import differing, images, made, plain_step, state
from tests.runtime.swapping.rig import everywhere, profiled, stepping, swapper


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_trap_8_parameters_and_their_views_stay():
    """Linear saves its weight as a transposed view, batch normalisation its running statistics: none of them moves."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    with stepping(module=net) as step, step.open() as tape:
        net(leaf(8, 4)).sum().backward()
        assert sorted(tape._needed) == [("0", 0), ("1", 0), ("1", 1), ("1", 2)]


@pytest.mark.parametrize("steps", [1, 2])
def test_trap_9_what_the_caller_holds_is_not_swapped(steps):
    """A copy would free nothing, and whoever holds it may write it: it stays, and no plan has it from then on."""
    x = leaf(64)
    with stepping() as step:
        held = x * 1
        for _ in range(steps):
            with step.open() as tape:
                loss = (held * 2).exp().sum() + (held * held).sum()
                step.away()
                torch.autograd.grad(loss, x, retain_graph=True)
                swapped_bytes = tape.swapped_bytes
        assert tape.others == {("", 1): "something else holds it"}
        assert swapped_bytes == 256


def test_trap_10_a_storage_that_is_saved_twice_moves_once():
    """One copy out, one back, however many tensors share the storage; its buffer stays until the last of them."""
    with stepping() as step, step.open() as tape:
        x = leaf(64)
        y = x.relu()
        loss = (y * 2 * y).sum()
        step.away()
        y = None
        loss.backward()
        assert (tape.n_saved, tape.n_packs, tape.n_fetched) == (2, 3, 2)
        assert torch.equal(x.grad, 4 * x.relu())


@pytest.mark.parametrize("action", [KEEP, SWAP])
def test_trap_10_a_storage_that_the_backward_pass_saves_moves_once(action):
    """What is differentiated twice is saved in both passes, in one state: its write counter is the same there."""
    with stepping(action) as step, step.open() as tape:
        x = leaf(64)
        y = x * 1
        loss = y.pow(3).sum()
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        assert (
            sum(
                saved.n_bytes == 256 and saved.number == storage_number(y.untyped_storage())
                for saved in tape.rows.values()
            )
            == 1
        )
        grad.sum().backward()
        assert torch.equal(x.grad, 6 * x)


@pytest.mark.parametrize("action", [None, KEEP, SWAP])
def test_what_is_written_between_two_backward_passes_is_an_error(action):
    """As in plain PyTorch: the graph of the first backward pass needs what is written into before the second one."""
    x = leaf(64)
    with ExitStack() as stack:
        if action is not None:
            stack.enter_context(stack.enter_context(stepping(action)).open())
        y = x * 1
        (grad,) = torch.autograd.grad(y.pow(3).sum(), y, create_graph=True)
        with torch.no_grad():
            y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            grad.sum().backward()


def test_trap_10_a_number_is_not_used_again_while_it_is_known():
    """Storages come and go at the same addresses; none is taken for another."""
    with stepping() as step, step.open():
        x = leaf(64)
        outputs = []
        for i in range(50):
            outputs.append(((x + i).cos() * (x - i)).sum())
            step.away()
        for i, each in enumerate(outputs):
            expected = (x + i).cos() - (x + i).sin() * (x - i)
            assert torch.equal(torch.autograd.grad(each, x)[0], expected)


def test_trap_11_views_of_one_storage_come_back_with_their_strides():
    """q, k and v are views of one storage: it moves once, flat, and each has its own strides again."""
    with stepping() as step, step.open() as tape:
        x = leaf(3, 4, 8)
        q, k, v = (x * 1).permute(0, 2, 1)
        seen = [each.stride() for each in (q, k, v)]
        loss = (q * k * v).sum()
        step.away()
        assert loss.grad_fn.next_functions[0][0]._saved_other.stride() == seen[2]
        loss.backward()
        assert tape.n_saved == 2
        assert torch.equal(x.grad, torch.stack([x[1] * x[2], x[0] * x[2], x[0] * x[1]]))


def test_trap_12_a_broadcast_moves_its_storage_not_its_expansion():
    """64 numbers seen as 64 x 1000 are 256 bytes."""
    with stepping() as step, step.open() as tape:
        x = leaf(64, 1)
        wide = (x * 1).expand(64, 1000)
        loss = (wide * wide).sum()
        del wide
        step.away()
        loss.backward()
        assert tape.swapped_bytes == 256
        expected = (x * 1).expand(64, 1000)
        assert torch.equal(x.grad, torch.autograd.grad((expected * expected).sum(), x)[0])


class Marked(torch.Tensor):
    """A subclass of tensor."""


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(lambda: torch.randn(64).to_sparse().requires_grad_(), id="sparse"),
        pytest.param(lambda: torch.randn(64).as_subclass(Marked).requires_grad_(), id="subclass"),
        pytest.param(lambda: torch.randn(32, dtype=torch.complex64, requires_grad=True).conj(), id="conjugate"),
    ],
)
def test_trap_12_other_kinds_of_tensors_stay(tensor):
    """Whatever is no plain, dense tensor is kept as it is."""
    with stepping() as step, step.open() as tape:
        tape.unpack(kept := tape.pack(tensor()))
        assert (type(kept), tape.n_saved) == (tuple, 0)


def test_trap_12_small_storages_stay():
    """Below the least size a copy costs more than it moves."""
    with stepping(min_bytes=257) as step, step.open() as tape:
        leaf(64).exp().sum().backward()
        assert tape.n_saved == 0
        leaf(65).exp().sum().backward()
        assert tape.n_saved == 1


class Surprising(nn.Module):
    """A ReLU whose result goes to a max-pool, and to a product if asked."""

    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.pool = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)
        self.squared = False

    def forward(self, x):
        y = self.relu(self.conv(x))
        return self.pool(y).sum() + ((y * y).sum() if self.squared else 0)


def test_trap_13_a_consumer_that_nobody_foresaw_gets_the_whole_tensor():
    """A plan squeezes a ReLU's result for ReLU and max-pool; a product that saves it, too, still gets the numbers."""
    torch.manual_seed(0)
    net, x = Surprising(), images()
    with swapper(net) as swap:
        profile = swap.profile(lambda n: net(x).backward(), batches=(2,))
        plan = everywhere(profile, SQUEEZE)
        assert plan.action_of["relu", 0] == SQUEEZE
        swap.apply(plan)
        net.squared = True
        net.zero_grad()
        net(x).backward()
        plain = state(net)
        net.zero_grad()
        with swap.step():
            net(x).backward()
        assert differing(state(net), plain) == []


def test_trap_14_what_is_needed_at_once_stays_from_the_next_step_on():
    """While no plan knows better: the last storages are needed again before a copy would be there and back."""
    with stepping() as step:
        step.tape.gap_copies = 1e9
        for moved in (256, 0):
            with step.open() as tape:
                loss = leaf(64).exp().sum()
                step.away()
                loss.backward()
                assert tape.swapped_bytes == moved
        assert list(tape.near) == [("", 0)]


def test_trap_22_a_block_that_is_run_again_counts_its_batch_once_and_draws_the_same():
    """Batch statistics, their counter and dropout are those of plain training."""
    for name in ("residual", "transformer"):
        plain, net, x = made(name), made(name), images()
        with swapper(net) as swap:
            swap.apply(everywhere(profiled(swap, net, x), BLOCK))
            assert swap.report().plan.blocks
            torch.manual_seed(7)
            plain_step(plain, x)
            torch.manual_seed(7)
            with swap.step():
                plain_step(net, x)
        assert differing(state(plain), state(net)) == []
        assert "forward" not in vars(net[4])


@pytest.mark.parametrize("training", [True, False])
def test_trap_22_what_is_derived_uses_the_statistics_of_then(training):
    """Batch normalisation computed again writes no statistics, and reads those that the forward pass read."""
    plain, net = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3)) for _ in range(2))
    net.load_state_dict(plain.state_dict())
    plain.train(training)
    net.train(training)
    x = images()
    with swapper(net) as swap:
        plan = everywhere(profiled(swap, net, x), DERIVE)
        assert plan.action_of["2", 0] == DERIVE
        swap.apply(plan)
        with swap.step():
            loss = net(x).square().sum()
            if not training:
                net[1].running_mean.add_(1.0)
            if not training:
                with pytest.raises(RuntimeError, match="inplace"):  # as plain: batch normalisation saves them
                    loss.backward()
                return
            loss.backward()
    plain(x).square().sum().backward()
    assert differing(state(plain), state(net)) == []


def test_trap_23_a_nan_passes_a_squeezed_relu_as_it_passes_a_plain_one():
    """ReLU's gradient at NaN is the gradient itself, so the mask asks for what is not <= 0."""
    relu, x = nn.Sequential(nn.ReLU()), torch.tensor([[-1.0, torch.nan, 0.0, torch.inf, 2.0]])
    with swapper(relu) as swap:
        x.requires_grad_()
        profile = swap.profile(lambda n: functional.relu(relu(x)).sum().backward(), batches=(1,))
        assert [row.squeeze_kind for row in profile.rows][:1] == ["mask"]
        swap.apply(everywhere(profile, SQUEEZE))
        x.grad = None
        with swap.step():
            (relu(x) * 6).sum().backward()
    assert torch.equal(x.grad, torch.tensor([[0.0, 6.0, 0.0, 6.0, 6.0]]))


@pytest.mark.parametrize("shape", [(1,), (8,), (3, 5, 7, 7), (2, 4, 8, 8)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_mask_takes_a_bit_for_each_number_and_comes_back_as_it_was(shape, layout):
    """Whatever the size and the memory format: a byte holds eight."""
    result = torch.relu(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    result = result.contiguous(memory_format=layout) if len(shape) == 4 else result
    meter = Meter()
    form = _form("mask", result, 0, meter)
    assert meter.n_bytes == -(-result.numel() // 8)
    assert torch.equal(form(), (result > 0).to(result.dtype))
    assert form().stride() == result.stride()


def test_trap_24_a_torch_without_a_private_name_is_told_in_a_line():
    """The message has the name, and torch's version."""
    with pytest.raises(torch_private.SwapUnavailable, match=r"torch\._C\._no_such_name, which torch \d"):
        torch_private._private("torch._C", "_no_such_name")


def test_trap_25_a_relu_that_saves_its_result_before_its_hooks_run_is_derived():
    """Its result is derived from the batch normalisation's input, also where it was written in place."""
    for inplace in (False, True):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace), nn.Conv2d(4, 4, 3))
        x = images()
        with swapper(net) as swap:
            profile = profiled(swap, net, x)
            assert {row.key: row.derive_from for row in profile.rows}["2", 0] == ("1", 0)
            swap.apply(having(SwapPlan.keeping(profile), {("2", 0): DERIVE, ("1", 0): SWAP}))
            before = copy.deepcopy(net[1].state_dict())
            net(x).square().sum().backward()
            plain = state(net)
            net.zero_grad()
            net[1].load_state_dict(before)
            with swap.step() as step:
                out = net(x)
                gc.collect()
                out.square().sum().backward()
            assert step.n_fetched == 2  # the source comes back once, and the result is made of it
            assert differing(state(net), plain) == []


@pytest.mark.parametrize(("norm", "least"), [(False, 0.97), (True, 0.0)])
def test_trap_26_the_inputs_of_convolutions_are_not_all_that_is_saved(norm, least):
    """vDNN-conv moves nearly all that convolutions alone save; batch normalisation's inputs, half of it, stay."""
    torch.manual_seed(0)
    layers = [each for _ in range(4) for each in (nn.Conv2d(4, 4, 3, padding=1), *([nn.BatchNorm2d(4)] * norm))]
    net, x = nn.Sequential(*layers, nn.Conv2d(4, 4, 3, padding=1)), torch.randn(2, 4, 8, 8)
    with swapper(net, planner="vdnn_conv", budget="1GiB") as swap:
        for _ in range(FIRST_STEPS + 1):
            with swap.step() as step:
                net(x.clone()).sum().backward()
        report = swap.report()
    row_bytes = 2 * 4 * 8 * 8 * 4
    assert step.swapped_bytes == 5 * row_bytes
    moved = [row for row in report.profile.rows if report.plan.action_of[row.key] == SWAP]
    assert {row.layer_type for row in moved} == {"Conv2d"}
    saved = sum(row.bytes(2) for row in report.profile.rows)
    assert step.swapped_bytes >= least * saved
    assert f"{5 * row_bytes / 1024:.1f} KiB swapped" in str(report), "a baseline's bytes are told"
    if norm:
        assert step.swapped_bytes < 0.57 * saved


def test_small_storages_have_their_numbers_at_any_batch_size():
    """A storage too small to move is counted: those behind it have the names that they have in a larger batch."""

    class Two(nn.Module):
        def forward(self, x):
            return (x[:, :1] * 1).exp() + (x * 2).exp().sum(1, keepdim=True)

    net = nn.Sequential(nn.Linear(8, 8), Two())
    with swapper(net, min_bytes=512) as swap:
        profile = swap.profile(lambda n: net(torch.randn(n, 8)).sum().backward(), batches=(16, 256))
        names = {row.key: row.bytes_per_sample for row in profile.rows}
        assert names == {("0", 0): 32.0, ("1", 0): 4.0, ("1", 1): 32.0}
        swap.apply(everywhere(profile, SWAP))
        moved = []
        for n in (16, 256):
            with swap.step() as step:
                net(torch.randn(n, 8)).sum().backward()
            moved.append((step.n_unknown, step.n_saved))
        assert moved == [(0, 2), (0, 3)]


def test_a_slice_of_the_callers_rollout_is_not_counted():
    """A minibatch that is a view of more: the caller holds all of it, so its bytes are not this step's."""
    net, rollout = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)), torch.randn(1024, 64)
    peaks = []
    with swapper(net) as swap:
        for _ in range(3):
            with swap.step() as step:
                loss = net(rollout[:64]).square().sum()
                while swap._tier.relieve():
                    pass
                loss.backward()
            peaks.append(step.peak_bytes)
    assert swap._tape.others == {("0", 0): "something else holds it"}
    assert peaks[0] > rollout.nbytes
    assert peaks[-1] < rollout.nbytes


def test_what_lies_on_another_device_stays_there():
    """It is neither moved to the tier of the module's device, from which it would come back to that, nor counted."""
    with stepping() as step:
        step.meter.device = torch.device("meta")
        with step.open() as tape:
            for pack, unpack in ((tape.pack, tape.unpack), (tape.count, tape.unpack)):
                packed, x = [], torch.ones(64, requires_grad=True)
                with saved_tensors_hooks(lambda each, pack=pack, to=packed: to.append(pack(each)) or to[-1], unpack):
                    x.exp().sum().backward()
                assert [type(each) for each in packed] == [tuple]
        assert (step.meter.peak_bytes, step.n_places) == (0, 0)


def test_what_is_computed_on_a_stream_of_the_users_own_stays():
    """Copies wait for the stream on which the step began, and for no other; nothing is parted with on another one."""
    now = ["first"]
    with stepping() as step:
        step.meter.stream = lambda: now[0]
        with step.open() as tape:
            here = tape.pack(torch.ones(64))
            now[0] = "second"
            there = tape.pack(torch.ones(64))
            tape.part(with_all=True)
            assert (type(there), here.saved.ticket) == (tuple, None)
            now[0] = "first"
            tape.part(with_all=True)
            assert here.saved.ticket is not None
            del here
