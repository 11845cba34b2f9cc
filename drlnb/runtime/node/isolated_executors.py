"""Keep the tasks of a slot apart: one executor process per task, instead of one that serves them all.

A task's process starts at its first lease, stays with the task's model in it, and ends with the task; or before, when
there are too many, or memory is short: then the one that rested longest.  What ends it, such as the watchdog or a kill
for want of memory, ends no other task's.  Still one lease computes at a time, behind one gate.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from distributed.system import MEMORY_LIMIT

from drlnb.records.ids import Fence
from drlnb.runtime.background import Background
from drlnb.runtime.ipc.frames import Answer
from drlnb.runtime.node.executor_host import Executor, WorkGate
from drlnb.runtime.protocol import OWN, Payload, Plain

__all__ = ["Tenants"]

#: Stands for a task while a process is nobody's: the first task gets it.
_NOBODY = ""
#: Most processes of a slot: on CUDA each one has a context of its own (0.25-0.7 GiB).
_MOST = 16
#: Share of the memory that may be in use once one more process is up.
_MEMORY_FRAC = 0.9
#: Longest wait for a process's start, in seconds: it imports torch, perhaps beside others.
_UP_S = 90.0
#: Seconds for which the process of a user's loop outlives its last lease: nobody says that a loop has ended.
_LOOP_S = 60.0
#: Longest wait for a process to report its device's memory, in seconds.
_MEMORY_S = 5.0


#: Called with a slot whose first process is up.
_OnUp = Callable[["Tenants"], None]
#: Called with a slot, the task whose process has ended, the fence that it worked under last or None, and why.
_OnLost = Callable[["Tenants", str, Fence | None, str], None]


class Tenants:
    """The agent's end of a slot whose tasks have a process each; an :class:`Executor` to whoever uses it.

    Parameters
    ----------
    slot, device, log, gate, on_up
        As of :class:`Executor`; `on_up` is called once, when a first process has shown that the slot works.
    on_lost
        Called each time a task's process has ended before the task.
    """

    def __init__(self, slot: str, device: str, log: Path, gate: WorkGate, on_up: _OnUp, on_lost: _OnLost) -> None:
        self.slot, self.device, self.log, self._gate = slot, device, log, gate
        self._on_up, self._on_lost = on_up, on_lost
        self.epoch = 0
        self.device_name = ""
        #: Task -> its process; who rested longest is first.
        self._tenants: dict[str, Executor] = {}
        self._n_started = 0
        #: As of each of its executors.
        self.on_part: Callable[[Plain], None] | None = None
        #: One piece of work at a time, as with one process for all.
        self._serial = asyncio.Lock()
        self._ending = Background()
        #: Loop -> the timer that ends its process.
        self._leaving: dict[str, asyncio.TimerHandle] = {}

    @property
    def pids(self) -> list[int]:
        """Process ids of its children, the one that worked last at the end."""
        return [pid for executor in self._tenants.values() for pid in executor.pids]

    def start(self) -> None:
        """Start a first process, which shows that the slot works; it is nobody's yet."""
        self._begin(_NOBODY)

    def hurry(self) -> None:
        """Start a first process now if it rests because it died again and again."""
        for executor in self._tenants.values():
            executor.hurry()

    # ------------------------------------------------------------------ processes
    async def _tenant(self, task: str) -> Executor:
        """Return a task's process, up, as the one that worked last.

        Raises
        ------
        ConnectionError
            If it could not be started.
        """
        self._stay(task)
        if task not in self._tenants:
            if _NOBODY in self._tenants:
                self._tenants[task] = self._tenants.pop(_NOBODY)
                self._own(self._tenants[task], task)
            else:
                await self._make_room()
                self._begin(task)
        tenant = self._tenants[task] = self._tenants.pop(task)
        await tenant.wait_up(_UP_S)
        return tenant

    def _begin(self, task: str) -> None:
        """Start a process for a task."""
        self._n_started += 1
        log = self.log.with_name(f"{self.log.stem}-{self._n_started}{self.log.suffix}")
        tenant = self._tenants[task] = Executor(self.slot, self.device, log, self._gate, self._up, self._gone)
        tenant.again, tenant.on_part = task == _NOBODY, self.on_part
        tenant.start()

    def _own(self, tenant: Executor, task: str) -> None:
        tenant.again = False
        tenant.send({"op": "own", "slot": self.slot, "task": task.rpartition("/")[2]})

    def _task_of(self, tenant: Executor) -> str:
        return next((task for task, other in self._tenants.items() if other is tenant), _NOBODY)

    def _up(self, tenant: Executor) -> None:
        if self.epoch == 0:
            self.epoch, self.device_name = 1, tenant.device_name
            self._on_up(self)
        if task := self._task_of(tenant):
            self._own(tenant, task)

    def _gone(self, tenant: Executor, reason: str) -> None:
        """Drop a task's process that has ended by itself."""
        if task := self._task_of(tenant):
            self._lose(task, tenant.latest, f"executor {reason}")

    def _lose(self, task: str, fence: Fence | None, reason: str) -> None:
        """Drop a task's process, and with it what was done there under a lease."""
        self._drop(task)
        self._gate.close(fence)
        self._on_lost(self, task, fence, reason)

    def _leave(self, task: str) -> None:
        """End the process of a loop some time after its lease: it may never ask for another one."""
        if task.startswith(OWN) and task in self._tenants:
            self._stay(task)
            self._leaving[task] = asyncio.get_running_loop().call_later(_LOOP_S, self._drop, task)

    def _stay(self, task: str) -> None:
        timer = self._leaving.pop(task, None)
        if timer is not None:
            timer.cancel()

    def _drop(self, task: str) -> None:
        self._stay(task)
        tenant = self._tenants.pop(task, None)
        if tenant is not None:
            self._ending.keep(tenant.end())

    # ------------------------------------------------------------------ room
    async def _make_room(self) -> None:
        """End who rested longest until there is room for one more; nobody works meanwhile."""
        while len(self._tenants) >= _MOST:
            self._evict(f"{_MOST} processes are on the slot")
        while self._tenants and await _is_short(self.device, list(self._tenants.values())):
            self._evict("memory is short")
            await asyncio.gather(*self._ending, return_exceptions=True)

    def _evict(self, why: str) -> None:
        task = next(iter(self._tenants))
        self._drop(task)
        self._on_lost(self, task, None, f"ended: {why}")

    # ------------------------------------------------------------------ work
    async def ask(self, header: Plain, *payloads: Payload, timeout_s: float) -> Answer:
        """Have the process of the header's task compute; as :meth:`Executor.ask`.

        Raises
        ------
        ConnectionError
            If its process died, or one died in which this fence worked before.
        """
        task, fence = str(header["task"]), header["fence"]
        if header["op"] in {"job-end", "job-leave"}:
            tenant = self._tenants.get(task)
            if header["op"] == "job-end":
                self._leave(task)
            return await tenant.ask(header, timeout_s=timeout_s) if tenant is not None else ({"op": "freed"}, b"")
        if refusal := self._gate.admit(fence):
            return {"op": "refused", "reason": refusal}, b""
        async with self._serial:
            try:
                tenant = await self._tenant(task)
            except ConnectionError as error:
                self._lose(task, fence, str(error))
                raise
            if refusal := self._gate.admit(fence):  # it may have been lost while the process started
                return {"op": "refused", "reason": refusal}, b""
            return await tenant.ask(header, *payloads, timeout_s=timeout_s)

    def interrupt(self, fence: Fence) -> bool:
        """Interrupt a user's function that runs under `fence`; false if none does."""
        return any(tenant.interrupt(fence) for tenant in self._tenants.values())

    def send(self, header: Plain) -> None:
        """Send every process a frame that needs no answer."""
        for tenant in self._tenants.values():
            tenant.send(header)

    async def quiet(self, fence: Fence, grace_s: float) -> bool:
        """Wait until work of `fence` has ended; after `grace_s` end its process.  True: nothing of it runs."""
        self._gate.close(fence)
        for task, tenant in list(self._tenants.items()):
            busy = tenant.busy == fence
            if tenant.latest == fence:
                self._leave(task)
            if not await tenant.quiet(fence, grace_s if busy else 0.0) and busy:
                self._gone(tenant, "did not stop and was killed")
                await tenant.end()  # with this, nothing of it runs
        return True

    def forget(self, task: str) -> None:
        """End a task's process."""
        self._drop(task)

    async def end(self) -> None:
        """End every process for good."""
        every = list(self._tenants.values())
        for task in list(self._leaving):
            self._stay(task)
        self._tenants.clear()
        await asyncio.gather(*(executor.end() for executor in every), *self._ending, return_exceptions=True)


async def _is_short(device: str, tenants: Sequence[Executor]) -> bool:
    """Whether one more process would take the device, or RAM, above what may be in use."""
    if device.startswith("cuda"):
        used, total = await _device_memory(tenants[-1])
        need = used // len(tenants)  # other slots' share of the device is in it: rather too much than too little
        if total and used + need > _MEMORY_FRAC * total:
            return True
    rss: list[int] = []
    for pid in (pid for tenant in tenants for pid in tenant.pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            rss.append(psutil.Process(pid).memory_info().rss)
    return max(rss, default=0) > int(psutil.virtual_memory().available) - (1.0 - _MEMORY_FRAC) * int(MEMORY_LIMIT)


async def _device_memory(tenant: Executor) -> tuple[int, int]:
    """Return bytes in use on the device, by anybody, and in all; zeros if nobody says."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        answer = await asyncio.wait_for(tenant.memory(), _MEMORY_S)
        return int(answer["used_bytes"]), int(answer["total_bytes"])
    return 0, 0
