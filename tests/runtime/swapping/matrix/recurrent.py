"""Steps of recurrent networks, and of checkpoints and hooks within modules."""

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.runtime.swapping.matrix.steps import Made, Residual, mlp, ordinary, sgd, training


class Recurrent(nn.Module):
    """A recurrent layer, and a linear one on all that it gives."""

    def __init__(self, layer: nn.RNNBase, width: int, **kinds) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)
        self.to(**kinds)

    def forward(self, x):
        out = self.layer(x)[0]
        return self.head(out.data if isinstance(out, rnn.PackedSequence) else out)


class Unrolled(nn.Module):
    """A cell that is called for each time of a sequence."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(8, 3)

    def forward(self, x, state=None):
        outs = []
        for each in x:
            state = self.cell(each, state)
            outs.append(self.head(state[0] if isinstance(state, tuple) else state))
        return torch.stack(outs)


def _on_sequences(net, dtype=torch.float32):
    x = torch.randn(5, 4, 6, dtype=dtype)
    return training(net, lambda i: net(x + i))


@ordinary
def lstm():
    return _on_sequences(Recurrent(nn.LSTM(6, 8, 2, dropout=0.1), 8))


@ordinary
def lstm_projected():
    return _on_sequences(Recurrent(nn.LSTM(6, 8, proj_size=4), 4))


@ordinary
def gru_both_ways():
    return _on_sequences(Recurrent(nn.GRU(6, 8, bidirectional=True), 16))


@ordinary
def gru_float64():
    return _on_sequences(Recurrent(nn.GRU(6, 8), 8, dtype=torch.float64), torch.float64)


@ordinary
def rnn_relu():
    return _on_sequences(Recurrent(nn.RNN(6, 8, nonlinearity="relu"), 8))


@ordinary
def lstm_packed():
    net, x = Recurrent(nn.LSTM(6, 8), 8), torch.randn(5, 4, 6)
    return training(
        net, lambda i: net(rnn.pack_padded_sequence(x + i, torch.tensor([5, 4, 2, 2 - i % 2], device="cpu")))
    )


@ordinary
def lstm_cell():
    return _on_sequences(Unrolled(nn.LSTMCell(6, 8)))


@ordinary
def gru_cell():
    return _on_sequences(Unrolled(nn.GRUCell(6, 8)))


@ordinary
def truncated_in_time():
    """Carry the state on from step to step, without its graph."""
    net = Unrolled(nn.GRUCell(6, 8))
    x, state, optimiser = torch.randn(4, 4, 6), [torch.zeros(4, 8)], sgd(net)

    def step(i):
        optimiser.zero_grad()
        hidden, losses = state[0].detach(), []
        for part in x:
            hidden = net.cell(part, hidden)
            losses.append(net.head(hidden).square().mean())
        state[0] = hidden
        torch.stack(losses).mean().backward()
        optimiser.step()
        return [*losses, hidden]

    return Made(net, step)


@ordinary
def changing_lengths():
    net = Recurrent(nn.LSTM(6, 8), 8)
    x = torch.randn(9, 4, 6)
    return training(net, lambda i: net(x[: 3 + 2 * (i % 4)]))


@ordinary
def changing_batches():
    net = mlp(6, 16, 16, 3, between=nn.GELU)
    x = torch.randn(12, 6)
    return training(net, lambda i: net(x[: (12, 12, 5, 12, 1)[i % 5]]))


class Checkpointed(nn.Module):
    """Parts whose forward pass the network itself has made again."""

    def __init__(self, part, reentrant=False, nested=False, dropout=0.0) -> None:
        super().__init__()
        self.parts, self.head = nn.ModuleList([part() for _ in range(3)]), nn.Linear(8, 3)
        self.dropout = nn.Dropout(dropout)
        self.reentrant, self.nested = reentrant, nested

    def _run(self, part, x):
        return checkpoint(lambda y: self.dropout(part(y)), x, use_reentrant=self.reentrant)

    def forward(self, x):
        def inner(y):
            for part in self.parts:
                y = self._run(part, y)
            return y

        return self.head(checkpoint(inner, x, use_reentrant=self.reentrant) if self.nested else inner(x))


def _checkpointed(**more):
    net, x = Checkpointed(Residual, **more), torch.randn(4, 8, requires_grad=True)
    return training(net, lambda i: net(x * (1 + i)))


@ordinary
def checkpoints():
    return _checkpointed()


@ordinary
def checkpoints_that_draw():
    return _checkpointed(dropout=0.2)


@ordinary
def checkpoints_nested():
    return _checkpointed(nested=True)


@ordinary
def checkpoints_reentrant():
    return _checkpointed(reentrant=True)


@ordinary
def checkpoints_reentrant_nested():
    return _checkpointed(reentrant=True, nested=True, dropout=0.2)


@ordinary
def checkpoints_in_sequence():
    net, x = nn.Sequential(*[Residual() for _ in range(4)]), torch.randn(4, 8)
    return training(net, lambda i: checkpoint_sequential(net, 2, x + i, use_reentrant=False))


class Hooked(nn.Module):
    """A part whose saved tensors go through hooks of the network's own."""

    def __init__(self, context) -> None:
        super().__init__()
        self.one, self.other, self.context = Residual(), Residual(), context

    def forward(self, x):
        with self.context():
            y = self.one(x)
        return self.other(y)


@ordinary
def saved_on_the_cpu_within():
    net, x = Hooked(save_on_cpu), torch.randn(4, 8)
    return training(net, lambda i: net(x + i))


@ordinary
def hooks_within():
    net, x = Hooked(lambda: saved_tensors_hooks(lambda t: t.detach().double(), lambda t: t.float())), torch.randn(4, 8)
    return training(net, lambda i: net(x + i))


@ordinary
def hooks_around_the_step():
    """Have hooks of the caller's own, whose copies are no longer the network's."""
    net, x = nn.Sequential(Residual(), Residual()), torch.randn(4, 8)

    def forward(i):
        with saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
            return net(x + i)

    return training(net, forward)
