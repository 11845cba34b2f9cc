"""C1 and C2: gradients, statistics and random numbers are plain's, bit by bit, for every action, tier and net."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

from drlnb.planning.swapping.profile import ACTIONS, BLOCK, DERIVE, KEEP, SQUEEZE, SWAP
from drlnb.runtime.swapping.blocks.state import fingerprints
from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.memory import fixed_bytes
from tests.runtime.swapping.nets import NETS, differing, images, made, plain_step, state
from tests.runtime.swapping.rig import TIERS, everywhere, profiled, swapper

#: Rows of each net that an action must really take, so that no case is empty.
LEAST = {
    ("residual", SQUEEZE): 5, ("residual", DERIVE): 3, ("residual", SWAP): 20, ("residual", BLOCK): 10,
    ("mlp", DERIVE): 2, ("mlp", SWAP): 9, ("transformer", DERIVE): 3, ("transformer", SWAP): 30,
    ("transformer", BLOCK): 20,
}  # fmt: skip
KINDS = {
    "plain": ({}, False),
    "channels_last": ({"memory_format": torch.channels_last}, False),
    "autocast": ({}, True),
    "float64": ({"dtype": torch.float64}, False),
}
WHOLE = [
    case for case in itertools.product(NETS, ACTIONS, TIERS, KINDS)
    if not (case[3] == "channels_last" and case[0] != "residual")
]  # fmt: skip


def pairwise(cases):
    """Return cases in which each pair of values of two parameters occurs."""
    seen, chosen = set(), []
    for case in cases:
        pairs = set(itertools.combinations(enumerate(case), 2))
        if not pairs <= seen:
            seen |= pairs
            chosen.append(case)
    return chosen


def compare(name, action, tier, kind, n_steps=2):
    """Train two equal nets, one under a plan of the one action, and compare them."""
    kinds, autocast = KINDS[kind]
    plain, net, x = made(name, **kinds), made(name, **kinds), images(**kinds)
    with swapper(net, tier=tier) as swap:
        plan = everywhere(profiled(swap, net, x, autocast), action)
        assert plan.actions.count(action) >= LEAST.get((name, action), 0)
        swap.apply(plan)
        for i in range(n_steps):
            for each, around in ((plain, None), (net, swap)):
                each.zero_grad()
                torch.manual_seed(i)
                if around is None:
                    plain_step(each, x, autocast)
                else:
                    with around.step() as step:
                        plain_step(each, x, autocast)
            assert differing(state(plain), state(net)) == []
        assert step.n_unknown == 0
        assert swap._meter.n_bytes == 0


def test_what_a_block_is_called_with_is_known_to_its_plan():
    """The output of one block is the input of the next: what nobody but the two has, is no new storage."""
    torch.manual_seed(0)
    net, x = nn.Sequential(mlp(), mlp()), torch.randn(4, 8)
    with swapper(net) as swap:
        profile = swap.profile(lambda n: net(x).sum().backward(), batches=(4,))
        plan = everywhere(profile, BLOCK)
        assert plan.blocks == ("0", "1")
        swap.apply(plan)
        with swap.step() as step:
            net(x).sum().backward()
    assert (step.n_unknown, step.plan_key) == (0, plan.key)


def test_casts_of_parameters_are_let_go_of_with_the_step_that_made_them():
    """A block that is made again saves what autocast keeps until it ends: as long as that, and no longer."""
    torch.manual_seed(0)
    net, x = nn.Sequential(mlp(), mlp()), torch.randn(4, 8)

    def training_step():
        with torch.autocast("cpu", torch.bfloat16):
            net(x).float().sum().backward()

    with swapper(net) as swap:
        swap.apply(everywhere(swap.profile(lambda n: training_step(), batches=(4,)), BLOCK))
        for _ in range(2):
            with swap.step():
                training_step()
            assert swap._meter.n_bytes == 0


def mlp():
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))


def test_a_fingerprint_tells_every_byte_and_its_place():
    """Of data of any length: whatever byte is changed, or changes places with another one, the sums are others."""
    data = torch.arange(3 * 4096 + 5).to(torch.uint8)
    for n_bytes in (1, 5, 4096, 4097, len(data)):
        whole = data[:n_bytes]
        sums = fingerprints(whole)
        assert sums.shape == (-(-n_bytes // 4096), 2)
        assert torch.equal(sums, fingerprints(torch.cat([data[:1], whole])[1:])), "wherever it lies"
        for i in {0, n_bytes // 2, n_bytes - 1}:
            for bit in range(8):
                other = whole.clone()
                other[i] ^= 1 << bit
                assert (fingerprints(other) != sums).sum() == 2, "both sums of one row"
    rows = data[: 2 * 4096].view(2, 4096)
    rows[1, 0] = 7
    assert not torch.equal(fingerprints(rows.flatten()), fingerprints(rows.flip(0).flatten()))


@pytest.mark.thorough
@pytest.mark.parametrize("case", pairwise(WHOLE), ids="-".join)
def test_c1_an_action_changes_no_bit(case):
    """Each pair of net, action, tier and kind occurs once here; all of them in the slow tier."""
    compare(*case)


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE, ids="-".join)
def test_c1_an_action_changes_no_bit_in_any_case(case):
    """The whole matrix."""
    compare(*case, n_steps=3)


class Steps:
    """Steps that use a graph in other ways than once, forward and back."""

    @staticmethod
    def retained(net, x):
        loss = net(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()

    @staticmethod
    def second_order(net, x):
        out = net(x.clone().requires_grad_()).exp().sum()
        grads = torch.autograd.grad(out, list(net.parameters()), create_graph=True)
        sum(each.square().sum() for each in grads).backward()

    @staticmethod
    def two_forwards(net, x):
        (net(x).square().mean() + net(x.flip(0)).square().mean()).backward()

    @staticmethod
    def accumulated(net, x):
        for part in x.chunk(2):
            net(part).square().mean().backward()

    @staticmethod
    def discarded(net, x):
        net(x).square().mean()
        net(x).square().mean().backward()

    @staticmethod
    def caught(net, x):
        try:
            net(x[:, :, 8:])  # the wrong size for the last layer: an error late in the forward pass
        except RuntimeError:
            net(x).square().mean().backward()
        else:
            raise AssertionError("the size was right")


WAYS = [name for name in vars(Steps) if not name.startswith("_")]


def smooth():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))


@pytest.mark.thorough
@pytest.mark.parametrize("action", [KEEP, SWAP, SQUEEZE, DERIVE, BLOCK])
@pytest.mark.parametrize("way", WAYS)
def test_c1_however_the_graph_is_used(way, action):
    """Retained, differentiated twice, used by two forward passes, in parts, thrown away, or left by an error."""
    step_of = getattr(Steps, way)
    make = smooth if way == "second_order" else lambda: made("residual")
    torch.manual_seed(0)
    plain = make()
    torch.manual_seed(0)
    net, x = make(), images()
    with swapper(net) as swap:
        swap.profile(lambda n: step_of(net, x), batches=(2,))
        plan = everywhere(swap.report().profile, action)
        swap.apply(plan)
        net.load_state_dict(plain.state_dict())
        net.zero_grad()
        step_of(plain, x)
        with swap.step():
            step_of(net, x)
        assert differing(state(plain), state(net)) == []
        assert (swap._meter.n_bytes, swap._tier.places.n_taken) == (0, 0)


def test_c1_whatever_device_is_the_default_meanwhile():
    """What swapping makes for itself lies where the module is, or on the host, not where the user's tensors do."""
    plain, net, x = made("mlp"), made("mlp"), images()
    with swapper(net, planner="hybrid", budget=2 * fixed_bytes(net)) as swap:
        for _ in range(FIRST_STEPS + 1):
            plain.zero_grad()
            plain_step(plain, x)
            net.zero_grad()
            with torch.device("meta"), swap.step():
                functional.cross_entropy(net(x), torch.arange(2, device="cpu")).backward()
            assert differing(state(plain), state(net)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("action", ACTIONS)
def test_c2_an_edit_in_place_after_the_save_raises_under_every_action(action):
    """As in plain PyTorch, and with no gradient written by then that plain would not have written."""
    net, x = made("residual"), images()
    with swapper(net) as swap:
        swap.apply(everywhere(profiled(swap, net, x), action))
        with swap.step():
            hidden = net[2](net[1](net[0](x)))
            out = functional.mse_loss(net[3:](hidden), torch.zeros(2, 10))
            hidden.detach().mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                out.backward()
