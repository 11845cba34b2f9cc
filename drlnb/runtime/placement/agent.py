"""Make a Dask worker a slot: the plugin that says that it is up, and which of its members are to stop."""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from distributed.comm import get_address_host
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["SlotAgent", "end_worker", "resource", "stop_gang"]

#: Seconds that a worker which is to end has for its answer.
_ANSWER_S = 0.01
#: How often, and after how many seconds each, it is looked whether members have stopped for another placement.
_N_LOOKS, _LOOK_S = 100, 0.05


def resource(slot: str) -> str:
    """Return the name of the abstract resource that a slot's worker alone has."""
    return f"drlnb-slot-{slot}"


class SlotAgent(WorkerPlugin):  # type: ignore[misc]
    """Speaks for one worker.

    Parameters
    ----------
    topic
        Topic of Dask's events that hears it.
    owner
        Who places, in words.
    """

    def __init__(self, topic: str, owner: str) -> None:
        self._topic, self.owner = topic, owner
        #: Names this process: a worker that is restarted has another one.
        self.life = uuid.uuid4().hex
        self.slot = ""
        self.gangs = set[str]()
        self._stops = set[str]()

    async def setup(self, worker: "Worker") -> None:
        """Offer the worker as a slot; called by the worker.

        Raises
        ------
        RuntimeError
            If another placement computes here.
        """
        self._worker = worker
        for other in [plugin for plugin in worker.plugins.values() if isinstance(plugin, SlotAgent)]:
            await other.end_stopped()
            if other.gangs:
                raise RuntimeError(f"{other.owner} computes there: wait for it, or stop it")
            other.say("slot_taken", slot=other.slot, by=self.owner)
        # A nanny's address stays when its worker begins anew; a name that was not given is the worker's address.
        self.slot = str(worker.name if worker.name != worker.address else worker.nanny or worker.address)
        await worker.set_resources(**{resource(self.slot): 1})
        self._offer()

    def teardown(self, worker: "Worker") -> None:
        """Have members stop, and give a worker that goes on back to the placement that had it; called by the worker."""
        self._stops |= self.gangs
        others = [plugin for plugin in worker.plugins.values() if isinstance(plugin, SlotAgent)]
        if others and worker.status == Status.running:
            others[-1]._offer()

    def _offer(self) -> None:
        self.say(
            "slot_up",
            slot=self.slot,
            node=get_address_host(self._worker.address),
            address=self._worker.address,
            life=self.life,
            nanny=bool(self._worker.nanny),
        )

    def say(self, op: str, **fields: object) -> None:
        """Send something to whoever places; from any thread."""
        self._worker.log_event(self._topic, {"op": op, "fields": fields})

    @contextlib.contextmanager
    def running(self, gang: str, rank: int) -> Iterator[None]:
        """Say that a member runs, and know of it until it does no more."""
        self.gangs.add(gang)
        self.say("member_started", gang=gang, rank=rank)
        try:
            yield
        finally:
            self.gangs.discard(gang)

    def stop(self, gang: str) -> None:
        """Have the members of a gang stop, those that begin later, too."""
        self._stops.add(gang)

    def transition(self, key: object, start: str, finish: str, **_: object) -> None:
        """Have a member stop that nobody waits for: the process that placed it is gone; called by the worker."""
        runs = start in ("executing", "long-running")
        if runs and finish == "released" and str(key).startswith(f"{self._topic}/"):
            self.stop(str(key).rpartition("/")[0])

    async def end_stopped(self) -> None:
        """Wait a moment for members that are to stop, if there are no others: their process may have begun anew."""
        for _ in range(_N_LOOKS):
            if not self.gangs or not self.gangs <= self._stops:
                break
            await asyncio.sleep(_LOOK_S)

    def stops(self, gang: str) -> bool:
        """Return whether the members of a gang are to stop."""
        return gang in self._stops


def stop_gang(plugin: str, gang: str, dask_worker: "Worker") -> None:
    """Have a worker's members of a gang stop."""
    if agent := dask_worker.plugins.get(plugin):
        agent.stop(gang)


def end_worker(plugin: str, life: str, dask_worker: "Worker") -> None:
    """Kill the process of a worker, if it is the one that is meant and its nanny starts another one."""
    if getattr(dask_worker.plugins.get(plugin), "life", "") == life and dask_worker.nanny:
        dask_worker.loop.call_later(_ANSWER_S, os.kill, os.getpid(), signal.SIGKILL)
