"""The one authority of a cluster: a scheduler plugin that hosts the pool's machine and the register of runs.

It holds no rule about leases: handlers turn messages into events, effects turn commands into answers.  It runs in the
scheduler's event loop, so everything here is short; files are written by threads.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping
from dataclasses import asdict
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.pool import PoolMachine
from drlnb.planning.settings import SLOT_KEYS, setting_problem, takes_effect
from drlnb.planning.warmup.cpu_slots import CPU_SLOTS_KEY
from drlnb.records.base import Command, Record
from drlnb.records.columns import leasing, placement
from drlnb.records.common import LoopLagged, SettingChanged
from drlnb.records.ids import Fence
from drlnb.runtime.machine_host import MachineHost
from drlnb.runtime.protocol import BROKER, PROTOCOL, drlnb_version, pool_task, refused, split_pool_task
from drlnb.runtime.scheduler.anchors import Anchors
from drlnb.runtime.scheduler.nodes import Nodes
from drlnb.runtime.scheduler.runs import Runs

__all__ = ["BrokerPlugin"]


class BrokerPlugin(SchedulerPlugin):  # type: ignore[misc]
    """Leases, placement, nodes and runs of one cluster.

    Parameters
    ----------
    settings
        Settings of leasing, plain data.
    """

    name = BROKER
    idempotent = True

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._settings = dict(settings or {})

    async def start(self, scheduler: Any) -> None:
        """Install the handlers; called by the scheduler."""
        self.scheduler = scheduler
        #: Who this broker is.  The pool's epoch begins with it, and is raised above those of journals that it takes on.
        self.epoch = time.time_ns()
        settings = LeasingSettings.from_mapping(self._settings)
        self.pool = PoolMachine(settings, self.epoch)
        self.runs = Runs(self)
        self.nodes = Nodes(self)
        self.anchors = Anchors(self)
        self.host = MachineHost(self.pool, self._effect, [self.runs.pool_record, self._hear_ends])
        self.host.on_defect = self.runs.defect
        self._grants: dict[str, asyncio.Future[dict[str, Any]]] = {}
        #: Fence of a lease -> its request, and the settings that it was granted with: the answer is kept as long as
        #: the lease, for whoever asks once more.
        self._granted: dict[Fence, tuple[str, dict[str, Any]]] = {}
        self._placements: dict[tuple[str, int], asyncio.Future[dict[str, Any]]] = {}
        self._lag: asyncio.Task[None] | None = None
        self._begin_watch()
        for name, handler in self._handlers().items():
            scheduler.handlers[name] = handler

    def _handlers(self) -> dict[str, Any]:
        return {
            "drlnb_hello": self.hello,
            "drlnb_acquire": self.acquire,
            "drlnb_renew": self.renew,
            "drlnb_release": self.release,
            "drlnb_place": self.place,
            "drlnb_pool_set": self.set_pool,
            **self.nodes.handlers(),
            **self.runs.handlers(),
        }

    async def close(self) -> None:
        """End with the scheduler."""
        if self._lag is not None:
            self._lag.cancel()
        self.anchors.close()
        await self.host.close()
        self.runs.close()

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Hear that a worker is gone: its node's slots, masters and collectors are, too."""
        del scheduler, stimulus_id, kwargs
        self.nodes.lost(worker, "the worker left the cluster")

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Hear what became of a Dask task that may be an anchor."""
        del start, args
        # Of a worker that died too often Dask tells no text.
        why = kwargs.get("exception_text") or "its workers died more often than allowed-failures permits"
        self.anchors.transition(key, finish, str(why))

    def restart(self, scheduler: Any) -> None:
        """Hear that the cluster is restarted: Dask has forgotten every task, its workers end and come back."""
        del scheduler
        self.anchors.restarted()

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Veto the closing of workers while a run lives: their slots and collectors are in use."""
        del scheduler
        return [] if self.runs.any_live else workers

    # ------------------------------------------------------------------ messages
    async def hello(self, protocol: int = PROTOCOL) -> dict[str, Any]:
        """Say who we are."""
        del protocol
        return {"protocol": PROTOCOL, "version": drlnb_version(), "epoch": self.epoch, "t": self.host.now}

    async def acquire(
        self,
        request_id: str,
        task: str,
        attempt: int,
        round: int,
        node: str,
        known: bool = False,
        yields: bool = False,
    ) -> dict[str, Any]:
        """Wait for a slot, at most ``poll_s``; a repeat (`known`) goes on waiting."""
        future = self._grants.get(request_id)
        if future is None or (known and future.done()):
            # New; or its answer was lost on the way: the pool repeats the grant, or lines it up again if that expired.
            future = self._grants[request_id] = asyncio.get_running_loop().create_future()
            self.host.feed(
                leasing.SlotRequested,
                request_id=request_id,
                task=task,
                attempt=attempt,
                round=round,
                node=node,
                yields=yields,
            )
        elif known:
            self.host.feed(leasing.RequestPolled, request_id=request_id)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.pool.settings.poll_s)
        except TimeoutError:
            return {"pending": True}

    async def renew(self, fence: tuple[int, int], n_progress: int) -> dict[str, Any]:
        """Keep a lease alive; ``lost`` if it is not the holder's any more."""
        refusals = self.host.feed_for(
            leasing.RequestRefused, leasing.LeaseRenewed, fence=_fence(fence), n_progress=n_progress
        )
        return {"lost": refusals[0].reason} if refusals else {"ok": True}

    async def release(
        self, fence: tuple[int, int], clean: bool, computed_s: float, yielded: bool = False
    ) -> dict[str, Any]:
        """Take a lease back."""
        refusals = self.host.feed_for(
            leasing.RequestRefused,
            leasing.LeaseReturned,
            fence=_fence(fence),
            clean=clean,
            computed_s=computed_s,
            yielded=yielded,
        )
        return {"refused": refusals[0].reason} if refusals else {"ok": True}

    async def place(self, task: str, attempt: int, node: str, n_collectors: int, planner: str = "") -> dict[str, Any]:
        """Say where a task's collectors live."""
        if not await self.nodes.any_slot(self.pool.settings.poll_s):
            return {"pending": True}
        key = (task, attempt)
        future = self._placements[key] = asyncio.get_running_loop().create_future()
        wish = {"node": node, "n_collectors": n_collectors, "planner": planner}
        self.host.feed(placement.PlacementAsked, task=task, attempt=attempt, **wish)
        try:
            answer = await asyncio.wait_for(future, self.pool.settings.poll_s)
        except TimeoutError:
            return {"pending": True}
        return {**answer, "addresses": self.nodes.addresses}

    def forget_grant(self, request_id: str) -> None:
        """Forget the answer that is kept for whoever asks as tasks do: this request was answered by another door."""
        self._grants.pop(request_id, None)

    def pool_problem(self, key: str, value: Any) -> str:
        """Return why the pool cannot change a setting so, beside those in force; empty if it can."""
        in_force = {f"leasing.{name}": now for name, now in asdict(self.pool.settings).items()}
        if problem := setting_problem(key, value, in_force=in_force, slots=self.nodes.slot_names):
            return problem
        return self.nodes.drain_problem(key, value) if key in SLOT_KEYS else ""

    async def set_pool(self, key: str, value: Any, task: str | None = None) -> dict[str, Any]:
        """Change a setting of the pool, or of a task in it; nothing is journalled of one that cannot be changed so."""
        if problem := self.pool_problem(key, value):
            return refused("ConfigError", problem)
        change = {"key": key, "value": value, "task": task, "counts": takes_effect(key)}
        problems = self.host.feed_for(leasing.RequestRefused, SettingChanged, **change)
        if problems:
            return refused("ConfigError", problems[0].reason)
        if key == CPU_SLOTS_KEY:
            await self.nodes.cpus.tell(list(self.nodes.rows))
        elif key == "slot.undrain":
            await self.nodes.undrained(value)
        elif key == "leasing.reap_s":
            self._begin_watch()
        return {"ok": True}

    def go_beyond(self, epoch: int) -> None:
        """Let the pool's coming fences be above those of an epoch that a journal tells of (a clock may be set back)."""
        if epoch > self.pool.epoch:
            self.host.feed(leasing.EpochRaised, epoch=epoch + 1)

    def forget_task(self, run: str, task: str, attempt: int, reason: str) -> None:
        """Take everything from a task that has ended."""
        name = pool_task(run, task)
        self.host.feed(placement.TaskStopped, task=name, attempt=attempt, reason=reason)
        for request in [r for r in self._grants if r.startswith(f"{name}/")]:
            future = self._grants.pop(request)
            if not future.done():
                future.cancel()

    def restart_task(self, run: str, task: str, attempt: int) -> None:
        """Let a task ask again, as a new attempt."""
        self.host.feed(placement.TaskRestarted, task=pool_task(run, task), attempt=attempt)

    # ------------------------------------------------------------------ commands
    def _effect(self, command: Command) -> Coroutine[Any, Any, None] | None:
        if isinstance(command, leasing.SendGrant):
            self._grant(command)
        elif isinstance(command, placement.SendPlacement):
            future = self._placements.pop((command.task, command.attempt), None)
            if future is not None and not future.done():
                placed = {"collector_nodes": list(command.collector_nodes)}
                future.set_result({"refused": command.refusal} if command.refusal else placed)
        elif isinstance(command, leasing.RevokeLease):
            return self._revoke(command)
        elif isinstance(command, leasing.AskYield):
            return self._ask_yield(command)
        else:
            raise TypeError(f"no effect for {type(command).__name__}")
        return None

    def _grant(self, command: leasing.SendGrant) -> None:
        future = self._grants.get(command.request_id)
        if future is None or future.done():
            future = self._grants[command.request_id] = asyncio.get_running_loop().create_future()
        _, settings = self._granted.setdefault(command.fence, (command.request_id, asdict(self.pool.settings)))
        future.set_result({
            "fence": (command.fence.epoch, command.fence.token),
            "slots": [self.nodes.slot_row(slot) for slot in command.slots],
            "ttl_s": command.ttl_s,
            "waited_s": command.waited_s,
            "demand": command.demand,
            "n_slots": self.pool.n_slots,
            "resident": self.pool.is_resident(command.fence),
            # As they were at the grant, however often it is asked for: with a longer time to live than its lease's own,
            # a holder would go on after that has ended.  What changes counts from the next grant on.
            "settings": settings,
        })

    def _hear_ends(self, record: Record) -> None:
        """Answer who waits for a request that the pool has ended; forget what was said of a lease that is over."""
        if isinstance(record, leasing.RequestRefused):
            future = self._grants.pop(record.subject, None)
            if future is not None and not future.done():
                future.set_result({"refused": record.reason})
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired):
            self._grants.pop(self._granted.pop(record.fence, ("", {}))[0], None)

    async def _ask_yield(self, command: leasing.AskYield) -> None:
        """Tell a holder that somebody waits; one that is not reached keeps its slot for the round."""
        fence = (command.fence.epoch, command.fence.token)
        await self.ask_node(command.node, "drlnb_yield", 5.0, fence=fence)

    async def _revoke(self, command: leasing.RevokeLease) -> None:
        """Stop the work of a lost lease; say when its slot is idle (no timer ever frees a slot)."""
        fence = (command.fence.epoch, command.fence.token)
        _, quiet = await asyncio.gather(
            self.nodes.tell_masters("drlnb_lease_lost", fence=fence, reason=command.reason),
            self.nodes.revoke(command.slot, fence, self.pool.settings.kill_grace_s),
        )
        if quiet:
            self.host.feed(leasing.ExecutorIdled, slot=command.slot, fence=command.fence)
        # else: the executor was killed, its successor says ExecutorStarted; or its node is gone and so is the slot.

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

    def tasks_of(self, run: str) -> list[str]:
        """Return the pool's task names of a run; for tests."""
        return [name for name in self.pool.snapshot()["placed"] if split_pool_task(name)[0] == run]

    async def ask_node(self, node: str, op: str, timeout_s: float, /, **message: Any) -> dict[str, Any] | None:
        """Call a node agent's handler; ``None`` if it cannot be reached in time."""
        address = self.nodes.addresses.get(node)
        if address is None:
            return None
        with contextlib.suppress(OSError, TimeoutError):
            rpc = self.scheduler.rpc(address)
            reply: dict[str, Any] = await asyncio.wait_for(getattr(rpc, op)(**message), timeout_s)
            return reply
        return None


def _fence(pair: tuple[int, int]) -> Fence:
    return Fence(epoch=pair[0], token=pair[1])
