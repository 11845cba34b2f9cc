"""Share the CPUs of a host among its node agents: the CPU slots that each one lends to collectors."""

import asyncio
import itertools
from typing import TYPE_CHECKING

from drlnb.planning.warmup.cpu_slots import cpu_share
from drlnb.records.columns import placement
from drlnb.runtime.protocol import SOON_S

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.nodes import Nodes

__all__ = ["CpuShares"]


class CpuShares:
    """The CPU slots of the nodes that are up.

    Parameters
    ----------
    nodes
        The register of agents.
    """

    def __init__(self, nodes: "Nodes") -> None:
        self._nodes = nodes
        #: Numbers the messages, for one may overtake another on its way.
        self._numbers = itertools.count(1)

    def share(self, node: str) -> dict[str, int]:
        """Return the message to a node."""
        return {
            "n_slots": self._nodes.broker.pool.cpu_slots or self._n_slots(node),
            "number": next(self._numbers),
        }

    def added(self, node: str) -> None:
        """Add a node to the pool; the other agents of its host share their CPUs with it from now on."""
        self._feed(node)
        self._shared_anew(self._nodes.rows[node]["host"], but=node)

    def lost(self, host: str) -> None:
        """Give the other agents of a host the share of one that is gone."""
        self._shared_anew(host)

    async def send(self, nodes: list[str]) -> None:
        """Send nodes their number; one that is not reached is gone, or gets it as it comes up again."""
        ask = self._nodes.broker.ask_node
        await asyncio.gather(*(ask(node, "drlnb_cpu_slots", SOON_S, **self.share(node)) for node in nodes))

    def _n_slots(self, node: str) -> int:
        row = self._nodes.rows[node]
        return cpu_share(row["n_cpus"], len(self._agents(row["host"])))

    def _agents(self, host: str) -> list[str]:
        return [node for node, row in self._nodes.rows.items() if row["host"] == host]

    def _feed(self, node: str) -> None:
        host = self._nodes.rows[node]["host"]
        self._nodes.broker.host.feed(placement.NodeAdded, node=node, host=host, n_collector_slots=self._n_slots(node))

    def _shared_anew(self, host: str, but: str = "") -> None:
        others = [node for node in self._agents(host) if node != but]
        for node in others:
            self._feed(node)
        if others:
            self._nodes.broker.runs.keep(asyncio.ensure_future(self.send(others)))
