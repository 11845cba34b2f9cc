"""Wire the node agent: one plugin in each Dask worker.

It hosts the masters of the tasks whose anchors run here, this node's collectors and executors, and the host stores of
the tasks that act here.  It imports neither torch nor gymnasium: its children do.
"""

import os
import socket
import uuid
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import WorkerPlugin

from drlnb.runtime.distribution.relay import HostRelay
from drlnb.runtime.ipc.descriptors import raise_limit
from drlnb.runtime.ipc.lifeline import become
from drlnb.runtime.ipc.start_modes import Zygote
from drlnb.runtime.node.collector_host import CollectorHost
from drlnb.runtime.node.collectors import Collectors
from drlnb.runtime.node.cpu_slots import n_cpus
from drlnb.runtime.node.devices import find_devices
from drlnb.runtime.node.masters import Masters
from drlnb.runtime.node.slots import Slots
from drlnb.runtime.protocol import AGENT, PROTOCOL, drlnb_version, pool_task, table

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["AgentPlugin"]


class AgentPlugin(WorkerPlugin):  # type: ignore[misc]
    """Children, stores and masters of one node.

    Parameters
    ----------
    own_cluster
        Whether the cluster was started by drlnb: then the worker's process has our title.
    """

    name = AGENT
    idempotent = True

    def __init__(self, *, own_cluster: bool = False) -> None:
        self._own_cluster = own_cluster

    async def setup(self, worker: "Worker") -> None:
        """Start the agent; called by the worker."""
        if self._own_cluster:
            become("drlnb worker")
        #: Files that this node may have open; 0: any number.
        self.n_descriptors = raise_limit()
        self.relay = HostRelay.of(worker)
        self.link = self.relay.link
        self.link.closed = False  # a publisher may have kept it open since the former agent's end
        self.zygote = Zygote(self.link.directory / "zygote.log")
        self.processes = CollectorHost(self.zygote)
        self.slots = Slots(self.link)
        self.collectors = Collectors(self.link, self.processes, self.relay.path)
        self.masters = Masters(self.link, self.relay.senders)
        await self.zygote.start()
        self.link.serve({
            **table(self.slots, "compute", "interrupt", "asked", "revoke", "cut"),
            **table(self.slots.exchange, "take"),
            **table(self.slots.meetings, "part"),
            "drlnb_slots": self.slots.serve,
            "drlnb_slot_hurry": self.slots.hurry,
            **table(self.collectors, "probe_env", "cpu_slots"),
            "drlnb_collector_start": self.collectors.start,
            "drlnb_collector_stop": self.processes.rest,
            "drlnb_collector_ask": self.collectors.ask,
            **table(self.masters, "control", "collector_lost", "lease_lost", "node_lost"),
            "drlnb_yield": self.masters.yield_asked,
            **table(self, "end_task"),
        })
        self.link.keep(self._report_up())

    async def teardown(self, worker: "Worker") -> None:
        """End every child; called by the worker when it closes in good order."""
        del worker
        self.link.closed = True
        await self.masters.close()
        await self.link.close()
        await self.processes.stop_all()
        await self.zygote.end()
        await self.slots.close()
        await self.relay.leave()

    async def _report_up(self) -> None:
        """Report this node to the broker; again and again until it answers."""
        devices, why_not = await find_devices(self.link.directory / "probe.log")
        reply = await self.link.insist(
            "drlnb_agent_up",
            node=self.link.node,
            address=self.link.address,
            server_id=uuid.uuid4().hex,
            host=socket.gethostname(),
            pid=os.getpid(),
            n_cpus=n_cpus(),
            devices=devices,
            why_no_cuda=why_not,
            n_descriptors=self.n_descriptors,
            version=drlnb_version(),
            protocol=PROTOCOL,
        )
        if "epoch" in reply:
            await self.collectors.cpu_slots(**reply["cpu_slots"])
            await self.slots.serve(reply["slots"])

    async def end_task(self, run: str, task: str, attempt: int) -> None:
        """End the collectors of a task here, forget its model and its store."""
        await self.processes.stop_task(run, task, below_attempt=attempt + 1)
        self.relay.drop(run, task, attempt)
        self.slots.forget_model(pool_task(run, task), attempt)
