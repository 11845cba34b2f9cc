"""Which devices names mean, and what is said of those that mean none: nothing is probed, nothing starts."""

import pytest

from drlnb.planning.placement.devices import NodeDevices, devices_problem, is_device_name, named_devices
from drlnb.records.errors import ConfigError

A, B, C = "GPU-aa-1", "GPU-bb-2", "GPU-cc-3"
#: One machine with two CUDA devices, as one worker sees it.
ONE = [NodeDevices(node="n0", host="h", n_cpus=8, cuda=((0, A), (1, B)))]
#: Two machines.
TWO = [*ONE, NodeDevices(node="n1", host="g", n_cpus=8, cuda=((0, C),))]
#: Two workers of the machine: they see the same cards.
TWINS = [*ONE, NodeDevices(node="n1", host="h", n_cpus=8, cuda=((0, A), (1, B)))]
#: Workers of one machine, each restricted to one card.
SPLIT = [NodeDevices(node=f"n{i}", host="h", n_cpus=8, cuda=((0, uuid),)) for i, uuid in enumerate((A, B))]
BARE = [NodeDevices(node="0", host="h", n_cpus=2, why_no_cuda="this machine shows no NVIDIA device or driver")]
BARES = [NodeDevices(node=name, host="h", n_cpus=2, why_no_cuda="none") for name in ("0", "1")]


def _names(names, nodes):
    return [(device.name, device.seen) for device in named_devices(names, nodes)]


def test_devices_are_named_as_torch_names_them():
    """By index as torch counts, by UUID in any case, by the slot's own spelling; in the order of the list."""
    first, second = ("n0/gpu0", f"cuda:{A}"), ("n0/gpu1", f"cuda:{B}")
    assert _names(["cuda:1", "cuda:0"], ONE) == [second, first]
    assert _names([B.lower()], ONE) == _names(["n0/gpu1"], ONE) == _names(["n0/cuda:1"], ONE) == [second]
    assert _names(("cuda:0",), ONE) == [first]


def test_virtual_devices_are_named_alike():
    """cpu:K, or the slot's own spelling; on a machine with CUDA devices, too: who says cpu means it."""
    assert _names(["cpu:1", "0/cpu0"], BARE) == [("0/cpu1", "cpu:1"), ("0/cpu0", "cpu:0")]
    assert _names(["0/cpu:1"], BARE) == [("0/cpu1", "cpu:1")]
    assert _names(["cpu:7"], ONE) == [("n0/cpu7", "cpu:7")]


def test_a_name_without_a_node_means_every_machine():
    """cuda:0 of two machines are two devices, cuda:1 is on one of them only; n1/gpu0 is one."""
    assert _names(["cuda:0"], TWO) == [("n0/gpu0", f"cuda:{A}"), ("n1/gpu0", f"cuda:{C}")]
    assert _names(["cuda:1"], TWO) == [("n0/gpu1", f"cuda:{B}")]
    assert _names(["n1/gpu0"], TWO) == [("n1/gpu0", f"cuda:{C}")]
    assert _names(["cpu:0"], TWO) == [("n0/cpu0", "cpu:0"), ("n1/cpu0", "cpu:0")]


def test_workers_of_one_machine_share_its_devices():
    """A card that two workers see counts once and is the first one's, unless the second is named; so do cores."""
    assert _names(["cuda:0", "cuda:1"], TWINS) == [("n0/gpu0", f"cuda:{A}"), ("n0/gpu1", f"cuda:{B}")]
    assert _names(["n1/gpu0"], TWINS) == [("n1/gpu0", f"cuda:{A}")]
    assert _names(["cpu:0", "cpu:1"], BARES) == [("0/cpu0", "cpu:0"), ("0/cpu1", "cpu:1")]
    assert _names(["0/cpu0", "1/cpu0"], BARES) == [("0/cpu0", "cpu:0"), ("1/cpu0", "cpu:0")]


def test_workers_that_see_one_card_each_have_a_first_device_each():
    """Torch counts on each node's visible devices: cuda:0 is another card for each worker."""
    assert _names(["cuda:0"], SPLIT) == [("n0/gpu0", f"cuda:{A}"), ("n1/gpu0", f"cuda:{B}")]


def test_nodes_may_have_addresses_for_names():
    """A worker that was given no name is called by its address, which has slashes."""
    node = NodeDevices(node="tcp://10.0.0.1:3", host="h", n_cpus=1, cuda=((0, A),))
    assert _names(["tcp://10.0.0.1:3/gpu0"], [node]) == [("tcp://10.0.0.1:3/gpu0", f"cuda:{A}")]


@pytest.mark.parametrize(
    ("names", "nodes", "line"),
    [
        (["cuda:7"], ONE, "no device cuda:7: this cluster has cuda:0, cuda:1"),
        (["cuda:0", "cuda:7", GPU := "GPU-dd"], ONE, f"no device cuda:7, {GPU}: this cluster has cuda:0, cuda:1"),
        (["n7/gpu0"], TWO, "no device n7/gpu0: this cluster has n0/gpu0, n0/gpu1, n1/gpu0"),
        (["cpu:2"], BARE, "no device cpu:2: this cluster has cpu:0, cpu:1"),
        (["cpu:9"], ONE, "no device cpu:9: this cluster has cpu:0 to cpu:7"),
        (["1/cpu5"], BARES, "no device 1/cpu5: this cluster has 0/cpu0, 0/cpu1, 1/cpu0, 1/cpu1"),
        (
            ["cuda:0"],
            BARE,
            "there is no CUDA device here: this machine shows no NVIDIA device or driver; "
            "without one, name virtual devices such as cpu:0",
        ),
        (
            ["cuda:0"],
            [],
            "there is no CUDA device here: no node has one; without one, name virtual devices such as cpu:0",
        ),
        (["cuda:0", "n0/gpu0"], ONE, "slots names one device twice: n0/gpu0 is cuda:0"),
        (["cuda:0", "n1/gpu0"], TWINS, "slots names one device twice: n1/gpu0 is cuda:0"),
        ([A, "cuda:00"], ONE, f"slots names one device twice: cuda:00 is {A}"),
        (
            ["0/cpu0", "0/cpu1", "1/cpu0"],
            BARES,
            "slots names 3 virtual devices of one machine that has 2 CPU cores",
        ),
    ],
)  # fmt: skip
def test_what_names_no_device_is_one_line_with_what_there_is(names, nodes, line):
    """The names that mean nothing, and the names that would."""
    with pytest.raises(ConfigError) as error:
        named_devices(names, nodes)
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ([], "slots is an empty list: name devices such as 'cuda:0', or say 'auto' for all there are"),
        (["cuda:0", "cuda:0"], "slots names cuda:0 twice"),
        (["cpu:1", "cuda:0"], "slots mixes CUDA devices (cuda:0) with virtual ones (cpu:1): name one kind"),
        ([GPU, "0/cpu0"], f"slots mixes CUDA devices ({GPU}) with virtual ones (0/cpu0): name one kind"),
        ([0], "slots lists devices as 'cuda:0', 'GPU-<uuid>', 'cpu:0' or 'NODE/gpu0', got 0"),
        ([None, "cuda:0"], "slots lists devices as 'cuda:0', 'GPU-<uuid>', 'cpu:0' or 'NODE/gpu0', got None"),
        ({"cuda:0"}, "slots must be a list of devices such as ['cuda:0'], got {'cuda:0'}"),
        ("cuda:0", "slots must be a list of devices such as ['cuda:0'], got 'cuda:0'"),
    ],
)
def test_what_no_cluster_could_have_is_told_without_one(names, line):
    """Empty, twice, mixed, not a text, not a list: one line each; asked of a cluster it is the same."""
    assert devices_problem(names) == line
    with pytest.raises(ConfigError) as error:
        named_devices(names, ONE)
    assert str(error.value) == line


@pytest.mark.parametrize(
    "text", ["", "cuda", "cuda:", "cuda:-1", "cuda:x", "cpu", "gpu0", "cpu0", "0", "0,2", "tpu:0", "GPU", "GPU-", "n/",
             "cuda:0 ", "cuda:12345", "CUDA:0", "cuda:٣"],
)  # fmt: skip
def test_what_is_no_name_of_a_device(text):
    """Numbers, halves of names, other kinds; gpu0 and cpu0 are words of slots, and those have a node."""
    assert not is_device_name(text)


def test_good_names_have_no_problem():
    """Nothing to say."""
    assert devices_problem(["cuda:0", "n0/gpu1", A]) == devices_problem(("cpu:0", "0/cpu1")) == ""
