"""The node agent: one plugin in each Dask worker, wiring only.

It hosts the masters of the tasks whose anchors run here, this node's collectors and executors, and the host stores of
the tasks that act here.  It imports neither torch nor gymnasium: its children do.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import uuid
from pathlib import Path
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin
from distributed.protocol import to_serialize

from drlnb.runtime.ipc.lifeline import become
from drlnb.runtime.ipc.start_modes import Zygote
from drlnb.runtime.master.master import AGAIN, Master
from drlnb.runtime.node.collectors import NodeCollectors
from drlnb.runtime.node.cpu_queue import n_cpus
from drlnb.runtime.node.devices import find_devices
from drlnb.runtime.node.slots import NodeSlots
from drlnb.runtime.node.stores import Stores
from drlnb.runtime.protocol import AGENT, PROTOCOL, RPC_TIMEOUT_S, drlnb_version, refused

__all__ = ["AgentPlugin"]

#: Pause before a master registers itself again with a broker that did not answer, in seconds.
_ATTACH_AGAIN_S = 0.2


class AgentPlugin(NodeSlots, NodeCollectors, WorkerPlugin):  # type: ignore[misc]
    """Children, stores and masters of one node.

    Parameters
    ----------
    own_cluster
        Whether the cluster was started by drlnb: then the worker's process takes our title.
    """

    name = AGENT
    idempotent = True

    def __init__(self, *, own_cluster: bool = False) -> None:
        self._own_cluster = own_cluster

    async def setup(self, worker: Any) -> None:
        """Start the agent; called by the worker."""
        if self._own_cluster:
            become("drlnb worker")
        self.worker = worker
        self.node = str(worker.name)
        self.server_id = uuid.uuid4().hex
        self.directory = Path(worker.local_directory) / "drlnb"
        self.epoch = 0
        self.masters: dict[tuple[str, str], Master] = {}
        #: (run, task) -> a person's wishes since its master here began to register itself.
        self._attaching: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._closed = False
        self.stores = Stores(self)
        self._background: set[asyncio.Task[Any]] = set()
        self.begin_slots()
        self.zygote: Zygote | None = Zygote(self.directory / "zygote.log") if hasattr(os, "fork") else None
        if self.zygote is not None:
            await self.zygote.start()
        self.handlers = {
            **self.begin_collectors(),
            "drlnb_slots": self.slots,
            "drlnb_slot_hurry": self.hurry,
            "drlnb_revoke": self.revoke,
            "drlnb_yield": self.ask_yield,
            "drlnb_lease_lost": self.lease_lost,
            "drlnb_node_lost": self.node_lost,
            "drlnb_control": self.control,
            "drlnb_compute": self.compute,
            "drlnb_interrupt": self.interrupt,
            "drlnb_asked": self.asked,
            "drlnb_chunk": self.stores.chunk,
            "drlnb_end_task": self.end_task,
        }
        for name, handler in self.handlers.items():
            worker.handlers[name] = handler
        self.keep(self._report_up())

    async def teardown(self, worker: Any) -> None:
        """End every child; called by the worker when it closes in good order."""
        del worker
        self._closed = True
        for master in list(self.masters.values()):
            await master.abort("the worker is closing")
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.collectors.stop_all()
        if self.zygote is not None:
            await self.zygote.end()
        await asyncio.gather(*(executor.end() for executor in self.executors.values()))
        self.stores.close()
        self.segments.close()

    def keep(self, coroutine: Any) -> "asyncio.Task[Any]":
        """Run something in the background until it is done or the agent ends."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _report_up(self) -> None:
        """Tell the broker about this node; again and again until it hears."""
        devices, why_not = await find_devices(self.directory / "probe.log")
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                reply = await self.ask_broker(
                    "drlnb_agent_up",
                    node=self.node,
                    address=self.worker.address,
                    server_id=self.server_id,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    n_cpus=n_cpus(),
                    devices=devices,
                    why_no_cuda=why_not,
                    version=drlnb_version(),
                    protocol=PROTOCOL,
                )
                if reply is not None and "epoch" in reply:
                    self.epoch = reply["epoch"]
                    await self.cpu_slots(**reply["cpu_slots"])
                    await self.slots(reply["slots"])
                    return
            await asyncio.sleep(0.2)

    # ------------------------------------------------------------------ talking to others
    async def ask_broker(self, op: str, /, *, timeout_s: float = RPC_TIMEOUT_S, **message: Any) -> Any:
        """Call a handler of the broker."""
        return await asyncio.wait_for(getattr(self.worker.scheduler, op)(**message), timeout_s)

    async def call(
        self, address: str, op: str, /, *, timeout_s: float | None = RPC_TIMEOUT_S, payload: Any = b"", **message: Any
    ) -> dict[str, Any]:
        """Call a handler of an agent; of this one without a wire.

        Raises
        ------
        OSError
            If the other agent cannot be reached, is not an agent any more, or does not answer in time.
        """
        if address == self.worker.address:
            reply: dict[str, Any] = await self.handlers[op](payload=payload, **message)
            return reply
        rpc = getattr(self.worker.rpc(address), op)
        try:
            reply = await asyncio.wait_for(rpc(payload=to_serialize(memoryview(payload)), **message), timeout_s)
        except TimeoutError:
            raise ConnectionError(f"{address} did not answer {op} in {timeout_s:g} s") from None
        if reply is None:
            raise ConnectionError(f"{address} does not know {op}")
        return reply

    # ------------------------------------------------------------------ masters
    async def run_master(self, run: str, task: str) -> str:
        """Host one task's master until the task ends; the anchor waits for it."""
        for n_replay_losses in itertools.count():
            # The broker tells this node of wishes once it has answered, and they may overtake its answer.
            wishes = self._attaching[run, task] = []
            try:
                attached = await self._attach(run, task)
                if "error" in attached:
                    return str(attached["message"])
                former = self.masters.get((run, task))
                if former is not None:
                    await former.abort("another attempt has begun")
                master = self.masters[run, task] = Master(self, run, task, attached, n_replay_losses)
            finally:
                self._attaching.pop((run, task), None)
            if attached["wanted"]:
                wishes.insert(0, {"action": attached["wanted"]})
            try:
                ended = await master.run_to_end(wishes)
            finally:
                if self.masters.get((run, task)) is master:
                    del self.masters[run, task]
            if ended != AGAIN:
                break
        return ended

    async def _attach(self, run: str, task: str) -> Any:
        """Ask the broker for a new attempt of a task until it answers; the same request again is the same attempt."""
        request = uuid.uuid4().hex
        while not self._closed:
            with contextlib.suppress(OSError, TimeoutError):
                return await self.ask_broker("drlnb_task_attach", run=run, task=task, node=self.node, request=request)
            await asyncio.sleep(_ATTACH_AGAIN_S)
        return refused("over", "the worker is closing")

    async def control(self, run: str, task: str, action: str, payload: Any = b"", **how: Any) -> dict[str, Any]:
        """Pass a person's wish on to the master here, or to the one that registers itself."""
        del payload
        if (run, task) in self._attaching:
            self._attaching[run, task].append({"action": action, **how})
        master = self.masters.get((run, task))
        if master is not None:
            problem = await master.control(action, **how)
            return {"refused": problem} if problem else {"ok": True}
        return {"ok": True}

    async def lease_lost(self, fence: Any, reason: str, payload: Any = b"") -> dict[str, Any]:
        """Tell the master here whose lease this was."""
        del payload
        for master in self.masters.values():
            master.lease_lost((fence[0], fence[1]), reason)
        return {"ok": True}

    async def ask_yield(self, fence: Any, payload: Any = b"") -> dict[str, Any]:
        """Tell the master here whose lease this is that somebody waits for its slot."""
        del payload
        for master in self.masters.values():
            master.yield_asked((fence[0], fence[1]))
        return {"ok": True}

    async def node_lost(self, node: str, reason: str, address: str, payload: Any = b"") -> dict[str, Any]:
        """Tell every master here that a node is gone that was at an address."""
        del payload
        for master in self.masters.values():
            master.node_lost(node, reason, address)
        return {"ok": True}

    async def end_task(self, run: str, task: str, attempt: int, payload: Any = b"") -> dict[str, Any]:
        """End the collectors of a task here, forget its model and its store."""
        del payload
        await self.collectors.stop_task(run, task, below_attempt=attempt + 1)
        self.stores.drop(run, task, attempt)
        self.forget_model(f"{run}/{task}", attempt)
        return {"ok": True}
