"""How many CPU slots does each node agent lend to collectors?  The broker's word: agents of one host share its CPUs."""

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from drlnb.planning.warmup.cpu_slots import cpu_share
from drlnb.records.columns import placement

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
        #: Numbers the words, for one may overtake another on its way.
        self._numbers = itertools.count(1)

    def word(self, node: str) -> dict[str, int]:
        """Return what a node is told."""
        return {
            "n_slots": self._nodes.broker.pool.cpu_slots or self._share(node),
            "number": next(self._numbers),
        }

    def added(self, node: str) -> None:
        """Tell the pool of a node that is up; the other agents of its host share their CPUs with it from now on."""
        self._feed(node)
        self._shared_anew(self._nodes.rows[node]["host"], but=node)

    def lost(self, host: str) -> None:
        """Let the other agents of a host have the share of one that is gone."""
        self._shared_anew(host)

    async def tell(self, nodes: list[str]) -> None:
        """Tell nodes their number; one that is not reached is gone, or hears it as it comes up again."""
        ask = self._nodes.broker.ask_node
        await asyncio.gather(*(ask(node, "drlnb_cpu_slots", 5.0, **self.word(node)) for node in nodes))

    def _share(self, node: str) -> int:
        row: dict[str, Any] = self._nodes.rows[node]
        return cpu_share(row["n_cpus"], len(self._agents(row["host"])))

    def _agents(self, host: str) -> list[str]:
        return [node for node, row in self._nodes.rows.items() if row["host"] == host]

    def _feed(self, node: str) -> None:
        host = self._nodes.rows[node]["host"]
        self._nodes.broker.host.feed(placement.NodeAdded, node=node, host=host, n_collector_slots=self._share(node))

    def _shared_anew(self, host: str, but: str = "") -> None:
        others = [node for node in self._agents(host) if node != but]
        for node in others:
            self._feed(node)
        if others:
            self._nodes.broker.runs.keep(asyncio.ensure_future(self.tell(others)))
