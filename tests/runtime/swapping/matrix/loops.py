"""Steps as training loops out there make them, between and around forward and backward pass."""

import io
from contextlib import suppress

import torch
from torch import nn
from torch.nn import functional

from drlnb import swap
from tests.runtime.swapping.matrix.steps import Made, Residual, mlp, ordinary, sgd, training


def _net():
    return nn.Sequential(Residual(), Residual(), nn.Linear(8, 3))


class PreActivated(nn.Module):
    """Saves no input, so that its caller may write that."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.other(torch.relu(self.one(torch.relu(x))))


class Added(nn.Module):
    """Adds what blocks return in place."""

    def __init__(self):
        super().__init__()
        self.first, self.blocks = nn.Linear(8, 8), nn.ModuleList([PreActivated() for _ in range(3)])

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h += block(h)
        return h


@ordinary
def residuals_in_place():
    net, x = Added(), torch.randn(4, 8)
    return training(net, lambda i: net(x + i))


class Binarised(nn.Linear):
    """Rounds its input and its weight by their data, as networks of one bit do."""

    def forward(self, x):
        x.data = x.data.sign()
        real = self.weight.data
        self.weight.data = real.sign()
        y = super().forward(x)
        self.weight.data = real
        return y


@ordinary
def straight_through():
    net = nn.Sequential(nn.Linear(8, 8), nn.Hardtanh(), Binarised(8, 8), nn.Tanh(), Binarised(8, 3))
    x = torch.randn(4, 8)
    return training(net, lambda i: net(x + i))


@ordinary
def sharpness_aware():
    """Take the gradient a step uphill, and go back (SAM)."""
    net, x = _net(), torch.randn(4, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        net(x + i).square().mean().backward()
        moves = [0.05 * each.grad for each in net.parameters()]
        with torch.no_grad():
            torch._foreach_add_([*net.parameters()], moves)
        optimiser.zero_grad()
        loss = net(x + i).square().mean()
        loss.backward()
        with torch.no_grad():
            torch._foreach_sub_([*net.parameters()], moves)
        optimiser.step()
        return loss

    return Made(net, step)


@ordinary
def mixed_up_in_place():
    net, x, labels = _net(), torch.randn(6, 8), torch.randint(0, 3, (6,))
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        batch, share = (x + i).clone(), float(torch.rand(()))
        order = torch.randperm(6)
        batch.mul_(share).add_(batch[order], alpha=1 - share)
        scores = net(batch)
        loss = share * functional.cross_entropy(scores, labels)
        loss = loss + (1 - share) * functional.cross_entropy(scores, labels[order])
        loss.backward()
        optimiser.step()
        return loss

    return Made(net, step)


@ordinary
def put_into_an_input():
    net, x, places = _net(), torch.randn(6, 8), (torch.tensor([0, 3]),)

    def forward(i):
        h = net[0](x + i)
        h = h.index_put(places, h[1:3]).index_put_(places, h[4:6], accumulate=True)
        return net[1:](h)

    return training(net, forward)


@ordinary
def padded_sequences():
    """Mask what is padded: where the encoder evaluates it makes nested tensors of that."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    net, x = nn.TransformerEncoder(layer, 2), torch.randn(3, 5, 8)
    padding = torch.arange(5) >= torch.tensor([[5], [3], [2]])
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        loss = net(x + i, src_key_padding_mask=padding)[~padding].square().mean()
        loss.backward()
        optimiser.step()
        net.eval()
        with torch.inference_mode():
            value = net(x, src_key_padding_mask=padding)
        net.train()
        return [loss, value.clone()]

    return Made(net, step)


@ordinary
def scaled_losses():
    """Bfloat16 with a scale that is halved and doubled, as a gradient scaler does."""
    net, x, scale = _net(), torch.randn(4, 8), [1024.0]
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            loss = net(x + i).float().square().mean()
        (loss * scale[0]).backward()
        for each in net.parameters():
            each.grad.div_(scale[0])
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
        optimiser.step()
        scale[0] *= 0.5 if i % 3 == 2 else 2.0
        return loss

    return Made(net, step)


@ordinary
def parallel_without_devices():
    inner, x = _net(), torch.randn(4, 8)
    net = nn.DataParallel(inner)
    return training(net, lambda i: net(x + i))


@ordinary
def groups_that_come_later():
    net, x = _net(), torch.randn(4, 8)
    net[0].requires_grad_(False)
    optimiser = torch.optim.AdamW([*net[1].parameters(), *net[2].parameters()], 0.01)

    def step(i):
        if i == 3:
            optimiser.add_param_group({"params": [*net[0].requires_grad_().parameters()], "lr": 0.001})
        optimiser.zero_grad()
        loss = net(x + i).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    return Made(net, step)


@ordinary
def another_swapper():
    """Give a part a swapper of its own, around its forward pass."""
    net, x = _net(), torch.randn(4, 8)
    optimiser, head = sgd(net), swap.Swapper(net[1], planner="all", min_bytes=0)

    def step(i):
        optimiser.zero_grad()
        hidden = net[0](x + i)
        with head.step():
            hidden = net[1](hidden)
        loss = net[2](hidden).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    return Made(net, step)


def _interrupt(_):
    raise KeyboardInterrupt


@ordinary
def interrupted():
    net, x = _net(), torch.randn(4, 8)

    def forward(i):
        if i % 3 == 1:
            hidden = net[0](x - i)
            hidden.register_hook(_interrupt)
            with suppress(KeyboardInterrupt):
                net[1:](hidden).sum().backward()
            net.zero_grad()
        return net(x + i)

    return training(net, forward)


@ordinary
def saved_between_steps():
    """Save and load the parameters, evaluate, and print gradients by backward hooks of modules."""
    net, x, seen = _net(), torch.randn(4, 8), []
    for block in net:
        block.register_full_backward_pre_hook(lambda module, got: seen.append(float(got[0].abs().sum())))
        block.register_full_backward_hook(lambda module, given, got: seen.append(float(got[0].norm())))
    optimiser = sgd(net)

    def step(i):
        seen.clear()
        file = io.BytesIO()
        torch.save({"net": net.state_dict(), "optimiser": optimiser.state_dict()}, file)
        file.seek(0)
        former = torch.load(file)
        net.load_state_dict(former["net"])
        optimiser.load_state_dict(former["optimiser"])
        with torch.no_grad():
            before = net(x)
        optimiser.zero_grad()
        loss = net((x + i).requires_grad_()).square().mean()
        loss.backward()
        optimiser.step()
        return [loss, before, seen]

    return Made(net, step)


@ordinary
def parameters_by_vector():
    """Set all parameters from one vector between two losses of one graph, as natural gradients do."""
    net, x = mlp(8, 16, 3), torch.randn(4, 8)

    def step(i):
        net.zero_grad()
        value = net(x + i)
        value.square().mean().backward(retain_graph=True)
        vector = nn.utils.parameters_to_vector(net.parameters()).detach()
        nn.utils.vector_to_parameters(vector * 0.99, net.parameters())
        value.abs().mean().backward()
        return value

    return Made(net, step)
