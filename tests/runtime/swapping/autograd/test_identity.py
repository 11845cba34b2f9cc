"""What a storage holds at the backward pass is what counts, whoever wrote it and whether that was counted or not."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from drlnb.planning.swapping.profile import DERIVE, SQUEEZE
from drlnb.runtime.swapping.client.swapper import Swapper
from tests.runtime.swapping.autograd.compare import PLANNERS, SWAPPING, Net, assert_plain, once
from tests.runtime.swapping.nets import differing, state
from tests.runtime.swapping.rig import everywhere, stepping, swapper


def linear(n=16):
    return nn.Linear(16, n)


def sequence(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def looped(net, x):
    """Run a cell over time."""
    state = None
    for now in x.unbind(1):
        state = net.cell(now, state)
    return state[0] if isinstance(state, tuple) else state


def packed(net, x):
    lengths = torch.tensor([6, 5, 5, 4, 3, 2, 2, 1])
    return net.cell(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[0].data


CELLS = {
    "LSTMCell": (looped, lambda: nn.LSTMCell(16, 12), torch.float32),
    "GRUCell": (looped, lambda: nn.GRUCell(16, 12), torch.float32),
    "RNNCell": (looped, lambda: nn.RNNCell(16, 12), torch.float32),
    "GRU": (lambda net, x: net.cell(x)[0], lambda: nn.GRU(16, 12, 2, bidirectional=True), torch.float32),
    "LSTM": (lambda net, x: net.cell(x)[0], lambda: nn.LSTM(16, 12, 2, dropout=0.2), torch.float32),
    "LSTM-float64": (lambda net, x: net.cell(x)[0], lambda: nn.LSTM(16, 12), torch.float64),
    "LSTM-packed": (packed, lambda: nn.LSTM(16, 12, batch_first=True), torch.float32),
    "GRU-packed": (packed, lambda: nn.GRU(16, 12, batch_first=True), torch.float32),
}


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_cells(cell, planner):
    """Their gates are parts of one storage that is written in place; each part counts its writes for itself."""
    run, make, dtype = CELLS[cell]
    torch.manual_seed(0)
    assert assert_plain(Net(run, cell=make()).to(dtype), planner, sequence(8, 6, 16).to(dtype)) > 0


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("planner", PLANNERS)
def test_an_lstm_with_projections(planner):
    """The kernel is another one: it saves other parts."""
    torch.manual_seed(0)
    net = Net(lambda net, x: net.cell(x)[0], cell=nn.LSTM(16, 12, proj_size=5))
    assert assert_plain(net, planner, sequence(6, 8, 16)) > 0


@pytest.mark.slow
def test_the_lstm_cell_that_was_seen_to_be_wrong():
    """Sixteen steps of 512 sequences under 24 MiB, storages of the ordinary least size: .38 of the norm was off."""
    torch.manual_seed(0)
    net = Net(looped, cell=nn.LSTMCell(64, 128))
    x = sequence(512, 16, 64)
    plain = Net(looped, cell=nn.LSTMCell(64, 128))
    plain.load_state_dict(net.state_dict())
    once(plain, x)
    with Swapper(net, budget="24MiB") as swap:
        for _ in range(6):
            net.zero_grad()
            with swap.step() as step:
                once(net, x)
            assert differing(state(plain), state(net)) == []
    assert step.swapped_bytes > 0


def chunked(net, x):
    a, b = net.first(x).unsafe_chunk(2, 1)
    a.sigmoid_()
    b.tanh_()
    return a * b


def split(net, x):
    a, b, c, d = net.first(x).unsafe_split(8, 1)
    a.sigmoid_()
    b.tanh_()
    return a * b * c.relu_() * d


def clamped(net, x):
    h = net.first(x)
    a = h * h[:1]
    h.data.clamp_(-0.1, 0.1)
    return a + h.exp() * h


def zeroed(net, x):
    h = net.first(x)
    y = (h * h).square()
    h.data.zero_()
    return y


def filled(net, x):
    h = net.first(x)
    y = h * h
    h.untyped_storage().fill_(1)
    return y


def filled_late(net, x):
    h = net.first(x)
    storage = h.untyped_storage()
    y = h * h
    del h
    y = y.exp()
    storage.fill_(1)
    return y


def by_numpy(net, x):
    h = net.first(x)
    y = h * h
    h.detach().numpy()[:] = 3
    return y


def aliased(net, x):
    h = net.first(x)
    alias = torch.empty(0).set_(h.detach().untyped_storage(), 0, h.shape, h.stride())
    y = (h * h).exp()
    alias.mul_(0.5)
    return y


def by_dlpack(net, x):
    shared = torch.ones(8, 32)
    alias = torch.from_dlpack(shared)
    y = net.first(x) * shared
    del shared
    y = y.exp()
    alias.mul_(2)
    return y


def two_of_an_array(net, x):
    array = np.ones((8, 32), np.float32)
    first, second = torch.from_numpy(array), torch.from_numpy(array)
    y = net.first(x) * first
    del first
    y = y.exp()
    second.mul_(2)
    array[0] = 7
    return y


def two_of_a_buffer(net, x):
    memory = bytearray(8 * 32 * 4)
    first, second = (torch.frombuffer(memory, dtype=torch.float32).view(8, 32) for _ in range(2))
    y = net.first(x) * first
    del first
    y = y.exp()
    second.fill_(3)
    return y


def shared_memory(net, x):
    shared = torch.ones(8, 32).share_memory_()
    other = torch.UntypedStorage._new_shared_fd_cpu(*shared.untyped_storage()._share_fd_cpu_())  # as other processes
    y = net.first(x) * shared
    del shared
    y = y.exp()
    other.fill_(0)
    return y


def normalised(net, x):
    h = net.norm(net.first(x))
    h.data.mul_(2.0)
    return net.second(net.relu(h))


def pooled(net, x):
    h = net.relu(net.first(x))
    h.data.sub_(0.05)
    return functional.max_pool1d(h.unsqueeze(0), 2).squeeze(0)


UNCOUNTED = [
    chunked, split, clamped, zeroed, filled, filled_late, by_numpy, aliased, by_dlpack, two_of_an_array,
    two_of_a_buffer, shared_memory, normalised, pooled,
]  # fmt: skip


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("function", UNCOUNTED)
def test_writes_that_the_counter_of_a_saved_tensor_does_not_count(function, planner):
    """Plain PyTorch saves an alias and reads what was written; so does a step that swaps, squeezes or derives."""
    torch.manual_seed(0)
    layers = {"first": linear(32), "norm": nn.LayerNorm(32), "relu": nn.ReLU(), "second": nn.Linear(32, 8)}
    assert assert_plain(Net(function, **layers), planner, sequence(8, 16)) > 0


@pytest.mark.parametrize("action", [SQUEEZE, DERIVE])
def test_a_write_that_comes_late_in_training_is_seen(action):
    """A plan squeezes or derives what a module returns; then the model writes that past its counter, in one step."""
    torch.manual_seed(0)
    late = []

    def function(net, x):
        h = net.layer(net.first(x))
        if late:
            h.data.sub_(0.5)
        return net.second(h).tanh() if action == DERIVE else functional.max_pool1d(h.unsqueeze(0), 2)

    net = Net(function, first=linear(), layer=nn.LayerNorm(16) if action == DERIVE else nn.ReLU(), second=linear())
    plain, x = copy.deepcopy(net), sequence(8, 16)
    with swapper(net) as swap:
        plan = everywhere(swap.profile(lambda n: once(net, x), batches=(8,)), action)
        assert action in plan.actions
        swap.apply(plan)
        for late[:] in ([], [True], []):
            for each in (plain, net):
                each.zero_grad()
            once(plain, x)
            with swap.step() as step:
                once(net, x)
            assert differing(state(plain), state(net)) == []
            assert action == SQUEEZE or step.n_fetched == (not late)


def in_a_view(net, x):
    h = net.first(x)
    h.view(4, -1).relu_()
    return net.second(h) * h[:, :8]


def in_parts(net, x):
    a, b = net.first(x).chunk(2, 1)
    c, d = (a * b).split(8, 1)
    return (c * d).unbind(1)[0] * c.narrow(1, 0, 1).squeeze(1)


def strided(net, x):
    v = net.first(x).as_strided((8, 8), (32, 2))
    return v.exp() * v * v.expand(2, 8, 8)[0]


def into(net, x):
    h, out = net.first(x), torch.empty(8, 32)
    torch.mul(h.detach(), 2, out=out)
    return h * out


def indexed(net, x):
    h = net.first(x) * 1
    h.index_put_((torch.tensor([0, 2]),), net.first(x)[:2])
    h = h * 3
    h.masked_fill_(h > 0, 0.0)
    h = h * 2
    h[1:3] = net.first(x)[1:3]
    return h * h


def between(net, x):
    a = net.first(x).clone()
    y = a[:4].exp()
    a[4:].mul_(2)
    return torch.cat([y, a[4:] * 3]) * a


def detached(net, x):
    h = net.first(x)
    h.detach().mul_(2)
    return h.exp() * h


def with_offsets(net, x):
    part = torch.arange(2000.0).view(20, 100)[3:11, 5:69:2] / 2000
    return (net.first(x) * part).t().exp() @ part


def empty(net, x):
    h = net.first(x)
    return torch.cat([h[:0].exp() * h[:0], h * h])


def complex_numbers(net, x):
    h = torch.view_as_complex(net.first(x).view(8, 16, 2))
    f = torch.fft.fft(h) * h.conj()
    return f.imag * h.conj().imag + (f * f.conj()).real


def dense(net, x):
    kept = [net.first(x)]
    for _ in range(3):
        kept.append(net.third(torch.relu(kept[-1])))
    return torch.cat(kept, 1) * torch.cat(kept[::-1], 1)


def attention(net, x):
    q, k, v = net.qkv(x).view(2, 4, 3, 2, 8).permute(2, 0, 3, 1, 4)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def tied(net, x):
    return functional.linear(torch.tanh(net.words(x.abs().long().clamp(max=9))), net.words.weight)


def dropped(net, x):
    return net.second(net.dropout(net.first(x)))


class Doubled(torch.autograd.Function):
    """Writes its input, and saves input, another input and what lies between."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        between = x * y
        x.mul_(2)
        ctx.save_for_backward(x, y, between)
        return x, between

    @staticmethod
    def backward(ctx, of_x, of_between):
        x, y, between = ctx.saved_tensors
        return of_x * 2 + of_between * y + between, of_between * x / 2 + between


class Writing(torch.autograd.Function):
    """Writes what it saved, past the counter, in its backward pass."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        x.data.mul_(2)
        return gradient * x


def own_functions(net, x):
    doubled, between = Doubled.apply(net.first(x) * 1, net.first(x).exp())
    h = doubled * between
    return Writing.apply(h) + h * h


COUNTED = [
    in_a_view, in_parts, strided, into, indexed, between, detached, with_offsets, empty, complex_numbers, dense,
    own_functions, dropped,
]  # fmt: skip


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("function", COUNTED)
def test_views_and_writes_in_place(function, planner):
    """However tensors share a storage, they come back as they are at the backward pass."""
    torch.manual_seed(0)
    layers = {"first": linear(32), "second": nn.Linear(32, 8), "third": nn.Linear(32, 32)}
    net = Net(function, **layers, dropout=nn.Dropout(0.5, inplace=True))
    assert assert_plain(net, planner, sequence(8, 16)) > 0


@pytest.mark.parametrize("planner", ["all", *SWAPPING])
@pytest.mark.parametrize(
    ("function", "layers"),
    [
        pytest.param(attention, {"qkv": partial(nn.Linear, 16, 48)}, id="sdpa"),
        pytest.param(tied, {"words": partial(nn.Embedding, 10, 16)}, id="tied"),
        pytest.param(
            lambda net, x: net.heads(x, x, x)[0], {"heads": partial(nn.MultiheadAttention, 16, 4, 0.1)}, id="heads"
        ),
        pytest.param(
            lambda net, x: net.layer(x), {"layer": partial(nn.TransformerEncoderLayer, 16, 2, 32)}, id="encoder"
        ),
    ],
)
def test_attention_and_tied_weights(function, layers, planner):
    """Queries, keys and values are views of one storage."""
    torch.manual_seed(0)
    assert (
        assert_plain(Net(function, **{name: make() for name, make in layers.items()}), planner, sequence(2, 4, 16)) > 0
    )


def twice(net, x):
    loss = net(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def differentiated(net, x):
    x = x.clone().requires_grad_()
    out = net(x).square().sum()
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    (gradient.square().sum() + out).backward()


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("step", [twice, differentiated])
def test_a_cell_whose_graph_is_used_again(step, planner):
    """Retained, or differentiated twice."""
    torch.manual_seed(0)
    assert assert_plain(Net(looped, cell=nn.LSTMCell(16, 12)), planner, sequence(8, 6, 16), step) > 0


def test_what_comes_back_and_is_saved_once_more_goes_on_to_be_the_same_storage():
    """A second derivative saves what came back from the tier: it is there already, and moves no second time."""
    x, keys = torch.linspace(1, 2, 64, requires_grad=True), []
    with stepping() as step, step.open() as tape:
        loss = (x * 1).pow(3).sum()
        step.away()

        def pack(tensor):
            handle = tape.pack(tensor)
            if torch.equal(tensor, x):
                keys.append(handle.saved.key)
            return handle

        with saved_tensors_hooks(pack, tape.unpack):
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        step.away()
        gradient.sum().backward()
    assert set(keys) == {("", 0)}
    assert torch.allclose(x.grad, 6 * x)
