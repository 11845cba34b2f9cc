"""Keep one publisher's parameters on a worker: the plugin of those who publish without a training around."""

from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import WorkerPlugin

from drlnb.runtime.distribution.relay import HostRelay

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["RelayPlugin"]


class RelayPlugin(WorkerPlugin):  # type: ignore[misc]
    """One publisher's part of a worker's relay.

    Parameters
    ----------
    task, attempt
        Name of what is published, and number of its publisher; a higher one came later.
    topic
        Topic of Dask's events that hears that the worker is up.
    publisher
        Who publishes, in words.
    """

    def __init__(self, task: str, attempt: int, topic: str, publisher: str) -> None:
        self._task, self._attempt, self._topic, self._publisher = task, attempt, topic, publisher

    async def setup(self, worker: "Worker") -> None:
        """Serve from now on; called by the worker."""
        self._relay = HostRelay.of(worker)
        self._relay.publishers[self._attempt] = self._publisher
        about = {"host": self._relay.link.node, "address": self._relay.link.address}
        worker.log_event(self._topic, {"op": "drlnb_up", "fields": about})

    async def teardown(self, worker: "Worker") -> None:
        """Give the parameters' memory back; called by the worker."""
        del worker
        self._relay.drop("", self._task, self._attempt)
        await self._relay.leave()
