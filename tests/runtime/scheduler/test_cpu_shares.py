"""How many CPU slots each node lends to its collectors, by the broker; without processes."""

import asyncio
from types import SimpleNamespace

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement.cpu_slots import CPU_SLOTS_KEY
from drlnb.planning.pool import PoolMachine
from drlnb.records.columns.placement import NodeAdded
from drlnb.records.common import SettingChanged
from drlnb.runtime.scheduler.nodes import Nodes


class PretendedBroker:
    """What the shares see of a broker."""

    def __init__(self):
        self.pool = PoolMachine(LeasingSettings(), 1)
        self.tasks = []
        self.host = SimpleNamespace(feed=self.feed, spawn=lambda work: self.tasks.append(asyncio.ensure_future(work)))
        self.told = []

    def feed(self, kind, **values):
        self.pool.handle(kind(t=0.0, **values))

    async def ask_node(self, node, op, timeout_s, **message):
        del timeout_s
        self.told.append((node, op, message["n_slots"]))


def test_agents_of_a_host_share_its_cpus():
    """8 CPUs: 8, then 4 each, then 2 for each of three; another host has its own."""

    async def go():
        broker = PretendedBroker()
        nodes = Nodes(broker)
        for node, host, n in (("0", "h", 8), ("1", "h", 8), ("x", "g", 3), ("2", "h", 8)):
            nodes.rows[node] = {"host": host, "n_cpus": n}
            nodes._share_cpus(host, added=node)
        await asyncio.gather(*broker.tasks)
        del nodes.rows["2"]
        nodes._share_cpus("h")
        await asyncio.gather(*broker.tasks)
        return broker, nodes

    broker, nodes = asyncio.run(go())
    assert broker.told == [
        ("0", "drlnb_cpu_slots", 2), ("0", "drlnb_cpu_slots", 2), ("1", "drlnb_cpu_slots", 2),
        ("0", "drlnb_cpu_slots", 4), ("1", "drlnb_cpu_slots", 4),
    ]  # fmt: skip
    assert nodes.cpu_slots("x")["n_slots"] == 3
    assert broker.pool.snapshot()["placement"]["nodes"] == {"0": 4, "1": 4, "x": 3, "2": 2}
    assert nodes.cpu_slots("0")["number"] < nodes.cpu_slots("0")["number"], "a later word has a larger number"


def test_a_person_chooses_another_number():
    """For each node, for placement too; `auto` is the share again, a wrong value is refused and changes nothing."""
    pool = PoolMachine(LeasingSettings(), 1)
    pool.handle(NodeAdded(t=0.0, node="0", host="h", n_collector_slots=8))
    assert pool.handle(SettingChanged(t=0.0, key=CPU_SLOTS_KEY, value=3, task=None)) == ()
    assert (pool.state.placement.cpu_slots, pool.n_slots) == (3, 0)
    (refused,) = pool.handle(SettingChanged(t=0.0, key=CPU_SLOTS_KEY, value=0, task=None))
    assert refused.reason.endswith("got 0")
    assert pool.state.placement.cpu_slots == 3
    copy = PoolMachine(LeasingSettings(), 1)
    copy.restore(pool.snapshot())
    assert copy.state.placement.cpu_slots == 3
    pool.handle(SettingChanged(t=0.0, key=CPU_SLOTS_KEY, value="auto", task=None))
    assert pool.state.placement.cpu_slots == 0
