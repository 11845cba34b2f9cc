"""How is each command of the round machine carried out?  A table from command to coroutine; no rule lives here."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from drlnb.records import distribution, replay, warmup
from drlnb.records import round as words
from drlnb.records.base import Command
from drlnb.records.ids import Fence
from drlnb.rl.live import PREFIX
from drlnb.runtime.checkpoint_effects import CheckpointEffects
from drlnb.runtime.collector_effects import CollectorEffects
from drlnb.runtime.replay_effects import ReplayEffects

if TYPE_CHECKING:
    from drlnb.runtime.master import Master

__all__ = ["Effects"]

#: Longest time that one send of parameters may take, in seconds.
_SEND_S = 60.0


def _pair(fence: Fence) -> tuple[int, int]:
    return (fence.epoch, fence.token)


class Effects:
    """Carries out the commands of one master's machine; each ends in exactly one closing event."""

    def __init__(self, master: "Master") -> None:
        self.m = master
        #: Work for the executor goes one piece at a time, in the order of the commands.
        self._in_order = asyncio.Lock()
        #: Fragments so far: a second copy from a restarted collector has a key of its own.
        self._n_fragments = 0
        #: Leases that are on their way back: a new request waits for them, or the pool would refuse it.
        self._returning: set[asyncio.Event] = set()
        self._ring = ReplayEffects(master)
        self._table: Mapping[type[Command], Callable[[Any], Coroutine[Any, Any, None]]] = {
            **self._ring.table,
            **CheckpointEffects(master, self._ask_collector, self._ring.saved).table,
            **CollectorEffects(master).table,
            warmup.WakeCollector: self._wake,
            words.RequestSlot: self._request,
            words.InitialiseParameters: self._initialise,
            words.ComputeGradient: self._stage,
            words.FinishRound: self._finish_round,
            words.ReturnLease: self._return,
            words.Evaluate: self._evaluate,
            words.AskPlacement: self._place,
            words.EndTask: self._end,
            distribution.SendChunk: self._send,
        }

    def of(self, command: Command) -> Coroutine[Any, Any, None] | None:
        """Carry out what takes no time; return the coroutine of what does."""
        if isinstance(command, words.CommitParameters):
            self._commit(command)
            return None
        if isinstance(command, replay.CarryParameters):
            self._ring.carry(command)
            return None
        if isinstance(command, words.DropExperience):
            self.m.experience.pop(command.key, None)
            return None
        if isinstance(command, warmup.ParkCollector):
            return None  # its process rests by itself once it has sent
        return self._table[type(command)](command)

    def _ids(self) -> dict[str, Any]:
        return {"run": self.m.run, "task": self.m.task}

    # ------------------------------------------------------------------ collectors
    async def _ask_collector(self, collector: int, node: str, **header: Any) -> dict[str, Any]:
        """Ask a collector; ``gone`` if it or its node is (the loss is reported on its own)."""
        m = self.m
        try:
            return await m.agent.call(
                m.addresses.get(node, ""),
                "drlnb_collector_ask",
                timeout_s=None,
                collector=collector,
                header=header,
                quiet_s=self.m.quiet_s,
                **self._ids(),
            )
        except (OSError, ValueError) as error:
            return {"op": "gone", "reason": str(error)}

    async def _wake(self, command: warmup.WakeCollector) -> None:
        m = self.m
        machine: Any = m.host.machine
        reply = await self._ask_collector(
            command.collector,
            command.node,
            op="wake",
            round=command.round,
            version=command.version,
            n_steps=command.n_steps,
            n_timesteps=machine.progress.n_timesteps,
        )
        if reply["op"] != "experience":
            return  # its loss is told by CollectorLost
        self._n_fragments += 1
        key = f"{command.collector}/{command.round}/{self._n_fragments}"
        m.experience[key] = (reply["fragment"], reply["payload"])
        m.host.feed(
            words.ExperienceArrived,
            collector=command.collector,
            round=reply["round"],
            attempt=m.attempt,
            version=reply["version"],
            n_samples=reply["n_samples"],
            n_bytes=len(reply["payload"]),
            key=key,
            collect_s=reply["collect_s"],
            episodes=tuple((float(r), int(n)) for r, n in reply["episodes"]),
        )

    async def _evaluate(self, command: words.Evaluate) -> None:
        reply = await self._ask_collector(
            command.collector,
            command.node,
            op="evaluate",
            version=command.version,
            n_episodes=command.n_episodes,
            deterministic=command.deterministic,
        )
        if reply["op"] != "evaluated":
            return  # its loss is told by CollectorLost
        self.m.host.feed(
            words.EvaluationFinished,
            version=command.version,
            mean_reward=reply["mean"],
            std_reward=reply["std"],
            n_episodes=command.n_episodes,
            failure="",
            deterministic=command.deterministic,
            episodes=tuple((float(r), int(n)) for r, n in reply["episodes"]),
        )

    # ------------------------------------------------------------------ lease and executor
    async def _request(self, command: words.RequestSlot) -> None:
        m = self.m
        for returned in tuple(self._returning):
            await returned.wait()
        reply = await m.leases.acquire(command.request_id, command.round)
        m.slots.update({row["slot"]: row["address"] for row in reply["slots"]})
        fence = Fence(epoch=reply["fence"][0], token=reply["fence"][1])
        m.host.feed(
            words.LeaseReceived,
            request_id=command.request_id,
            fence=fence,
            slots=tuple(row["slot"] for row in reply["slots"]),
            waited_s=reply["waited_s"],
        )

    async def _return(self, command: words.ReturnLease) -> None:
        returned = asyncio.Event()
        self._returning.add(returned)
        try:
            await self.m.leases.release(_pair(command.fence), clean=command.clean, computed_s=command.computed_s)
        finally:
            returned.set()
            self._returning.discard(returned)
        self.m.host.feed(words.LeaseClosed, fence=command.fence)

    async def _compute(self, slot: str, fence: Fence, payload: Any = b"", **header: Any) -> dict[str, Any]:
        """Let the slot's executor work; feed the event of a failure and return ``{}`` then."""
        m = self.m
        try:
            reply = await m.agent.call(
                m.slots.get(slot, ""),
                "drlnb_compute",
                timeout_s=None,
                payload=payload,
                slot=slot,
                header={**header, "task": m.pool_name, "fence": _pair(fence)},
                watchdog_s=m.leasing.compute_timeout_s,
            )
        except (OSError, ValueError) as error:
            reply = {"op": "died", "reason": f"its node does not answer: {error}"}
        m.n_progress += 1
        op = reply["op"]
        if op == "died":
            m.host.feed(words.ExecutorDied, fence=fence, slot=slot, reason=reply["reason"])
        elif op == "refused":
            m.leases.lost(_pair(fence), f"the executor refused: {reply['reason']}")
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
            config: Mapping[str, Any] = m.host.machine.config  # type: ignore[attr-defined]
            header = {
                "op": "stage",
                "round": command.round,
                "collector": command.collector,
                "version": command.version,
                # Schedules are read where the round ends; the command tells where it began.
                "n_timesteps": command.n_timesteps + config["n_envs"] * config["n_steps"],
                "fragment": fragment,
                "n_state": 0,
                "settings": {key.removeprefix(PREFIX): value for key, value in command.settings.items()},
            }
            reply = await self._compute(command.slot, command.fence, payload, **header)
            if reply.get("op") == "need-state":
                state = m.committed
                header |= {"n_state": len(state.state), "state": dict(state.facts), "spec": m.spec_plain}
                reply = await self._compute(command.slot, command.fence, state.state + bytes(payload), **header)
            if reply:
                m.host.feed(
                    words.GradientComputed,
                    collector=command.collector,
                    round=command.round,
                    fence=command.fence,
                    elapsed_s=reply["elapsed_s"],
                )

    async def _finish_round(self, command: words.FinishRound) -> None:
        async with self._in_order:
            reply = await self._compute(command.slot, command.fence, op="finish", round=command.round)
        if reply:
            self._take_made(reply, command.fence, command.round)

    def _take_made(self, reply: Mapping[str, Any], fence: Fence, round_: int) -> None:
        from drlnb.runtime.master import Committed

        m = self.m
        key = f"made/{round_}/{fence.token}"
        n, payload = reply["n_published"], bytes(reply["payload"])
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

    def _commit(self, command: words.CommitParameters) -> None:
        """Put a version into host memory if its fence is good: the store checks for itself (leasing O3)."""
        m = self.m
        made = m.made.pop(command.key)
        m.made.clear()
        refusal = m.gate.admit(command.fence, m.attempt, command.version)
        if refusal:
            m.host.feed(words.LeaseLost, fence=command.fence, reason=f"the store refused: {refusal}")
            return
        m.committed = made
        m.host.feed(words.ParametersCommitted, version=command.version, fence=command.fence)

    # ------------------------------------------------------------------ parameters out
    async def _send(self, command: distribution.SendChunk) -> None:
        m = self.m
        started = time.perf_counter()
        data = memoryview(m.committed.published)[command.start : command.stop]
        failure = ""
        try:
            reply = await m.agent.call(
                m.addresses.get(command.host, ""),
                "drlnb_chunk",
                timeout_s=_SEND_S,
                payload=data,
                attempt=m.attempt,
                version=command.version,
                start=command.start,
                stop=command.stop,
                total=len(m.committed.published),
                children=command.children,
                addresses=m.addresses if command.children else {},
                master=m.agent.worker.address,
                **self._ids(),
            )
            failure = str(reply.get("refused") or "")
        except (OSError, ValueError) as error:
            failure = str(error)
        if failure:
            m.host.feed(distribution.HostUnreachable, host=command.host, version=command.version, reason=failure)
        elif reply["whole"]:
            publish_s = time.perf_counter() - started
            m.host.feed(distribution.HostCompleted, host=command.host, version=command.version, publish_s=publish_s)

    # ------------------------------------------------------------------ checkpoints, placement, the end
    async def _place(self, command: words.AskPlacement) -> None:
        del command
        self.m.host.feed(words.PlacementReceived, **await self.m.ask_placement())

    async def _end(self, command: words.EndTask) -> None:
        await self.m.finish(command.state, command.reason)
