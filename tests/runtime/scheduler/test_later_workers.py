"""What does a worker bring that joins a cluster whose pool is open?  The register of nodes, without a wire."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.records.errors import ConfigError
from drlnb.runtime.scheduler.plugin import BrokerPlugin

GPUS = {"n0": ["GPU-a"], "n1": ["GPU-b", "GPU-c"], "n2": ["GPU-a"]}


class World:
    """A broker, and nodes that come and go."""

    def __init__(self, gpus):
        self.gpus = gpus

    async def __aenter__(self):
        self.broker = BrokerPlugin()
        await self.broker.start(SimpleNamespace(handlers={}))
        self.broker.ask_node = self._ask_node
        return self

    async def __aexit__(self, *error):
        await self.broker.close()

    async def _ask_node(self, node, op, timeout_s, /, **message):
        return {"ok": True}

    async def come(self, node, *, server_id="s"):
        """Let a node join; return the slots that it is told to serve."""
        devices = [{"index": k, "uuid": uuid} for k, uuid in enumerate(self.gpus.get(node, ()))]
        row = {"server_id": server_id, "host": f"host of {node}", "n_cpus": 4, "devices": devices, "why_no_cuda": "no"}
        told = await self.broker.nodes.agent_up(node, f"tcp://{node}", **row)
        return [slot["slot"] for slot in told["slots"]]

    async def open(self, n_slots=None, seats=1, names=()):
        await self.broker.nodes.open_slots(n_slots, seats, names)

    def go(self, node):
        self.broker.nodes.lost(f"tcp://{node}", "test")

    def all(self):
        return sorted(slot for slots in self.broker.nodes.given.values() for slot in slots)


def play(scene, gpus=None):
    async def within():
        async with World(gpus or {}) as world:
            return await asyncio.wait_for(scene(world), 5.0)

    return asyncio.run(within())


def test_of_all_cuda_devices_a_later_worker_brings_its_own():
    """Each card counts once: one that another worker has already is not brought a second time."""

    async def scene(world):
        await world.come("n0")
        await world.open()
        brought = [await world.come("n1"), await world.come("n2")]
        assert world.broker.nodes.pool.n_devices == 3
        await world.broker.nodes.open_slots(3)
        return brought

    assert play(scene, GPUS) == [["n1/gpu0", "n1/gpu1"], []]


def test_a_card_whose_worker_is_gone_is_brought_by_the_next_worker_that_sees_it():
    """The former worker brings it no more when it comes back."""

    async def scene(world):
        await world.come("n0")
        await world.open()
        world.go("n0")
        return await world.come("n2"), await world.come("n0", server_id="again"), world.all()

    assert play(scene, GPUS) == (["n2/gpu0"], [], ["n2/gpu0"])


@pytest.mark.parametrize(("names", "brought"), [(["cuda:0"], ["n1/gpu0"]), (["GPU-c"], None), (["n0/gpu0"], [])])
def test_of_named_devices_a_later_worker_brings_those_of_that_name(names, brought):
    """A name without a node means that device of every node, of those that come later, too."""

    async def scene(world):
        await world.come("n0")
        if brought is None:  # what is not there cannot be named
            with pytest.raises(ConfigError):
                await world.broker.nodes.open_slots(None, 1, names)
            return None
        await world.open(names=names)
        return await world.come("n1")

    assert play(scene, GPUS) == brought


def test_a_name_whose_node_is_gone_is_nobodys_now():
    """A later worker brings nothing in its place."""

    async def scene(world):
        await world.come("n0")
        await world.open(names=["n0/cpu0"])
        world.go("n0")
        return await world.come("n1"), await world.come("n0", server_id="again")

    assert play(scene) == ([], ["n0/cpu0"])


@pytest.mark.parametrize("gpus", [{}, GPUS])
def test_of_a_number_a_later_worker_brings_what_is_missing(gpus):
    """None while all are there; then those of the nodes that are gone, which bring none when they come back."""

    async def scene(world):
        await world.come("n0")
        await world.open(1, seats=2)
        before = world.all()
        assert len(before) == 2
        assert await world.come("n1") == []
        world.go("n0")
        assert await world.come("n1", server_id="again") == [], "its worker is no later one: it was there"
        brought = await world.come("n3") if not gpus else await world.come("n2")
        assert await world.come("n0", server_id="again") == []
        assert world.all() == brought
        assert world.broker.nodes.pool.n_devices == 1
        return [slot.split("/")[0] for slot in brought], before

    brought, before = play(scene, gpus)
    assert brought == ["n2" if gpus else "n3"] * 2
    assert {slot.split("/")[0] for slot in before} == {"n0"}


def test_the_first_later_worker_takes_over_what_it_has_cores_for():
    """The next one finds nothing missing."""

    async def scene(world):
        await world.come("n0")
        await world.open(3)
        world.go("n0")
        first = await world.come("n1")
        return first, await world.come("n2"), world.all()

    first, second, every = play(scene)
    assert (first, second) == (["n1/cpu0", "n1/cpu1", "n1/cpu2"], [])
    assert every == first
