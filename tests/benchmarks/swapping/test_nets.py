"""The networks: their parameters, what they save per sample, and the traces that travel with the package."""

import pytest
import torch

from benchmarks.swapping.nets import NETS
from drlnb.planning.swapping.trace import packed
from drlnb.runtime.swapping.trace import trace
from drlnb.sim.swapping.nets import net_names, net_trace

#: Millions of parameters, and MiB saved per sample (the design page's table, traced there by other means).
SIZES = {
    "alexnet_224": (57.0, 3.57),
    "alexnet_32": (None, 0.34),
    "vgg16_224": (134.3, 70.0),
    "vgg16_bn_32": (None, 2.49),
    "resnet50_32": (23.5, 24.4),
    "resnet50_224": (23.5, 82.0),
    "inception_v3_32": (21.8, 46.6),
    "inception_v3_299": (21.8, 93.7),
    "impala": (None, 2.04),
    "impala_x4": (None, 7.84),
    "nature_cnn": (None, 0.19),
    "transformer": (None, 80.5),
}
#: Share of the bytes that is left when all that can be is squeezed.
SQUEEZED = {"alexnet_224": 0.46, "vgg16_224": 0.57, "impala": 0.53, "nature_cnn": 1.0}
#: Nets whose trace takes a second.
LARGE = ("inception_v3_32", "inception_v3_299", "resnet50_224")


def build(name):
    make, shape = NETS[name]
    with torch.device("meta"):
        return make(), torch.empty((1, *shape), device="meta")


def test_every_net_has_its_trace():
    """And every trace its net."""
    assert set(net_names()) == set(NETS) == set(SIZES)


@pytest.mark.parametrize("name", NETS)
def test_parameters_and_bytes_are_those_of_the_page(name):
    """As far as its figures are told; the shipped trace says the same."""
    millions, mib = SIZES[name]
    shipped = net_trace(name)
    if millions is not None:
        assert shipped.param_bytes / 4e6 == pytest.approx(millions, abs=0.06)
    assert sum(row.bytes_per_sample for row in shipped.rows) / 2**20 == pytest.approx(mib, rel=0.013)
    saved = sum(row.bytes_per_sample * row.squeeze_left_frac for row in shipped.rows)
    if name in SQUEEZED:
        assert saved / 2**20 / mib == pytest.approx(SQUEEZED[name], abs=0.01)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in NETS if name not in LARGE])
def test_a_fresh_trace_is_the_shipped_one(name):
    """Byte by byte, on the meta device."""
    net, sample = build(name)
    assert packed(trace(net, sample, name=name)) == packed(net_trace(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_fresh_trace_of_a_large_net_is_the_shipped_one(name):
    """As above; these take seconds."""
    net, sample = build(name)
    assert packed(trace(net, sample, name=name)) == packed(net_trace(name))


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "shape"), [("alexnet_32", (2, 10)), ("impala", (2, 18)), ("nature_cnn", (2, 18))])
def test_a_net_is_a_network(name, shape):
    """It maps a batch to outputs, each sample for itself, with gradients for every parameter."""
    torch.manual_seed(0)
    net = NETS[name][0]()
    net.eval()
    samples = torch.randn(2, *NETS[name][1])
    out = net(samples)
    assert out.shape == shape
    assert torch.allclose(out[1], net(samples[1:])[0], atol=1e-4)
    out.sum().backward()
    assert all(each.grad is not None for each in net.parameters())
