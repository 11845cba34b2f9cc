"""What does a worker bring that joins a cluster whose pool is open?  The register of nodes, without a wire."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.records.errors import ConfigError
from drlnb.runtime.scheduler import user_leases
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


#: A request of a task's master.
MINE = {"request_id": "r/a/1", "task": "r/a", "attempt": 1, "round": 1, "node": "n0"}


async def wanted(world, n_slots):
    """Ask for slots at once, as a task's master does, and as a user's loop."""
    grants, loops = world.broker.grants, world.broker.loops
    task = await grants.acquire(**MINE, wait_s=0.0, n_slots=n_slots)
    try:
        return task, await loops.loop_acquire("loop/1", "loop", 1, n_slots)
    except ConfigError as error:
        return task, str(error)


@pytest.mark.parametrize(("n_slots", "names"), [(None, ()), (None, ["cuda:0"])])
def test_more_slots_than_there_are_wait_for_later_workers(monkeypatch, n_slots, names):
    """On somebody's cluster, whose later workers bring slots: the pool says once that it waits, and then lends them."""
    monkeypatch.setattr(user_leases, "_UNMET_S", 0.01)

    async def scene(world):
        await world.broker.hello(fleet="f", client="c")
        await world.come("n0")
        await world.open(n_slots, names=names)
        world.broker.loops._open_tape()
        asked = await wanted(world, 2)
        slots = [*(await world.come("n1")), "n0/gpu0"]
        for slot in slots[-2:]:
            await world.broker.nodes.slot_up(slot[:2], slot, "cuda", "card", 1)
        grant = await world.broker.grants.acquire(**MINE, wait_s=1.0)
        rows = [row for row in world.broker.loops.tape.rows(0)[1] if row["r"] == "RequestUnmet"]
        return asked, [slot["slot"] for slot in grant["slots"]], rows

    asked, lent, rows = play(scene, GPUS)
    assert asked == ({"pending": True}, {"pending": True, "n_up": 0})
    assert sorted(lent) == ["n0/gpu0", "n1/gpu0" if names else "n1/gpu1"]
    assert [(row["task"], row["n_slots"]) for row in rows] == [("r/a", 2), ("loop", 2)]


@pytest.mark.parametrize(
    ("n_slots", "names", "fleet"), [(None, (), ""), (1, (), "f"), (None, ["GPU-a"], "f"), (None, ["n0/gpu0"], "f")]
)
def test_more_slots_than_there_can_be_are_refused_for_good(n_slots, names, fleet):
    """A cluster of our own has all of its workers; a number, a card or a node's device is no other one later."""

    async def scene(world):
        await world.broker.hello(fleet=fleet, client="c")
        await world.come("n0")
        await world.open(n_slots, names=names)
        return await wanted(world, 2)

    reason = "task r/a would wait for ever: it wants 2 slots at once, and 1 may serve it"
    assert play(scene, GPUS) == ({"refused": reason, "final": True}, "n_slots = 2, but the pool has 1")
