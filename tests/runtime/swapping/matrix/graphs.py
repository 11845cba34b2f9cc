"""Steps that use graphs, optimisers and threads in other ways than forward, backward, update."""

import threading
from contextlib import suppress

import torch
from torch import nn
from torch.nn import functional

from tests.runtime.swapping.matrix.steps import Made, Residual, mlp, ordinary, sgd, training


def _net():
    return nn.Sequential(Residual(), Residual(), nn.Linear(8, 3))


@ordinary
def accumulation():
    net, x = _net(), torch.randn(8, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        losses = [net(part + i).square().mean() / 4 for part in x.split(2)]
        for loss in losses:
            loss.backward()
        optimiser.step()
        return losses

    return Made(net, step)


@ordinary
def losses_of_one_graph():
    net, x = _net(), torch.randn(4, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        hidden = net[0](x + i)
        first, second = net[1:](hidden).square().mean(), hidden.abs().mean()
        first.backward(retain_graph=True)
        second.backward(retain_graph=True)
        (0.1 * hidden.exp().mean()).backward()
        optimiser.step()
        return first, second

    return Made(net, step)


@ordinary
def gradient_penalty():
    net, x = mlp(8, 16, 16, 1), torch.randn(4, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        at = (x + i).requires_grad_()
        value = net(at).sum()
        (slope,) = torch.autograd.grad(value, at, create_graph=True)
        loss = value.square() + (slope.norm(dim=1) - 1).square().mean()
        loss.backward()
        optimiser.step()
        return loss, slope

    return Made(net, step)


@ordinary
def steps_within_a_step():
    """Differentiate the gradients of an inner step, whose parameters have a graph (MAML)."""
    net, x = mlp(8, 16, 3), torch.randn(4, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        fast = dict(net.named_parameters())
        inner = torch.func.functional_call(net, fast, (x + i,)).square().mean()
        grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
        fast = {name: each - 0.1 * grad for (name, each), grad in zip(fast.items(), grads, strict=True)}
        outer = torch.func.functional_call(net, fast, (x - i,)).square().mean()
        outer.backward()
        optimiser.step()
        return inner, outer

    return Made(net, step)


@ordinary
def functional_parameters():
    """Those of the step are others than the module's own, which it has again in the backward pass."""
    net, x = _net(), torch.randn(4, 8)
    scales = {name: torch.full_like(each, 1.5) for name, each in net.named_parameters()}

    def forward(i):
        other = {name: each * scales[name] for name, each in net.named_parameters()}
        return torch.func.functional_call(net, other, (x + i,))

    return training(net, forward)


@ordinary
def closures():
    net, x = _net(), torch.randn(4, 8)
    optimiser = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)

    def step(i):
        def closure():
            optimiser.zero_grad()
            loss = net(x + i).square().mean()
            loss.backward()
            return loss

        return optimiser.step(closure)

    return Made(net, step)


@ordinary
def optimisers_in_hooks():
    """Each parameter is updated, and its gradient dropped, as soon as it is there."""
    net, x = _net(), torch.randn(4, 8)
    of = {each: torch.optim.SGD([each], 0.05, momentum=0.9) for each in net.parameters()}

    def update(parameter):
        of[parameter].step()
        of[parameter].zero_grad()

    for each in of:
        each.register_post_accumulate_grad_hook(update)

    def step(i):
        loss = net(x + i).square().mean()
        loss.backward()
        return loss

    return Made(net, step)


@ordinary
def hooks_of_gradients():
    net, x = _net(), torch.randn(4, 8)
    net[0].register_full_backward_hook(lambda module, given, got: (given[0] * 0.5, *given[1:]))
    net[1].register_forward_hook(lambda module, args, out: out * 1.5)
    net[1].one.weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))

    def forward(i):
        out = net((x + i).requires_grad_())
        out.register_hook(lambda grad: grad * 2)
        return out

    return training(net, forward)


class Fails(RuntimeError):
    """What a test raises within a step."""


def fail(*_):
    raise Fails


@ordinary
def errors_forward():
    net, x = _net(), torch.randn(4, 8)

    def forward(i):
        if i % 2:
            hook = net[2].register_forward_pre_hook(fail)
            with suppress(Fails):
                net(x - i)
            hook.remove()
        return net(x + i)

    return training(net, forward)


@ordinary
def errors_backward():
    net, x = _net(), torch.randn(4, 8)

    def forward(i):
        if i % 2:
            hidden = net[0](x - i)
            hidden.register_hook(fail)
            with suppress(Fails):
                net[1:](hidden).sum().backward()
            net.zero_grad()
        return net(x + i)

    return training(net, forward)


def refused(loss):
    """Run a backward pass, and return whether that needs what has been modified."""
    try:
        loss.backward()
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return True
    return False


@ordinary
def edited_in_place():
    """Refuse what plain PyTorch refuses, and go on with what it allows."""
    net, x = _net(), torch.randn(4, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        hidden = net[0](x + i)
        value = net[1:](hidden)
        if i % 2:
            with torch.no_grad():
                hidden.mul_(2)
        if refused(value.square().mean()):
            net.zero_grad()
            return [value, 1.0]
        optimiser.step()
        return [value, 0.0]

    return Made(net, step)


@ordinary
def edited_data():
    """Write what no counter counts, between two operations that save the same storage."""
    net, other, x = nn.Linear(8, 8), nn.Linear(8, 3), torch.randn(4, 8)
    net = nn.ModuleList([net, other])

    def forward(i):
        hidden = net[0](x + i)
        wave = hidden.sin()
        hidden.data.clamp_(-0.5, 0.5)
        return other(wave * hidden)

    return training(net, forward)


@ordinary
def edited_parameters():
    """Between forward and backward pass: a bias is not needed any more, a weight is."""
    net, x = _net(), torch.randn(4, 8)
    optimiser = sgd(net)

    def step(i):
        optimiser.zero_grad()
        value = net(x + i)
        with torch.no_grad():
            (net[0].other.weight if i % 2 else net[0].other.bias).mul_(0.9)
        if refused(value.square().mean()):
            net.zero_grad()
            return [value, 1.0]
        optimiser.step()
        return [value, 0.0]

    return Made(net, step)


@ordinary
def another_thread():
    """Run the backward pass, and every second forward pass, in a thread of their own."""
    net, x = _net(), torch.randn(4, 8)
    optimiser = sgd(net)

    def elsewhere(call):
        results = []
        thread = threading.Thread(target=lambda: results.append(call()))
        thread.start()
        thread.join()
        return results[0]

    def step(i):
        optimiser.zero_grad()
        loss = elsewhere(lambda: net(x + i).square().mean()) if i % 2 else net(x + i).square().mean()
        elsewhere(loss.backward)
        optimiser.step()
        return loss

    return Made(net, step)


@ordinary
def clipped_and_averaged():
    net, x = _net(), torch.randn(4, 8)
    mean, optimiser = torch.optim.swa_utils.AveragedModel(net), sgd(net)

    def step(i):
        optimiser.zero_grad()
        loss = net(x + i).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimiser.step()
        mean.update_parameters(net)
        return [loss, norm, *mean.parameters()]

    return Made(net, step)


@ordinary
def proximal_policy():
    """Values without a graph first, then two forward passes for each backward pass."""
    net = nn.ModuleDict({"body": Residual(), "policy": nn.Linear(8, 4), "value": nn.Linear(8, 1)})
    x, optimiser = torch.randn(8, 8), torch.optim.Adam(net.parameters(), eps=1e-5)

    def run(x):
        hidden = net["body"](x)
        return functional.log_softmax(net["policy"](hidden), 1), net["value"](hidden)

    def step(i):
        with torch.no_grad():
            old, value = run(x + i)
        losses = []
        for part in (slice(0, 4), slice(4, 8)):
            new, values = run(x[part] + i)
            ahead = run(x[part] + i + 1)[1].detach()
            ratio = (new - old[part]).exp()
            loss = -torch.min(ratio, ratio.clamp(0.9, 1.1)).mean() + (values - ahead).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss)
        return [value, *losses]

    return Made(net, step)


@ordinary
def two_networks_of_which_one_is_swapped():
    """Train an adversarial pair: the other's graph goes through the swapped one."""
    net, maker = _net(), mlp(4, 16, 8)
    noise, mine, other = torch.randn(6, 4), sgd(net), sgd(maker)

    def step(i):
        made = maker(noise + i)
        mine.zero_grad()
        first = net(made.detach()).square().mean()
        first.backward()
        mine.step()
        other.zero_grad()
        second = net(made).mean()
        second.backward()
        other.step()
        return [first, second, *[each.grad for each in maker.parameters()]]

    return Made(net, step)


@ordinary
def transforms():
    """Gradients of samples, and second derivatives, by torch.func."""
    net, x = mlp(6, 8, 2), torch.randn(3, 6)

    def forward(i):
        own = dict(net.named_parameters())

        def loss(parameters, sample):
            return torch.func.functional_call(net, parameters, (sample,)).square().sum()

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(own, x + i)
        slopes = torch.func.jacrev(net)(x[0])
        return torch.cat([net(x + i).flatten(), slopes.flatten(), *[grad.flatten() for grad in each.values()]])

    return training(net, forward)


@ordinary
def forward_mode():
    net, x = mlp(6, 8, 2), torch.randn(3, 6)

    def forward(i):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x + i, torch.ones_like(x))
            value, tangent = torch.autograd.forward_ad.unpack_dual(net(dual))
            return torch.cat([value, tangent])

    return training(net, forward)


@ordinary
def graphs_that_live_on():
    """Run a graph of one step in the next, after that step's own."""
    net, x, kept = _net(), torch.randn(4, 8), []

    def step(i):
        net.zero_grad()
        loss = net(x + i).square().mean()
        loss.backward(retain_graph=True)
        if kept:
            kept.pop().backward()
        kept.append(loss)
        return loss

    return Made(net, step)
