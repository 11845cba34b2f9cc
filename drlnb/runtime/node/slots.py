"""Start the executors of the slots that the pool gave to a node, and have them compute."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from drlnb.records.ids import Fence
from drlnb.runtime.ipc.shared_memory import LEAST_BYTES, Segment, Segments
from drlnb.runtime.link import Link
from drlnb.runtime.node.exchange import EXCHANGED, Exchange
from drlnb.runtime.node.executor_host import Executor, WorkGate
from drlnb.runtime.node.isolated_executors import Tenants
from drlnb.runtime.node.meetings import Meetings
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Slots"]

#: Frames whose results may be large.
_LARGE = ("finish", *EXCHANGED)


class Slots:
    """The executors of one node, for which `link` speaks."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.executors: dict[str, Executor | Tenants] = {}
        #: Slot -> its gate, which also outlives that the slot is closed and opened again.
        self._gates: dict[str, WorkGate] = {}
        self._in_order = asyncio.Lock()
        self.segments = Segments()
        #: What the members of leases bring to one another.
        self.exchange = Exchange(link, self.segments)
        self.meetings = Meetings(link, self.segments, self._tell)
        #: Task -> bytes of its last result, by the frame that it answers.
        self._result_bytes: dict[str, dict[str, int]] = {}
        #: Task -> highest attempt that has computed here.
        self._attempts: dict[str, int] = {}

    async def close(self) -> None:
        """End every executor."""
        await asyncio.gather(*(executor.end() for executor in self.executors.values()))
        self.exchange.close()
        self.segments.close()

    async def serve(self, slots: Sequence[Mapping[str, str]]) -> None:
        """Start the executors of the slots that the pool gave to this node."""
        sharing = Counter(row["device"] for row in slots)
        for row in slots:
            if row["slot"] not in self.executors:
                made = self._made(row["slot"], row["device"], row["isolation"], sharing[row["device"]])
                made.on_part = self.meetings.brought
                self.executors[row["slot"]] = made
                made.start()

    async def hurry(self, slot: str) -> None:
        """Start the executor of a slot now if it rests because it died again and again."""
        if slot in self.executors:
            self.executors[slot].hurry()

    def _made(self, slot: str, device: str, isolation: str, n_sharing: int) -> Executor | Tenants:
        log = self._link.directory / f"executor-{slot.replace('/', '-')}.log"
        gate = self._gates.setdefault(slot, WorkGate(slot))
        if isolation == "process":
            return Tenants(slot, device, log, gate, self._report_up, self._tenant_lost)
        return Executor(slot, device, log, gate, self._report_up, self._down, n_sharing)

    # ------------------------------------------------------------------ reports to the broker
    def _report_up(self, executor: Executor | Tenants) -> None:
        """Report to the broker that an executor is up."""
        names = {"device": executor.device, "device_name": executor.device_name}
        self._report("drlnb_slot_up", slot=executor.slot, executor_epoch=executor.epoch, **names)

    def _down(self, executor: Executor, reason: str) -> None:
        self._report("drlnb_slot_down", slot=executor.slot, reason=reason)

    def _tenant_lost(self, tenants: Tenants, task: str, fence: Fence | None, reason: str) -> None:
        self._report("drlnb_tenant_lost", slot=tenants.slot, task=task, fence=fence, reason=reason)

    def _report(self, op: str, /, **message: object) -> None:
        """Send a report until the broker answers, in order: late news of a death would end its successor's slot."""

        async def report() -> None:
            async with self._in_order:
                await self._link.insist(op, node=self._link.node, **message)

        self._link.keep(report())

    def _tell(self, slot: str, frame: Plain) -> None:
        """Send the executor of a slot a frame that needs no answer."""
        if slot in self.executors:
            self.executors[slot].send(frame)

    # ------------------------------------------------------------------ work
    async def compute(
        self,
        slot: str,
        fence: Fence,
        header: Mapping[str, object],
        watchdog_s: float,
        payload: Payload = b"",
        state: Payload | None = None,
    ) -> Plain:
        """Have an executor of this node compute; ``refused`` if it died before it answered.

        Parameters
        ----------
        slot, fence, header, watchdog_s, payload
            Its slot, the lease, the frame, and after how many seconds without progress it is killed.
        state
            The task's training state, if the caller is of this node; else it is the payload's beginning.

        Raises
        ------
        ConnectionError
            If the slot has no executor here.
        """
        executor = self.executors.get(slot)
        if executor is None:
            raise ConnectionError(f"no executor serves {slot} on {self._link.node}")
        work = self._link.keep(self._compute(executor, {**header, "fence": fence}, watchdog_s, payload, state))
        # Whoever asked may go; what is lent to the executor stays so until it has answered.
        return await asyncio.shield(work)

    async def _compute(
        self, executor: Executor | Tenants, header: Plain, watchdog_s: float, payload: Payload, state: Payload | None
    ) -> Plain:
        task, op = header["task"], header["op"]
        payloads = [payload]
        if attempt := header.get("attempt"):
            self._attempts[task] = max(attempt, self._attempts.get(task, 0))
        if state is not None and (where := self.segments.find(state)):
            header |= {"n_state": 0, "state_in": [*where, len(state)]}
        elif state is not None:
            payloads = [state, payload]
        if op in EXCHANGED:
            payloads += self.exchange.lay_out(header)
        lent = self._lend(task, op)
        if lent is not None:
            header["into"] = [lent[0].path, len(lent[1])]
        made: Payload
        try:
            answer, made = await executor.ask(header, *payloads, timeout_s=watchdog_s)
        except ConnectionError as error:  # an answer, too: whoever asked may have gone
            return {"refused": str(error)}
        if lent is not None and answer.get("n_shared"):
            made = lent[1][: answer["n_shared"]]
        if made and op in _LARGE:
            self._result_bytes.setdefault(task, {})[op] = len(made)
        if op in EXCHANGED:
            return await self.exchange.settle(header, answer, made, watchdog_s)
        return {**answer, "payload": made}

    def _lend(self, task: str, op: str) -> tuple[Segment, memoryview] | None:
        """Lend a segment for a result if the task's last one of such a frame was large."""
        n_bytes = self._result_bytes.get(task, {}).get(op, 0)
        return self.segments.lend(n_bytes) if n_bytes >= LEAST_BYTES else None

    def forget_model(self, task: str, attempt: int) -> None:
        """Forget a task's model on every executor, unless a later attempt than this one has computed here."""
        if self._attempts.get(task, 0) > attempt:
            return  # it may be in the middle of a round
        self._attempts.pop(task, None)
        self.exchange.forget(task, attempt)
        self._result_bytes.pop(task, None)
        if not self._result_bytes:
            self.segments.trim()
        for executor in self.executors.values():
            executor.forget(task)

    async def interrupt(self, slot: str, fence: Fence) -> Plain:
        """Interrupt a user's function that runs under a fence."""
        return {"interrupted": slot in self.executors and self.executors[slot].interrupt(fence)}

    async def asked(self, slot: str, fence: Fence) -> None:
        """Pass on that somebody waits for the slot that a user's loop holds by this fence."""
        self._tell(slot, {"op": "asked", "fence": fence})

    async def cut(self, slot: str, fence: Fence, split: int) -> None:
        """Have a share end at its next chunk."""
        self._tell(slot, {"op": "cut", "slot": slot, "fence": fence, "split": split})

    async def revoke(self, slot: str, fence: Fence, grace_s: float) -> Plain:
        """Wait until the work of a fence has ended on a slot, or end it by force."""
        self.exchange.revoke(fence)
        self.meetings.end(fence)
        executor = self.executors.get(slot)
        return {"idle": executor is not None and await executor.quiet(fence, grace_s)}
