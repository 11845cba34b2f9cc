"""Start a plugin of ours on a worker where drlnb is installed, and report why not where it is not.

Dask gives a cluster's plugins to every worker that joins, and a worker that cannot unpickle one ends at its start.  So
this one travels by value, imports nothing of drlnb before it knows that it is there, and never raises.
"""

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from drlnb.runtime.files import versions

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

__all__ = ["Bootstrap", "Removals", "by_value"]

#: Longest wait for the broker to take a report, in seconds.
_REPORT_S = 15.0


class Bootstrap(WorkerPlugin):  # type: ignore[misc]
    """What becomes a plugin of ours on one worker, or stays and says why there is none.

    Parameters
    ----------
    name
        Of the plugin among a worker's.
    wanted
        The client's versions.
    plugin
        ``module:class`` of the plugin.
    says_to
        Topic of Dask's events that hears why there is none; empty: the broker hears it.
    **made_of
        Arguments of the plugin's class.
    """

    idempotent = True

    def __init__(self, name: str, wanted: Mapping[str, str], plugin: str, says_to: str = "", **made_of: object) -> None:
        self.name, self._wanted = name, dict(wanted)
        self._plugin, self._says_to, self._made_of = plugin, says_to, made_of
        #: Why this worker is not used; empty while that is open.
        self.why = ""

    async def setup(self, worker: "Worker") -> None:
        """Start the plugin in this one's place, or report why there is none; called by the worker."""
        self.why = versions.problem(versions.versions(), self._wanted, computes=not self._says_to)
        if not self.why:
            try:
                module, _, kind = self._plugin.partition(":")
                plugin = getattr(import_module(module), kind)(**self._made_of)
                await plugin.setup(worker)
                worker.plugins[self.name] = plugin
            except Exception as error:  # noqa: BLE001 - Dask would end the worker
                self.why = f"cannot start drlnb's agent: {type(error).__name__}: {error}"
        if not self.why:
            return
        about = {"node": str(worker.name), "address": worker.address, "why": self.why}
        if self._says_to:
            worker.log_event(self._says_to, {"op": "drlnb_worker_unused", "fields": about})
            return
        try:
            await asyncio.wait_for(worker.scheduler.drlnb_worker_unused(**about), _REPORT_S)
        except (OSError, TimeoutError):
            return  # whoever waits for this worker names it


class Removals(SchedulerPlugin):  # type: ignore[misc]
    """Reports workers that the scheduler removes to a topic of Dask's events.

    Parameters
    ----------
    name
        Of the plugin among the scheduler's.
    topic
        What hears of them.
    """

    def __init__(self, name: str, topic: str) -> None:
        self.name, self._topic = name, topic

    def remove_worker(self, scheduler: "Scheduler", worker: str, **_: object) -> None:
        """Report a worker that is gone; called by the scheduler."""
        scheduler.log_event(self._topic, {"op": "drlnb_down", "fields": {"address": worker}})


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
