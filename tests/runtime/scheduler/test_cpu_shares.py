"""How many collectors the CPUs of a host are enough for, by its node agents; without processes."""

from types import SimpleNamespace

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.runtime.scheduler.nodes import Nodes


def test_agents_of_a_host_share_its_cpus():
    """8 CPUs: 8, then 4 each, then 2 for each of three, and 4 again; another host has its own."""
    pool = PoolMachine(LeasingSettings(), 1)
    nodes = Nodes(SimpleNamespace(host=SimpleNamespace(feed=lambda kind, **values: pool.handle(kind(t=0.0, **values)))))
    shares = []
    for node, host, n in (("0", "h", 8), ("1", "h", 8), ("x", "g", 3), ("2", "h", 8)):
        nodes.rows[node] = {"host": host, "n_cpus": n}
        nodes._share_cpus(host)
        shares.append(dict(pool.state.nodes))
    assert shares == [{"0": 8}, {"0": 4, "1": 4}, {"0": 4, "1": 4, "x": 3}, {"0": 2, "1": 2, "x": 3, "2": 2}]
    del nodes.rows["2"]
    nodes._share_cpus("h")
    assert pool.state.nodes == {"0": 4, "1": 4, "x": 3, "2": 2}, "who is gone is told apart"
