"""What does a node do for the slots that the pool gave to it?  The agent's part that speaks for their executors."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from drlnb.planning.leasing.fence import FenceGate
from drlnb.records.ids import Fence
from drlnb.runtime.ipc.shared_results import LEAST_BYTES, Segments
from drlnb.runtime.node.executor_host import Executor
from drlnb.runtime.node.isolated_executors import Tenants

__all__ = ["NodeSlots"]

#: Pause before a message about a slot is sent again that the broker did not answer, in seconds.
_TELL_AGAIN_S = 0.05


class NodeSlots:
    """The executors of one node."""

    node: str
    directory: Path
    #: Run something in the background until it is done or the agent ends.
    keep: Callable[[Coroutine[Any, Any, Any]], Any]
    #: Call a handler of the broker.
    ask_broker: Callable[..., Coroutine[Any, Any, Any]]

    def begin_slots(self) -> None:
        """Begin without any."""
        self.executors: dict[str, Executor | Tenants] = {}
        #: Slot -> its gate, which also outlives that the slot is closed and opened again.
        self._gates: dict[str, FenceGate] = {}
        self._telling = asyncio.Lock()
        self.segments = Segments(self.directory)
        #: Task -> bytes of its last result.
        self._made_bytes: dict[str, int] = {}
        #: Task -> highest attempt that has computed here.
        self._attempts: dict[str, int] = {}

    async def slots(self, slots: Any, payload: Any = b"") -> dict[str, Any]:
        """Start the executors of the slots that the pool gave to this node."""
        del payload
        sharing = Counter(row["device"] for row in slots)
        for row in slots:
            if row["slot"] not in self.executors:
                made = self._made(row["slot"], row["device"], row.get("isolation", "shared"), sharing[row["device"]])
                self.executors[row["slot"]] = made
                made.start()
        return {"ok": True}

    async def hurry(self, slot: str, payload: Any = b"") -> dict[str, Any]:
        """Start the executor of a slot now if it rests because it died again and again."""
        del payload
        executor = self.executors.get(slot)
        if executor is not None:
            executor.hurry()
        return {"ok": True}

    def _made(self, slot: str, device: str, isolation: str, n_sharing: int) -> Executor | Tenants:
        log = self.directory / f"executor-{slot.replace('/', '-')}.log"
        gate = self._gates.setdefault(slot, FenceGate())
        if isolation == "process":
            return Tenants(slot, device, log, self._executor_up, self._tenant_lost, gate)
        return Executor(slot, device, log, self._executor_up, self._executor_down, gate, n_sharing)

    def _tenant_lost(self, tenants: Tenants, task: str, fence: Fence | None, reason: str) -> None:
        pair = None if fence is None else (fence.epoch, fence.token)
        self.keep(self._tell_slot("drlnb_tenant_lost", slot=tenants.slot, task=task, fence=pair, reason=reason))

    def _executor_up(self, executor: Executor | Tenants) -> None:
        self.keep(
            self._tell_slot(
                "drlnb_slot_up",
                slot=executor.slot,
                device=executor.device,
                device_name=executor.device_name,
                executor_epoch=executor.epoch,
            )
        )

    def _executor_down(self, executor: Executor, reason: str) -> None:
        self.keep(self._tell_slot("drlnb_slot_down", slot=executor.slot, reason=reason))

    async def _tell_slot(self, op: str, /, **message: Any) -> None:
        """Tell the broker of a slot, in order, until it hears: late word of a death would end its successor's slot."""
        async with self._telling:
            while True:
                with contextlib.suppress(OSError, TimeoutError):
                    await self.ask_broker(op, node=self.node, **message)
                    return
                await asyncio.sleep(_TELL_AGAIN_S)

    async def compute(
        self, slot: str, header: Mapping[str, Any], watchdog_s: float, payload: Any = b"", state: Any = None
    ) -> dict[str, Any]:
        """Let an executor of this node compute.

        Parameters
        ----------
        slot, header, watchdog_s, payload
            Its slot, the frame, and after how many seconds without progress it is killed.
        state
            The task's training state, if the caller is of this node; else it is the payload's beginning.
        """
        executor = self.executors.get(slot)
        if executor is None:
            return {"op": "died", "reason": f"no executor serves {slot} on {self.node}"}
        work = self.keep(self._compute(executor, header, watchdog_s, payload, state))
        # Whoever asked may go; what is lent to the executor stays so until it has answered.
        return await asyncio.shield(work)

    async def _compute(
        self, executor: Executor | Tenants, header: Mapping[str, Any], watchdog_s: float, payload: Any, state: Any
    ) -> dict[str, Any]:
        task, more, payloads = header["task"], {}, [payload]
        if attempt := header.get("attempt"):
            self._attempts[task] = max(attempt, self._attempts.get(task, 0))
        if state is not None and (where := self.segments.find(state)):
            more = {"n_state": 0, "state_in": [*where, len(state)]}
        elif state is not None:
            payloads = [state, payload]
        lent = None
        if header["op"] == "finish" and self._made_bytes.get(task, 0) >= LEAST_BYTES:
            lent = self.segments.lend(self._made_bytes[task])
        if lent is not None:
            more = {"into": [lent[0].path, len(lent[1])]}
        try:
            answer, made = await executor.ask({**header, **more}, *payloads, timeout_s=watchdog_s)
        except ConnectionError as error:
            return {"op": "died", "reason": str(error)}
        if lent is not None and answer.get("n_shared"):
            made = lent[1][: answer["n_shared"]]
        if answer["op"] == "made":
            self._made_bytes[task] = len(made)
        return {**answer, "payload": made}

    def forget_model(self, task: str, attempt: int) -> None:
        """Forget a task's model on every executor, unless a later attempt than this one has computed here."""
        if self._attempts.get(task, 0) > attempt:
            return  # it may be in the middle of a round
        self._attempts.pop(task, None)
        self._made_bytes.pop(task, None)
        if not self._made_bytes:
            self.segments.trim()
        for executor in self.executors.values():
            executor.forget(task)

    async def interrupt(self, slot: str, fence: Any, payload: Any = b"") -> dict[str, Any]:
        """Interrupt a person's function that runs under a fence."""
        del payload
        executor = self.executors.get(slot)
        return {"found": executor is not None and executor.interrupt((fence[0], fence[1]))}

    async def asked(self, slot: str, fence: Any, payload: Any = b"") -> dict[str, Any]:
        """Hear that somebody waits for the slot that a person's loop holds by this fence."""
        del payload
        executor = self.executors.get(slot)
        if executor is not None:
            executor.asked_to_yield((fence[0], fence[1]))
        return {"ok": True}

    async def revoke(self, slot: str, fence: Any, grace_s: float, payload: Any = b"") -> dict[str, Any]:
        """Wait until the work of a fence has ended on a slot, or end it by force."""
        del payload
        executor = self.executors.get(slot)
        if executor is None:
            return {"idle": False}
        return {"idle": await executor.quiet((fence[0], fence[1]), grace_s)}
