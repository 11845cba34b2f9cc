"""C1 on the seven networks that swapping is measured on: planners, tiers, kinds of numbers, and uses of a graph."""

import itertools
from contextlib import suppress

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.swapping.ways import made, samples
from drlnb.runtime.swapping.engine import FIRST_STEPS
from drlnb.runtime.swapping.memory import fixed_bytes
from drlnb.runtime.swapping.tiers.slab import SlabTier
from drlnb.sim.swapping.nets import net_trace
from tests.runtime.swapping.checked import CheckedStreams
from tests.runtime.swapping.nets import differing, state
from tests.runtime.swapping.rig import swapper
from tests.runtime.swapping.test_bits import pairwise

#: Some planners cannot keep the budgets: here bits count.
pytestmark = pytest.mark.filterwarnings("ignore:swapping. the budget of")

#: Samples of a step of each network.
BATCHES = {"alexnet_32": 2, "vgg16_bn_32": 2, "resnet50_32": 2, "inception_v3_32": 1, "impala": 2, "nature_cnn": 2,
           "transformer": 1}  # fmt: skip
PLANNERS = ["all", "vdnn_conv", "capuchin", "hybrid", "auto",
            *[f"greedy:actions={each}" for each in ("swap", "squeeze", "derive", "block")]]  # fmt: skip
TIERS = {"file": "file", "checked": lambda meter: SlabTier(meter, CheckedStreams(5), 1 << 20)}
KINDS = {
    "plain": {},
    "channels_last": {"memory_format": torch.channels_last},
    "autocast": {},
}
#: InceptionV3 saves 801 storages where none is too small: its search alone takes a minute on a machine with other work.
PATIENCE_S = 600
CASES = [
    case for case in itertools.product(BATCHES, PLANNERS, TIERS, KINDS)
    if not (case[0] == "transformer" and case[3] == "channels_last")
]  # fmt: skip


class Fails(RuntimeError):
    """What a test raises within a step."""


def fail(*_):
    raise Fails


class Uses:
    """What a step does with the network's graph; each leaves gradients behind."""

    @staticmethod
    def once(net, x):
        loss(net(x)).backward()

    @staticmethod
    def retained(net, x):
        value = loss(net(x))
        value.backward(retain_graph=True)
        value.backward()

    @staticmethod
    def second_order(net, x):
        with sdpa_kernel(SDPBackend.MATH):  # the others have no second derivative
            value = loss(net(x))
            grads = torch.autograd.grad(value, list(net.parameters()), create_graph=True)
            sum(each.square().sum() for each in grads).backward()

    @staticmethod
    def two_forwards(net, x):
        (loss(net(x)) + loss(net(x.flip(-1)))).backward()

    @staticmethod
    def discarded(net, x):
        loss(net(x))
        loss(net(x)).backward()

    @staticmethod
    def failed_forward(net, x):
        hook = list(net.children())[-1].register_forward_pre_hook(fail)
        with suppress(Fails):
            net(x)
        hook.remove()
        loss(net(x)).backward()

    @staticmethod
    def failed_backward(net, x):
        middle = list(net.children())[len(list(net.children())) // 2]
        hook = middle.register_forward_hook(lambda module, args, out: out.register_hook(fail) and None)
        with suppress(Fails):
            loss(net(x)).backward()
        hook.remove()
        net.zero_grad()
        loss(net(x)).backward()


USES = [name for name in vars(Uses) if not name.startswith("_")]


def loss(out):
    return out.float().square().mean()


def step(net, x, use="once", autocast=False):
    """Make a step from no gradients and a fixed seed; return the error that plain makes as well."""
    net.zero_grad()
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        try:
            getattr(Uses, use)(net, x)
        except (NotImplementedError, RuntimeError) as error:
            if "derivative" not in str(error) and "does not require grad" not in str(error):
                raise
            return type(error)
    return None


def compare(name, planner, tier, kind, use="once"):
    """Make the step of a network plain and under a planner, from the same parameters and statistics."""
    n, kinds, autocast = BATCHES[name], KINDS[kind], kind == "autocast"
    net, x = made(name).to(**kinds), samples(name, n).to(**kinds)
    before = {key: each.clone() for key, each in net.state_dict().items()}
    error = step(net, x, use, autocast)
    plain = state(net)
    budget = fixed_bytes(net) + int(0.35 * n * sum(row.bytes_per_sample for row in net_trace(name).rows))
    with swapper(net, planner=planner, tier=TIERS[tier], budget=budget) as swap:
        for _ in range(FIRST_STEPS + 1):
            net.load_state_dict(before)
            with swap.step() as told:
                assert step(net, x, use, autocast) == error
        assert differing(plain, state(net)) == []
        assert told.n_saved > 0
        report = swap.report()
    if planner in {"hybrid", "auto", "capuchin"} and use == "once" and kind != "autocast":
        assert set(report.plan.actions) != {"keep"}, "the case is not empty"
    net.zero_grad()
    assert swap._meter.n_bytes == 0
    return told


@pytest.mark.thorough
@pytest.mark.parametrize("case", pairwise([case for case in CASES if case[0] == "nature_cnn"]), ids="-".join)
def test_c1_each_pair_of_planner_tier_and_kind(case):
    """On the smallest of the networks, every two of them together once."""
    compare(*case)


@pytest.mark.thorough
@pytest.mark.parametrize("use", USES)
def test_c1_each_use_of_a_graph_on_a_policy(use):
    """IMPALA's network under the search, however its graph is used."""
    compare("impala", "hybrid", "file", "plain", use)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_c1_no_bit_differs_in_any_case(case):
    """Seven networks, ten planners, two tiers, three kinds of numbers."""
    compare(*case)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("planner", ["all", "hybrid", "greedy:actions=block"])
@pytest.mark.parametrize("name", BATCHES)
def test_c1_no_bit_differs_however_a_graph_is_used(name, planner, tier, use):
    """Seven networks: retained, differentiated twice, two forwards, discarded, errors in either pass."""
    compare(name, planner, tier, "plain", use)


@pytest.mark.slow
def test_c3_fifty_steps_of_which_a_third_fails_leave_nothing():
    """In the forward pass, and in the middle of the backward pass: no byte is held, no place of the file is taken."""
    net, x = made("nature_cnn"), samples("nature_cnn", 4)
    with swapper(net) as swap:
        for i in range(50):
            with swap.step():
                step(net, x, ("failed_forward", "once", "failed_backward", "once", "discarded", "once")[i % 6])
        assert (swap._meter.n_bytes, swap._tier.places.n_taken, len(swap._tape.rows)) == (0, 0, 0)
