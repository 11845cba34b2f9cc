"""Whatever a cluster has: names of devices mean what torch means, each device once, and wrong names are one line."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drlnb.planning.placement.devices import Device, NodeDevices, devices_problem, is_device_name, named_devices
from drlnb.records.errors import ConfigError

UUIDS = [f"GPU-{i}{i}-abc" for i in range(6)]


@st.composite
def clusters(draw):
    """Return nodes on one or two machines; those of one machine see the same devices in some order."""
    nodes = []
    for host, uuids in (("h0", UUIDS[:3]), ("h1", UUIDS[3:])):
        n_cpus = draw(st.integers(1, 4))
        for i in range(draw(st.integers(0, 2))):
            seen = draw(st.permutations(uuids))[: draw(st.integers(0, 3))]
            nodes.append(
                NodeDevices(
                    node=f"{host}w{i}", host=host, n_cpus=n_cpus, cuda=tuple(enumerate(seen)), why_no_cuda="none"
                )
            )
    assume(nodes)
    return nodes


def here(nodes):
    """Return every CUDA device that some node sees."""
    return {uuid for node in nodes for _, uuid in node.cuda}


@given(clusters(), st.data())
def test_a_uuid_is_one_device_wherever_it_is_seen(nodes, data):
    """In any case of its letters; it goes to the first worker that sees it, under that worker's number."""
    assume(here(nodes))
    uuid = data.draw(st.sampled_from(sorted(here(nodes))))
    (device,) = named_devices([uuid.swapcase() if uuid.swapcase().startswith("GPU-") else uuid], nodes)
    first = next(node for node in nodes if uuid in dict(map(reversed, node.cuda)))
    index = next(i for i, each in first.cuda if each == uuid)
    assert device == Device(node=first.node, name=f"{first.node}/gpu{index}", seen=f"cuda:{uuid}")


@given(clusters(), st.integers(0, 3))
def test_an_index_means_that_device_of_every_node(nodes, k):
    """Each device once, though several workers may see it under this number."""
    wanted = [uuid for node in nodes for i, uuid in node.cuda if i == k]
    if not wanted:
        with pytest.raises(ConfigError, match=r"there is no CUDA device here: none|no device cuda:"):
            named_devices([f"cuda:{k}"], nodes)
        return
    devices = named_devices([f"cuda:{k}"], nodes)
    assert [device.seen for device in devices] == [f"cuda:{uuid}" for uuid in dict.fromkeys(wanted)]
    assert all(device.name == f"{device.node}/gpu{k}" for device in devices)


@given(clusters(), st.integers(0, 5))
def test_a_virtual_device_is_one_of_each_machine(nodes, k):
    """Of its first worker; a machine with fewer cores has none of this number."""
    first = {}
    for node in nodes:
        first.setdefault(node.host, node)
    wanted = [node for node in first.values() if k < node.n_cpus]
    if not wanted:
        with pytest.raises(ConfigError, match=rf"no device cpu:{k}: this cluster has .*cpu"):
            named_devices([f"cpu:{k}"], nodes)
        return
    devices = named_devices([f"cpu:{k}"], nodes)
    assert [(device.node, device.seen) for device in devices] == [(node.node, f"cpu:{k}") for node in wanted]


@given(clusters())
def test_a_slots_own_spelling_means_the_device_of_its_node(nodes):
    """Every device can be named so, and all of them together unless workers share one."""
    for node in nodes:
        for i, uuid in node.cuda:
            (device,) = named_devices([f"{node.node}/gpu{i}"], nodes)
            assert (device.node, device.seen, device.key) == (node.node, f"cuda:{uuid}", f"cuda:{uuid}")
        for k in range(node.n_cpus):
            (device,) = named_devices([f"{node.node}/cpu{k}"], nodes)
            assert (device.node, device.seen, device.key) == (node.node, f"cpu:{k}", f"{node.node}/cpu{k}")


@given(clusters())
def test_a_device_is_named_once_however_it_is_spelled(nodes):
    """By its number, by its UUID, or by its slot: the second name of it is refused, and both are shown."""
    assume(here(nodes))
    node = next(node for node in nodes if node.cuda)
    i, uuid = node.cuda[0]
    spellings = [f"{node.node}/gpu{i}", uuid]
    with pytest.raises(ConfigError, match=f"slots names one device twice: {uuid} is {node.node}/gpu{i}"):
        named_devices(spellings, nodes)
    with pytest.raises(ConfigError, match=f"slots names one device twice: {node.node}/gpu{i} is {uuid}"):
        named_devices(spellings[::-1], nodes)


@given(clusters())
def test_no_machine_lends_more_virtual_devices_than_it_has_cores(nodes):
    """Its workers share them."""
    names = [f"{node.node}/cpu{k}" for node in nodes for k in range(node.n_cpus)]
    hosts = [node.host for node in nodes]
    if len(set(hosts)) == len(hosts):
        assert len(named_devices(names, nodes)) == len(names)
    else:
        with pytest.raises(ConfigError, match=r"slots names \d virtual devices of one machine that has \d CPU cores"):
            named_devices(names, nodes)


@given(st.text(max_size=12))
def test_any_text_is_a_name_or_named_in_the_complaint(text):
    """Nothing is both, and nothing raises."""
    problem = devices_problem([text])
    assert (problem == "") == is_device_name(text)
    assert not problem or repr(text) in problem


@pytest.mark.parametrize("text", [
    "cuda:0", "cuda:9999", "cpu:0", "GPU-1a2b", "gpu-1A-2b", "MIG-1a-2b", "n0/gpu0", "n0/cpu3", "tcp://1.2.3.4:5/gpu0",
    "n0/cuda:1", "n0/GPU-12",
])  # fmt: skip
def test_what_names_a_device(text):
    """As torch, as the driver, and as slots do."""
    assert is_device_name(text)


@pytest.mark.parametrize("text", [
    "", "cuda", "cuda:", "cuda:-1", "cuda:12345", "cuda:1.0", " cuda:0", "cuda:0 ", "CUDA:0", "gpu0", "cpu0", "GPU-",
    "GPU-xyz", "n0/", "n0/gpu", "n0/gpu0/1", "0", "auto",
])  # fmt: skip
def test_what_names_none(text):
    """A slot's own word without its node is none: it would mean one of each."""
    assert not is_device_name(text)
    assert devices_problem([text]).startswith("slots lists devices as 'cuda:0', 'GPU-<uuid>', 'cpu:0' or 'NODE/gpu0'")
