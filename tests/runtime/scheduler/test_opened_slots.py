"""Which slots does a pool open for so many devices and seats, and what does it refuse?  No process is started."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.records.columns import leasing
from drlnb.records.ids import Fence
from drlnb.runtime.protocol import serve, to_wire
from drlnb.runtime.scheduler.nodes import Nodes

GPU = {"uuid": "GPU-1", "index": 0, "name": "x"}


class Broker:
    """Hears what the register asks of it."""

    def __init__(self):
        self.asked = []
        #: What the pool is made of, as it was told.
        self.slots = ()
        self.host = SimpleNamespace(feed=self.feed)

    def feed(self, kind, **fields):
        assert kind is leasing.SlotsOpened
        self.slots = fields["slots"]

    async def ask_node(self, node, op, timeout_s, /, **message):
        self.asked.append((node, op, message))


def _nodes(*rows):
    nodes = Nodes(Broker())
    for i, row in enumerate(rows or ({},)):
        plain = {"host": "h", "n_cpus": 8, "devices": [], "why_no_cuda": "none", "address": f"tcp://{i}"}
        nodes.rows[str(i)] = plain | row
    return nodes


def _open(nodes, n_slots, seats=1, names=(), **more):
    return _ask(nodes, "drlnb_open_slots", n_slots=n_slots, seats=seats, names=names, **more)


def _ask(nodes, op, **message):
    """Return what the sender of a message gets."""
    served = {}
    serve(served, nodes.handlers())
    return asyncio.run(served[op](**to_wire(message)))


def _given(nodes):
    return {slot: row["device"] for slots in nodes.given.values() for slot, row in slots.items()}


def test_one_seat_leaves_the_names_as_they_are():
    """Two virtual slots: 0/cpu0 and 0/cpu1, device cpu."""
    nodes = _nodes()
    assert _open(nodes, 2) == {"ok": True}
    assert _given(nodes) == {"0/cpu0": "cpu", "0/cpu1": "cpu"}
    assert nodes.pool.notices == ["no CUDA device (none): training on 2 virtual CPU slots"]


def test_seats_of_a_virtual_device_share_its_name():
    """`slots` counts devices: 2 devices with 3 seats are 6 slots."""
    nodes = _nodes()
    _open(nodes, 2, 3)
    assert _given(nodes) == {f"0/cpu{k}/{seat}": f"cpu:{k}" for k in range(2) for seat in range(3)}
    assert nodes.pool.notices == ["no CUDA device (none): training on 2 virtual CPU devices with seats: 3"]
    (asked,) = nodes.broker.asked
    assert nodes.broker.slots == tuple(nodes.pool.slot_names)
    assert [row["slot"] for row in asked[2]["slots"]] == list(_given(nodes))


def test_seats_of_a_cuda_device_share_its_uuid():
    """Each executor gets CUDA_VISIBLE_DEVICES of the one UUID; cores do not count there."""
    nodes = _nodes({"devices": [GPU], "n_cpus": 1})
    _open(nodes, None, 4)
    assert _given(nodes) == {f"0/gpu0/{seat}": "cuda:GPU-1" for seat in range(4)}
    plain = _nodes({"devices": [GPU]})
    _open(plain, None)
    assert _given(plain) == {"0/gpu0": "cuda:GPU-1"}


def test_workers_of_one_machine_share_its_cores():
    """Two workers on a machine of 4 cores, one device each: 2 seats each, not 4."""
    nodes = _nodes({"n_cpus": 4}, {"n_cpus": 4})
    said = "seats 3: a device here has room for 2 (4 CPU cores for 2 devices)"
    assert _open(nodes, 2, 3) == {"error": "ConfigError", "message": said}
    assert _open(nodes, 2, 2) == {"ok": True}


@pytest.mark.parametrize(
    ("n_slots", "seats", "message"),
    [
        (1, 0, "seats must be a whole number in 1..4, got 0"),
        (1, -2, "seats must be a whole number in 1..4, got -2"),
        (1, 5, "seats must be a whole number in 1..4, got 5"),
        (1, "auto", "seats must be a whole number in 1..4, got 'auto'"),
        (4, 3, "seats 3: a device here has room for 2 (8 CPU cores for 4 devices)"),
        (9, 1, "slots=9: the cluster has 8 CPU cores for virtual slots"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_opened(n_slots, seats, message):
    """One clear line with the limit and the value; the next request may be a good one."""
    nodes = _nodes()
    assert _open(nodes, n_slots, seats) == {"error": "ConfigError", "message": message}
    assert (nodes.given, nodes.pool.opened) == ({}, False)
    assert _open(nodes, 1, 2) == {"ok": True}


def test_a_pool_is_what_it_was_opened_as():
    """Who names no number takes it as it is; who names another is told what it is."""
    nodes = _nodes()
    _open(nodes, 2, 2)
    assert _open(nodes, None) == _open(nodes, 2) == _open(nodes, 2, 2) == {"ok": True}
    assert _open(nodes, 3)["message"] == (
        "this cluster's pool has 2 devices (seats: 2) already; slots=3 asks for another"
    )
    assert _open(nodes, None, 3)["message"] == "this cluster's pool has seats 2 already; seats 3 asks for another"
    assert _open(nodes, None, "auto")["message"] == "seats must be a whole number in 1..4, got 'auto'"


def test_named_devices_are_those_that_are_opened():
    """cuda:1 and its slot's name; with seats, each device has them; the second GPU alone keeps its number."""
    both = [GPU, {"uuid": "GPU-2", "index": 1, "name": "x"}]
    nodes = _nodes({"devices": both})
    assert _open(nodes, None, names=["cuda:1"]) == {"ok": True}
    assert _given(nodes) == {"0/gpu1": "cuda:GPU-2"}
    assert (nodes.pool.n_devices, nodes.pool.notices) == (1, [])
    seats = _nodes({"devices": both})
    _open(seats, None, 2, ["GPU-2", "0/gpu0"])
    assert _given(seats) == {
        "0/gpu1/0": "cuda:GPU-2", "0/gpu1/1": "cuda:GPU-2", "0/gpu0/0": "cuda:GPU-1", "0/gpu0/1": "cuda:GPU-1",
    }  # fmt: skip
    virtual = _nodes({"devices": both})
    _open(virtual, None, names=["cpu:3"])
    assert _given(virtual) == {"0/cpu3": "cpu"}


def test_workers_of_one_machine_open_a_card_once():
    """Two workers see the same two cards: two slots, both on the first worker."""
    both = [GPU, {"uuid": "GPU-2", "index": 1, "name": "x"}]
    nodes = _nodes({"devices": both}, {"devices": both})
    assert _open(nodes, None) == {"ok": True}
    assert _given(nodes) == {"0/gpu0": "cuda:GPU-1", "0/gpu1": "cuda:GPU-2"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cuda:7"], "no device cuda:7: this cluster has cuda:0"),
        (["cuda:0", "0/gpu0"], "slots names one device twice: 0/gpu0 is cuda:0"),
        (["cuda:0", "cpu:0"], "slots mixes CUDA devices (cuda:0) with virtual ones (cpu:0): name one kind"),
    ],
)
def test_names_that_mean_nothing_open_nothing(names, message):
    """Refused in one line; the next request may be a good one, and an open pool is asked the same way."""
    nodes = _nodes({"devices": [GPU]})
    assert _open(nodes, None, names=names) == {"error": "ConfigError", "message": message}
    assert (nodes.given, nodes.pool.opened, nodes.broker.asked) == ({}, False, [])
    assert _open(nodes, None, names=["cuda:0"]) == {"ok": True}
    assert _open(nodes, None, names=names)["message"] == message
    assert _ask(nodes, "drlnb_same_devices", names=names)["message"] == message


def test_a_pool_of_named_devices_is_what_it_was_opened_as():
    """The same devices by other names are the same; other ones are told what there is."""
    nodes = _nodes()
    _open(nodes, None, names=["cpu:1", "cpu:0"])
    assert _open(nodes, None, names=["0/cpu0", "0/cpu1"]) == _open(nodes, 2) == _open(nodes, None) == {"ok": True}
    assert _open(nodes, None, names=["cpu:0"])["message"] == (
        "this cluster's pool has 0/cpu0, 0/cpu1 already; slots asks for 0/cpu0"
    )
    assert asyncio.run(nodes.same_devices(["0/cpu1", "cpu:0"])) == {"same": True}
    assert asyncio.run(nodes.same_devices(["cpu:1"])) == {"same": False}
    assert asyncio.run(nodes.nodes())["names"] == ("cpu:1", "cpu:0")


def test_how_tasks_share_a_slot_is_told_to_its_node():
    """Each of a node's rows says it; the default is one process for all."""
    shared, apart = _nodes(), _nodes()
    _open(shared, 1)
    _open(apart, 1, isolation="process")
    told = [[row["isolation"] for row in nodes.broker.asked[0][2]["slots"]] for nodes in (shared, apart)]
    assert told == [["shared"], ["process"]]
    assert asyncio.run(apart.nodes())["isolation"] == "process"
    assert _open(apart, 1) == _open(apart, 1, isolation="process") == {"ok": True}


def test_other_words_for_it_are_refused():
    """One line, nothing is opened; an open pool refuses what it is not."""
    nodes = _nodes()
    said = "isolation must be one of shared, process, got 'thread'"
    assert _open(nodes, 1, isolation="thread")["message"] == said
    assert (nodes.given, nodes.pool.opened) == ({}, False)
    _open(nodes, 1)
    assert _open(nodes, 1, isolation="thread")["message"] == said
    assert _open(nodes, 1, isolation="process")["message"] == (
        "this cluster's pool has isolation 'shared' already; 'process' asks for another"
    )


def test_a_lost_process_is_an_event_of_the_pool():
    """With the task and the lease that it worked under; of a slot that this node has, and of no other."""
    nodes = _nodes()
    _open(nodes, 1, isolation="process")
    nodes.broker.host = SimpleNamespace(feed=lambda kind, **fields: nodes.broker.asked.append((kind, fields)))
    nodes.broker.asked.clear()
    lost = {"task": "r/a", "reason": "killed by signal 9"}
    for slot, fence in (("0/cpu0", Fence(1, 7)), ("0/cpu0", None), ("9/cpu0", None)):
        assert _ask(nodes, "drlnb_tenant_lost", node="0", slot=slot, fence=fence, **lost) == {"ok": True}
    assert nodes.broker.asked == [
        (leasing.TenantLost, {"slot": "0/cpu0", "fence": Fence(epoch=1, token=7), **lost}),
        (leasing.TenantLost, {"slot": "0/cpu0", "fence": None, **lost}),
    ]
