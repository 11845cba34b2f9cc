"""Compute on a slot as a master: the lease, the work on its executor, and the commit under it."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from drlnb.records import round as words
from drlnb.records.base import Command
from drlnb.records.columns import leasing
from drlnb.records.ids import Fence
from drlnb.rl.algorithms.live_settings import PREFIX
from drlnb.runtime.master.opening import Committed

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["SlotEffects"]


class SlotEffects:
    """Carries out the commands of one master's machine that need a slot."""

    def __init__(self, master: "Master") -> None:
        self.m = master
        #: Work for the executor goes one piece at a time, in the order of the commands.
        self._in_order = asyncio.Lock()
        #: Leases that are on their way back: a new request waits for them, or the pool would refuse it.
        self._returning: set[asyncio.Event] = set()
        self.table: Mapping[type[Command], Callable[[Any], Coroutine[Any, Any, None]]] = {
            words.RequestSlot: self._request,
            words.InitialiseParameters: self._initialise,
            words.ComputeGradient: self._stage,
            leasing.RestoreGradients: self._restore_gradients,
            words.FinishRound: self._finish_round,
            words.ReturnLease: self._return,
        }

    async def _request(self, command: words.RequestSlot) -> None:
        m = self.m
        for returned in tuple(self._returning):
            await returned.wait()
        reply = await m.leases.acquire(
            command.request_id, command.round, n_slots=command.n_slots, yields=command.yields
        )
        m.leasing = m.leases.settings
        m.slots.update({row["slot"]: row["address"] for row in reply["slots"]})
        fence = reply["fence"]
        m.host.feed(
            words.LeaseReceived,
            request_id=command.request_id,
            fence=fence,
            slots=tuple(row["slot"] for row in reply["slots"]),
            waited_s=reply["waited_s"],
            demand=bool(reply["demand"]),
            n_slots=int(reply["n_slots"]),
            resident=reply.get("resident"),
        )

    async def _return(self, command: words.ReturnLease) -> None:
        returned = asyncio.Event()
        self._returning.add(returned)
        try:
            await self.m.leases.release(
                command.fence, clean=command.clean, computed_s=command.computed_s, yielded=command.yielded
            )
        finally:
            returned.set()
            self._returning.discard(returned)
        self.m.host.feed(words.LeaseClosed, fence=command.fence)

    async def _compute(
        self, slot: str, fence: Fence, payload: Any = b"", flat: Any = None, **header: Any
    ) -> dict[str, Any]:
        """Have the slot's executor work; feed the event of a failure and return ``{}`` then.

        `flat` is the task's training state if the executor needs it, which the payload comes after.
        """
        m, more = self.m, {}
        if flat is not None and m.slots.get(slot) == m.agent.address:
            more = {"state": flat}  # it need not be joined to what goes nowhere
        elif flat is not None:
            payload = b"".join((flat, payload))
        try:
            call = m.agent.call(
                m.slots.get(slot, ""),
                "drlnb_compute",
                timeout_s=None,
                payload=payload,
                slot=slot,
                fence=fence,
                header={**header, "task": m.pool_name, "attempt": m.attempt},
                watchdog_s=m.leasing.compute_timeout_s,
                **more,
            )
            reply = await m.leases.unless_lost(fence, call)
        except (OSError, ValueError) as error:
            reply = {"op": "died", "reason": f"its node does not answer: {error}"}
        m.n_progress += 1
        op = reply["op"]
        if op == "died":
            m.host.feed(words.ExecutorDied, fence=fence, slot=slot, reason=reply["reason"])
        elif op == "refused":
            m.leases.lost(fence, f"the executor refused: {reply['reason']}")
        elif op == "error":
            m.host.feed(words.TaskFailed, reason=f"{reply['kind']}: {reply['message']}", detail=reply["detail"])
        else:
            return reply
        return {}

    async def _initialise(self, command: words.InitialiseParameters) -> None:
        reply = await self._compute(command.slot, command.fence, op="initialise", spec=self.m.spec_plain)
        if reply:
            self._take_made(reply, command.fence, 0)

    async def _stage(self, command: words.ComputeGradient) -> None:
        async with self._in_order:
            m = self.m
            held = m.experience.get(command.key)
            if held is None:
                return  # the round is over
            fragment, payload = held
            header = {
                "op": "stage",
                "round": command.round,
                "collector": command.collector,
                "version": command.version,
                "n_timesteps": command.after_timesteps,
                "swap_plan_key": command.swap_plan_key,
                "fragment": fragment,
                "n_state": 0,
                "settings": {key.removeprefix(PREFIX): value for key, value in command.settings.items()},
                "keep": command.keep,
            }
            reply = await self._with_state(command.slot, command.fence, header, payload)
            if reply:
                m.host.feed(
                    words.GradientComputed,
                    collector=command.collector,
                    round=command.round,
                    fence=command.fence,
                    elapsed_s=reply["elapsed_s"],
                    key=self._keep(command, bytes(reply["payload"])),
                    moved_bytes=reply["moved_bytes"],
                )

    async def _with_state(self, slot: str, fence: Fence, header: dict[str, Any], payload: Any) -> dict[str, Any]:
        """Have the executor work, with the task's training state if it does not hold it."""
        reply = await self._compute(slot, fence, payload, **header)
        if reply.get("op") == "need-state":
            state = self.m.committed
            header |= {"n_state": len(state.state), "state": dict(state.facts), "spec": self.m.spec_plain}
            reply = await self._compute(slot, fence, payload, state.state, **header)
        return reply

    def _keep(self, command: words.ComputeGradient, part: bytes) -> str:
        """Keep a batch's gradient if it was asked for; return its key."""
        if not command.keep:
            return ""
        gradients = self.m.gradients
        for key in [key for key in gradients if not key.startswith(f"{command.round}/")]:
            del gradients[key]
        key = f"{command.round}/{command.collector}/{command.fence.token}"
        gradients[key] = part
        return key

    async def _restore_gradients(self, command: leasing.RestoreGradients) -> None:
        """Give the slot's executor the gradients that were computed under former leases, or let it find its own."""
        async with self._in_order:
            m = self.m
            header: dict[str, Any] = {
                "op": "restore",
                "round": command.round,
                "collectors": list(command.collectors),
                "keys": list(command.keys),
                "version": command.version,
                "n_timesteps": command.after_timesteps,
                "n_state": 0,
                "sizes": [],
                "settings": {key.removeprefix(PREFIX): value for key, value in command.settings.items()},
            }
            reply = await self._with_state(command.slot, command.fence, header, b"")
            if reply.get("op") == "need-parts":
                parts = [m.gradients[key] for key in command.keys]
                header |= {"n_state": 0, "sizes": [len(part) for part in parts]}
                reply = await self._with_state(command.slot, command.fence, header, b"".join(parts))
            if reply:
                m.host.feed(
                    leasing.GradientsRestored,
                    round=command.round,
                    fence=command.fence,
                    elapsed_s=reply["elapsed_s"],
                    moved_bytes=reply["moved_bytes"],
                )

    async def _finish_round(self, command: words.FinishRound) -> None:
        async with self._in_order:
            reply = await self._compute(
                command.slot, command.fence, op="finish", round=command.round, swap_plan_key=command.swap_plan_key
            )
        if reply:
            self._take_made(reply, command.fence, command.round)

    def _take_made(self, reply: Mapping[str, Any], fence: Fence, round_: int) -> None:
        m = self.m
        key = f"made/{round_}/{fence.token}"
        n, payload = reply["n_published"], memoryview(reply["payload"])
        m.made[key] = Committed(version=round_ + 1, published=payload[:n], state=payload[n:], facts=reply["state"])
        m.host.feed(
            words.ParametersReady,
            round=round_,
            fence=fence,
            elapsed_s=reply["elapsed_s"],
            n_bytes=n,
            key=key,
            metrics=dict(reply["metrics"]),
        )

    def commit(self, command: words.CommitParameters) -> None:
        """Put a version into host memory if its fence is good: the store checks for itself (leasing O3)."""
        m = self.m
        made = m.made.pop(command.key)
        m.made.clear()
        refusal = m.leases.overdue(command.fence) or m.gate.admit(command.fence, m.attempt, command.version)
        if refusal:
            m.host.feed(words.LeaseLost, fence=command.fence, reason=f"the store refused: {refusal}")
            return
        m.committed = made
        m.host.feed(words.ParametersCommitted, version=command.version, fence=command.fence)
