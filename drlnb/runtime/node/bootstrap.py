"""Start the node agent on a worker where drlnb is installed, and report why not where it is not.

Dask gives a cluster's plugins to every worker that joins, and a worker that cannot unpickle one ends at its start.  So
this one travels by value, imports nothing of drlnb before it knows that it is there, and never raises.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed.diagnostics.plugin import WorkerPlugin

from drlnb.runtime.files import versions

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["Bootstrap", "by_value"]

#: Longest wait for the broker to take a report, in seconds.
_REPORT_S = 15.0


class Bootstrap(WorkerPlugin):  # type: ignore[misc]
    """What becomes the agent of one node, or stays and says why there is none.

    Parameters
    ----------
    name
        Of the agent among a worker's plugins.
    wanted
        The client's versions.
    own_cluster
        Whether the cluster was started by drlnb.
    """

    idempotent = True

    def __init__(self, name: str, wanted: Mapping[str, str], *, own_cluster: bool = False) -> None:
        self.name, self._wanted, self._own_cluster = name, dict(wanted), own_cluster
        #: Why this worker is not used; empty while that is open.
        self.why = ""

    async def setup(self, worker: "Worker") -> None:
        """Start the agent in this plugin's place, or report why there is none; called by the worker."""
        self.why = versions.problem(versions.versions(), self._wanted)
        if not self.why:
            try:
                from drlnb.runtime.node.plugin import AgentPlugin

                agent = AgentPlugin(own_cluster=self._own_cluster)
                await agent.setup(worker)
                worker.plugins[self.name] = agent
            except Exception as error:  # noqa: BLE001 - Dask would end the worker
                self.why = f"cannot start drlnb's agent: {type(error).__name__}: {error}"
        if self.why:
            about = {"node": str(worker.name), "address": worker.address, "why": self.why}
            try:
                await asyncio.wait_for(worker.scheduler.drlnb_worker_unused(**about), _REPORT_S)
            except (OSError, TimeoutError):
                return  # whoever waits for this worker names it


def by_value(value: object) -> bytes:
    """Return something of this module or of :mod:`drlnb.runtime.files.versions` for a process that may lack drlnb."""
    import drlnb.runtime.node.bootstrap as here

    modules: tuple[Any, ...] = (here, versions)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        packed: bytes = cloudpickle.dumps(value)
        return packed
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
