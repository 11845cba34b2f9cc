"""Compute on a slot as a master: the lease, the work on its executor, and the commit under it."""

import asyncio
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING

from drlnb.planning.swapping.machine import RULES
from drlnb.records import round as words
from drlnb.records.base import Facts
from drlnb.records.columns import batching, leasing, swapping
from drlnb.records.common import SlotWork
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.rl.algorithms.resolve import PREFIX
from drlnb.rl.fragments import Fragment
from drlnb.runtime.ipc.frames import plain
from drlnb.runtime.ipc.start_modes import ChildProcess, child_environment, last_line
from drlnb.runtime.ipc.training_state import without_optimizer
from drlnb.runtime.master.checkpoint_effects import Committed
from drlnb.runtime.protocol import Payload, Plain, fields_of

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["SlotEffects"]

#: Name -> what an executor reports of swapping.
_EVENTS = {kind.__name__: kind for kind in RULES if kind.__module__ == swapping.__name__}
#: Plans of swapping that are kept: commands that are under way may name one before the present one.
_PLANS = 8


class SlotEffects:
    """Carries out the commands of one master's machine that need a slot."""

    def __init__(self, master: "Master") -> None:
        self.m = master
        #: Work for the executor of a slot goes one piece at a time, in the order of the commands.
        self.in_order: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: Leases that are on their way back: a new request waits for them, or the pool would refuse it.
        self._returning: set[asyncio.Event] = set()
        #: Key -> plan of swapping, of the latest ones.
        self._plans: dict[str, Facts] = {}

    async def request(self, command: words.RequestSlot) -> None:
        """Wait for slots; the task fails if there can never be so many."""
        m = self.m
        for returned in tuple(self._returning):
            await returned.wait()
        try:
            reply = await m.leases.acquire(**fields_of(command))
        except ConfigError as error:
            m.host.feed(words.TaskFailed, reason=str(error), detail="")
            return
        m.slots.update({row["slot"]: row["address"] for row in reply["slots"]})
        granted = {name: reply[name] for name in ("fence", "waited_s", "demand", "n_slots", "resident")}
        slots = tuple(row["slot"] for row in reply["slots"])
        m.host.feed(words.LeaseReceived, request_id=command.request_id, slots=slots, **granted)

    async def give_back(self, command: words.ReturnLease) -> None:
        """Return a lease."""
        returned = asyncio.Event()
        self._returning.add(returned)
        try:
            await self.m.leases.release(**fields_of(command))
        finally:
            returned.set()
            self._returning.discard(returned)
        self.m.host.feed(words.LeaseClosed, fence=command.fence)

    async def _compute(
        self, op: str, command: SlotWork, payload: Payload = b"", flat: Payload | None = None, /, **more: object
    ) -> Plain | None:
        """Have the slot's executor work; feed the event of a failure and return None then, or if the lease is over.

        `flat` is the task's training state if the executor needs it, which the payload comes after.
        """
        m, slot, fence, given = self.m, command.slot, command.fence, (payload, flat)
        beside, order = {}, getattr(command, "swap", None)
        if flat is not None and m.slots.get(slot) == m.link.address:
            beside = {"state": flat}  # it need not be joined to what goes nowhere
        elif flat is not None:
            payload = b"".join((flat, payload))
        call = m.link.call(
            m.slots.get(slot, ""),
            "drlnb_compute",
            timeout_s=None,
            payload=payload,
            slot=slot,
            fence=fence,
            header={
                **fields_of(command),
                **more,
                "swap": order and asdict(order),
                "op": op,
                "task": m.pool_name,
                "attempt": m.attempt,
            },
            watchdog_s=m.leases.settings.compute_timeout_s,
            **beside,
        )
        try:
            reply: Plain = await m.leases.unless_lost(fence, call)
        except ConnectionError as error:
            if not m.leases.holds(fence):
                return None  # it was given back, or its loss has been told: nobody's executor has died
            reply = {"refused": str(error)}
        if "refused" in reply:
            m.host.feed(words.ExecutorDied, fence=fence, slot=slot, reason=reply["refused"])
        elif reply["op"] == "refused":
            m.leases.lost(fence, f"the executor refused: {reply['reason']}")
        elif reply["op"] == "error":
            m.host.feed(words.TaskFailed, reason=f"{reply['kind']}: {reply['message']}", detail=reply["detail"])
        elif reply["op"] == "need-plan":
            plan = plain(self._plans[order.plan_key if order else ""])
            return await self._compute(op, command, *given, **more, swap_plan=plan)
        else:
            for row in reply.get("swaps", ()):
                m.host.feed(_EVENTS[row.pop("r")], **row)
            return reply
        return None

    def apply_plan(self, command: swapping.ApplySwapPlan) -> None:
        """Keep a plan for the executors that do not know it."""
        self._plans.pop(command.plan_key, None)
        self._plans[command.plan_key] = command.plan
        for key in list(self._plans)[:-_PLANS]:
            del self._plans[key]

    async def search_plan(self, command: swapping.SearchSwapPlan) -> None:
        """Search for plans in a process of its own; where that fails, the plan that was found at once goes on."""
        m, log = self.m, self.m.link.directory / "search.log"
        child = ChildProcess.start("drlnb.runtime.children.search", log=log, environment=child_environment())
        try:
            channel = await child.open(lambda header, payload: None, lambda: None)
            answer, _ = await channel.ask({"op": "search", **plain(fields_of(command))})
        except ConnectionError as error:
            answer = {"message": f"{error}: {last_line(log)}"}
        finally:
            await child.end()
        if "event" in answer:
            m.host.feed(swapping.SwapPlanFound, **answer["event"])
        else:
            m.rows.add_note("Defect", f"task {m.task}: no plan of swapping could be searched for: {answer['message']}")

    async def initialise(self, command: words.InitialiseParameters) -> None:
        """Have the executor make the first version."""
        reply = await self._compute("initialise", command, spec=self.m.spec_plain)
        if reply is not None:
            self._take_made(reply, command.fence, 0)

    async def stage(self, command: words.ComputeGradient) -> None:
        """Give a collector's batch to the executor."""
        async with self.in_order[command.slot]:
            held = self.m.experience.get(command.key) if command.key else Fragment({}, {}).pack()
            if held is None:
                return  # the round is over
            reply = await self.with_state("stage", command, held[1], {"fragment": held[0]}, command.settings)
            if reply is not None:
                key = self._keep(command, reply["payload"]) if command.keep else ""
                which = {name: getattr(command, name) for name in ("collector", "round", "fence", "slot")}
                self.m.host.feed(words.GradientComputed, **which, key=key, **reply["event"])

    async def with_state(
        self, op: str, command: SlotWork, payload: Payload, more: Plain, settings: Facts
    ) -> Plain | None:
        """Have the executor work, with the task's training state if it does not hold it."""
        more["settings"] = {key.removeprefix(PREFIX): value for key, value in settings.items()}
        reply = await self._compute(op, command, payload, **more, n_state=0)
        if reply is not None and reply["op"] == "need-state":
            facts, state = self.m.committed.facts, self.m.committed.state
            if bare := getattr(command, "lead", command.slot) != command.slot:  # it makes no step
                facts, state = without_optimizer(facts, state)
            more |= {"n_state": len(state), "state": dict(facts), "spec": self.m.spec_plain, "bare": bare}
            reply = await self._compute(op, command, payload, state, **more)
        return reply

    def _keep(self, command: words.ComputeGradient | leasing.KeepGradient, part: Payload) -> str:
        """Keep a batch's gradient; return its key."""
        gradients = self.m.gradients
        for key in [key for key in gradients if not key.startswith(f"{command.round}/")]:
            del gradients[key]
        key = f"{command.round}/{command.collector}/{command.fence.token}"
        gradients[key] = bytes(part)
        return key

    async def keep_gradient(self, command: leasing.KeepGradient) -> None:
        """Fetch a gradient from the slot's executor."""
        async with self.in_order[command.slot]:
            reply = await self._compute("keep", command)
            if reply is not None:
                which = {name: getattr(command, name) for name in ("collector", "round", "fence")}
                self.m.host.feed(leasing.GradientKept, **which, key=self._keep(command, reply["payload"]))

    async def restore_gradients(self, command: leasing.RestoreGradients) -> None:
        """Give the slot's executor gradients that were computed elsewhere or before, or let it find its own."""
        async with self.in_order[command.slot]:
            reply = await self.with_state("restore", command, b"", {"sizes": []}, command.settings)
            if reply is not None and reply["op"] == "need-parts":
                parts = [self.m.gradients[key] for key in command.keys]
                sizes = [len(part) for part in parts]
                reply = await self.with_state("restore", command, b"".join(parts), {"sizes": sizes}, command.settings)
            if reply is not None:
                which = {"round": command.round, "fence": command.fence}
                self.m.host.feed(leasing.GradientsRestored, **which, **reply["event"])

    def gang(self, command: batching.JoinRound | words.FinishRound) -> list[list[str]]:
        """Return the slots that share a round's minibatches, each with its node's address."""
        return [[slot, self.m.slots.get(slot, "")] for slot in command.members]

    async def finish_round(self, command: words.FinishRound) -> None:
        """Have the executor make the round's parameters."""
        async with self.in_order[command.slot]:
            reply = await self._compute("finish", command, gang=self.gang(command))
        if reply is not None:
            self._take_made(reply, command.fence, command.round)

    def _take_made(self, reply: Plain, fence: Fence, round_: int) -> None:
        m, event = self.m, reply["event"]
        key = f"made/{round_}/{fence.token}"
        n, payload = event["n_bytes"], memoryview(reply["payload"])
        m.made[key] = Committed(published=payload[:n], state=payload[n:], facts=reply["state"])
        m.host.feed(words.ParametersReady, round=round_, fence=fence, key=key, **event)

    def commit(self, command: words.CommitParameters) -> None:
        """Put a version into host memory if its fence is good: the store checks for itself (leasing O3)."""
        m = self.m
        made = m.made.pop(command.key)
        m.made.clear()
        refusal = m.leases.overdue(command.fence) or m.gate.admit(command.fence, m.attempt, command.version)
        if refusal:
            m.host.feed(words.LeaseLost, fence=command.fence, reason=f"the store refused: {refusal}")
            return
        base, changed = m.sender.changes(made.published)
        m.committed = made
        which = {"version": command.version, "fence": command.fence}
        m.host.feed(words.ParametersCommitted, **which, base=base, changed=changed)
