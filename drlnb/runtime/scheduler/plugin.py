"""Host the pool's machine and the register of runs in the Dask scheduler: the one authority of a cluster.

It holds no rule about leases: handlers turn messages into events, effects turn commands into answers.  It runs in the
scheduler's event loop, so everything here is short; files are written by threads.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import SchedulerPlugin

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement.cpu_slots import CPU_SLOTS_KEY
from drlnb.planning.pool import PoolMachine
from drlnb.planning.registry import Planners
from drlnb.planning.settings import SLOT_KEYS, setting_problem, takes_effect
from drlnb.records.base import Record
from drlnb.records.columns import leasing, placement
from drlnb.records.common import LoopLagged, SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.runtime.files.lock import machine
from drlnb.runtime.ipc.descriptors import raise_limit
from drlnb.runtime.machine_host import EffectTable, MachineHost, by_class
from drlnb.runtime.protocol import (
    AGENT,
    BROKER,
    PROTOCOL,
    SOON_S,
    Handler,
    Plain,
    ask,
    drlnb_version,
    pool_task,
    serve,
    split_pool_task,
    table,
)
from drlnb.runtime.scheduler.anchors import Anchors
from drlnb.runtime.scheduler.grants import Grants
from drlnb.runtime.scheduler.nodes import Nodes
from drlnb.runtime.scheduler.runs import KEEP_S, Runs
from drlnb.runtime.scheduler.user_leases import Loops

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

__all__ = ["BrokerPlugin"]

#: Longest wait for the agents to end when drlnb leaves a cluster, in seconds.
_LEAVE_S = 8.0


class BrokerPlugin(SchedulerPlugin):  # type: ignore[misc]
    """Leases, placement, nodes and runs of one cluster.

    Parameters
    ----------
    settings
        Settings of leasing, plain data.
    """

    name = BROKER
    idempotent = True

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._settings = dict(settings or {})

    async def start(self, scheduler: "Scheduler") -> None:
        """Install the handlers; called by the scheduler."""
        self.scheduler = scheduler
        raise_limit()
        #: Who this broker is.  The pool's epoch begins with it, and is raised above those of journals that it takes on.
        self.epoch = time.time_ns()
        settings = LeasingSettings.from_mapping(self._settings)
        self.pool = PoolMachine(settings, self.epoch, self._planners_of)
        self.runs = Runs(self)
        self.nodes = Nodes(self)
        self.anchors = Anchors(self)
        self.grants = Grants(self)
        self.loops = Loops(self)
        sinks: list[Callable[[Record], None]] = [self.runs.pool_record, self.grants.on_record, self.loops.on_record]
        effects: EffectTable = {
            leasing.SendGrant: self.grants.send,
            leasing.RevokeLease: self._revoke,
            # A holder that is not reached keeps its slot for the round.
            leasing.AskYield: lambda asked: self.ask_node(asked.node, "drlnb_yield", SOON_S, fence=asked.fence),
            placement.SendPlacement: lambda command: None,  # it is the answer to who has asked
        }
        self.host = MachineHost(self.pool, by_class(effects), sinks)
        self.host.on_defect = self.runs.defect
        self._lag: asyncio.Task[None] | None = None
        #: Fleet on a cluster of somebody else's -> its client.
        self._fleets: dict[str, str] = {}
        self._leaving: asyncio.Task[None] | None = None
        self._begin_watch()
        for part in (self, self.nodes, self.runs, self.grants, self.loops):
            serve(scheduler.handlers, part.handlers())

    def handlers(self) -> dict[str, Handler]:
        """Return the messages that are answered here."""
        return table(self, "hello", "goodbye", "worker_unused", "place", "pool_set")

    async def close(self) -> None:
        """End with the scheduler."""
        if self._lag is not None:
            self._lag.cancel()
        self.anchors.close()
        self.loops.close()
        await self.host.close()
        await self.runs.close()

    def remove_worker(self, scheduler: "Scheduler", worker: str, *, stimulus_id: str, **kwargs: object) -> None:
        """Forget a worker that is gone: its node's slots, masters and collectors are gone, too."""
        del scheduler, stimulus_id, kwargs
        self.nodes.lost(worker, "the worker left the cluster")

    def transition(self, key: object, start: str, finish: str, *args: object, **kwargs: object) -> None:
        """Pass on what became of a Dask task that may be an anchor."""
        del start, args
        # Of a worker that died too often Dask has no text.
        why = kwargs.get("exception_text") or "its workers died more often than allowed-failures permits"
        self.anchors.transition(str(key), finish, str(why), str(kwargs.get("worker", "")))

    def restart(self, scheduler: "Scheduler") -> None:
        """Go on after the cluster is restarted: Dask has forgotten every task, its workers end and come back."""
        del scheduler
        self.anchors.restarted()

    def valid_workers_downscaling(self, scheduler: "Scheduler", workers: "list[WorkerState]") -> "list[WorkerState]":
        """Veto the closing of workers while a run lives or a loop is open, and of those with slots while a fleet is."""
        if self.runs.any_live or self.loops.any_open:
            return []
        needed = {self.nodes.addresses.get(node) for node in self.nodes.given} if self._any_fleet else set()
        return [worker for worker in workers if worker.address not in needed]

    # ------------------------------------------------------------------ the end of the last fleet
    def remove_client(self, scheduler: "Scheduler", client: str) -> None:
        """Leave, after a while, if the client of the last fleet has gone without a word."""
        del scheduler
        if client in self._fleets.values():
            self.leave_later()

    @property
    def _any_fleet(self) -> bool:
        """Whether the client of any fleet is there."""
        return any(client in self.scheduler.clients for client in self._fleets.values())

    def leave_later(self) -> None:
        """Leave in a while if nobody needs us then: whoever comes back late finds what became of a run."""
        asyncio.get_running_loop().call_later(KEEP_S, self._leave_if_unused)

    def _leave_if_unused(self) -> None:
        used = self.runs.any_live or self.loops.any_open or self._any_fleet
        if self.nodes.pool.shared and not used and self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def _leave(self) -> None:
        """Remove our plugins from the cluster: agents end with all their children, workers that join get none."""
        with contextlib.suppress(OSError, TimeoutError, ValueError):  # one that does not answer ends its own later
            await asyncio.wait_for(self.scheduler.unregister_worker_plugin(None, AGENT), _LEAVE_S)
        if BROKER in self.scheduler.plugins:
            self.scheduler.remove_plugin(BROKER)
            await self.close()
        for op in [op for op in self.scheduler.handlers if op.startswith("drlnb_")]:
            del self.scheduler.handlers[op]

    # ------------------------------------------------------------------ messages
    async def hello(self, protocol: int = PROTOCOL, fleet: str = "", client: str = "") -> Plain:
        """Return who we are, and count a fleet; one that comes while we leave waits until that is over."""
        del protocol
        leaving = self._leaving
        if leaving is not None:
            await asyncio.wait([leaving])
        elif fleet:
            self.nodes.pool.shared = True
            self._fleets[fleet] = client
        about = {"protocol": PROTOCOL, "version": drlnb_version(), "epoch": self.epoch, "t": self.host.now}
        where = {"pid": os.getpid(), "host": socket.gethostname(), "boot": machine()}
        return {**about, **where, "leaving": leaving is not None}

    async def goodbye(self, fleet: str) -> None:
        """Forget a fleet that is closed; leave with the last one, unless something goes on.

        It is answered when we have left: the cluster may be closed next, which would cut the agents' ends short.
        """
        self._fleets.pop(fleet, None)
        self._leave_if_unused()
        if self._leaving is not None:
            await asyncio.wait([self._leaving])

    async def worker_unused(self, node: str, address: str, why: str) -> None:
        """Record a worker that has no agent, and why."""
        del node
        self.nodes.unused[address] = why
        self.nodes.wake()

    async def place(
        self, task: str, attempt: int, node: str, n_collectors: int, planner: str = "", n_learners: int = 1
    ) -> Plain:
        """Return where a task's collectors live."""
        if not await self.nodes.becomes(lambda: self.pool.n_slots > 0, self.pool.settings.poll_s):
            return {"pending": True}
        asked = {"task": task, "attempt": attempt, "node": node, "planner": planner, "n_learners": n_learners}
        answers = self.host.feed_for(
            placement.SendPlacement, placement.PlacementAsked, n_collectors=n_collectors, **asked
        )
        if not answers:  # no node is up, or a later attempt has begun
            await asyncio.sleep(self.pool.settings.poll_s)
            return {"pending": True}
        if refusal := answers[0].refusal:
            return {"refused": refusal}
        return {"collector_nodes": list(answers[0].collector_nodes), "addresses": self.nodes.addresses}

    def check_pool(self, key: str, value: object) -> None:
        """Raise ConfigError if the pool cannot change a setting so, beside those in force."""
        in_force = {f"leasing.{name}": now for name, now in asdict(self.pool.settings).items()}
        if problem := setting_problem(key, value, in_force=in_force, slots=self.nodes.pool.slot_names):
            raise ConfigError(problem)
        if key in SLOT_KEYS and value not in self.pool.slots:
            raise ConfigError(f"{key}: the executor of {value} is not up yet; try again in a moment")

    async def pool_set(self, key: str, value: object, task: str | None = None) -> None:
        """Change a setting of the pool, or of a task in it; nothing is journalled of one that cannot be changed so."""
        self.check_pool(key, value)
        change = {"key": key, "value": value, "task": task, "counts": takes_effect(key)}
        for refused in self.host.feed_for(leasing.RequestRefused, SettingChanged, **change):
            if refused.subject == key:  # others are of tasks that can go on no more
                raise ConfigError(refused.reason)
        if key == CPU_SLOTS_KEY:
            await self.nodes.send_cpu_slots(list(self.nodes.rows))
        elif key == "slot.undrain":
            await self.nodes.undrained(str(value))
        elif key == "leasing.reap_s":
            self._begin_watch()

    def forget_task(self, run: str, task: str, attempt: int, reason: str) -> None:
        """End everything of a task that has ended."""
        name = pool_task(run, task)
        self.host.feed(placement.TaskStopped, task=name, attempt=attempt, reason=reason)
        self.grants.forget_task(name)

    # ------------------------------------------------------------------ commands
    def _planners_of(self, task: str) -> Planners:
        """Return the planners of a task's run."""
        live = self.runs.live.get(split_pool_task(task)[0])
        return Planners() if live is None else live.planners

    async def _revoke(self, command: leasing.RevokeLease) -> None:
        """Stop the work of a lost lease, and report when its slot is idle (no timer ever frees a slot)."""
        _, quiet = await asyncio.gather(
            self.nodes.send_to_masters("drlnb_lease_lost", fence=command.fence, reason=command.reason),
            self.nodes.revoke(command.slot, command.fence, self.pool.settings.kill_grace_s),
        )
        if quiet:
            self.host.feed(leasing.ExecutorIdled, slot=command.slot, fence=command.fence)
        # else: the executor was killed and its successor reports itself; or its node is gone and so is the slot.

    def _begin_watch(self) -> None:
        """Watch this loop from now on; a look that was due later, by another setting, is not waited for."""
        if self._lag is not None:
            self._lag.cancel()
        self._lag = asyncio.get_running_loop().create_task(self._watch_lag())

    async def _watch_lag(self) -> None:
        """Notice when this loop stood still: silence during that time is nobody's fault."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self.pool.settings.reap_s
            await asyncio.sleep(self.pool.settings.reap_s)
            lag_s = loop.time() - due
            if lag_s > self.pool.settings.lag_threshold_s:
                self.host.feed(LoopLagged, lag_s=lag_s)

    async def ask_node(self, node: str, op: str, timeout_s: float | None, /, **message: object) -> Plain | None:
        """Call a node agent's handler; ``None`` if it cannot be reached in time."""
        address = self.nodes.addresses.get(node)
        if address is None:
            return None
        with contextlib.suppress(OSError, TimeoutError):
            return await ask(self.scheduler.rpc(address), op, timeout_s, message)
        return None
