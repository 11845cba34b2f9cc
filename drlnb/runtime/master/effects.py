"""Carry out each command of the round machine: a table from command to coroutine; no rule lives here."""

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.base import Command
from drlnb.records.columns import distribution, warmup
from drlnb.runtime.ipc.routes import route_results
from drlnb.runtime.master.checkpoint_effects import CheckpointEffects
from drlnb.runtime.master.collector_effects import CollectorEffects
from drlnb.runtime.master.replay_effects import ReplayEffects
from drlnb.runtime.master.slot_effects import SlotEffects

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["Effects"]

#: Longest time that one send of parameters may take, in seconds.
_SEND_S = 60.0


class Effects:
    """Carries out the commands of one master's machine; each ends in exactly one closing event."""

    def __init__(self, master: "Master") -> None:
        self.m = master
        #: Fragments so far: a second copy from a restarted collector has a key of its own.
        self._n_fragments = 0
        self._ring = ReplayEffects(master)
        self._slot = SlotEffects(master)
        self._collectors = CollectorEffects(master)
        self._table: Mapping[type[Command], Callable[[Any], Coroutine[Any, Any, None]]] = {
            **self._ring.table,
            **self._slot.table,
            **CheckpointEffects(master, self._ask_collector, self._ring.saved).table,
            **self._collectors.table,
            warmup.WakeCollector: self._wake,
            words.Evaluate: self._evaluate,
            words.AskPlacement: self._place,
            words.EndTask: self._end,
            distribution.SendChunk: self._send,
        }

    def of(self, command: Command) -> Coroutine[Any, Any, None] | None:
        """Carry out what takes no time; return the coroutine of what does."""
        if isinstance(command, words.CommitParameters):
            self._slot.commit(command)
            return None
        if isinstance(command, replay.CarryParameters):
            self._ring.carry(command)
            return None
        if isinstance(command, words.DropExperience):
            self.m.experience.pop(command.key, None)
            return None
        return self._table[type(command)](command)

    def _ids(self) -> dict[str, Any]:
        return {"run": self.m.run, "task": self.m.task}

    # ------------------------------------------------------------------ collectors
    async def _ask_collector(self, collector: int, node: str, **header: Any) -> dict[str, Any]:
        """Ask a collector; ``gone`` if it or its node is, or the way there."""
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
        self._collectors.wakes(command.collector, command.round)
        question = m.losses.asks(command.collector)
        reply = await self._ask_collector(
            command.collector,
            command.node,
            op="wake",
            keeps_cpu=command.keeps_cpu,
            round=command.round,
            version=command.version,
            n_steps=command.n_steps,
            n_timesteps=command.n_timesteps,
        )
        if reply["op"] != "experience":
            await self._unanswered(command, question, reply)
            return
        self._collectors.acted(command.collector, keeps_cpu=reply["keeps_cpu"])
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
            queued_s=reply["queued_s"],
            n_cpu_slots=reply["n_cpu_slots"],
            n_sharing=reply["n_sharing"],
            keeps_cpu=reply["keeps_cpu"],
        )

    async def _evaluate(self, command: words.Evaluate) -> None:
        question = self.m.losses.asks(command.collector)
        reply = await self._ask_collector(
            command.collector,
            command.node,
            op="evaluate",
            keeps_cpu=command.keeps_cpu,
            version=command.version,
            n_episodes=command.n_episodes,
            deterministic=command.deterministic,
        )
        if reply["op"] != "evaluated":
            await self._unanswered(command, question, reply)
            return
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

    async def _unanswered(
        self,
        command: "warmup.WakeCollector | words.Evaluate",
        question: tuple[int, int],
        reply: Mapping[str, Any],
    ) -> None:
        """Wait for word of the loss of a collector that did not answer; without it, report the missing answer."""
        if reply["op"] == "error":  # its environment raised
            why = {"reason": reply["message"], "detail": reply["detail"]}
        else:
            why = {"reason": f"did not answer: {reply.get('reason', reply['op'])}", "detail": ""}
        await self.m.losses.unanswered(
            question,
            collector=command.collector,
            node=command.node,
            version=command.version,
            evaluates=isinstance(command, words.Evaluate),
            **why,
        )

    # ------------------------------------------------------------------ parameters out
    async def _send(self, command: distribution.SendChunk) -> None:
        """Send a range along its route; every host of the route ends in an event of its own."""
        m = self.m
        n_bytes = len(m.committed.published)
        data = memoryview(m.committed.published)[command.start : command.stop]
        started = time.perf_counter()
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
                total=n_bytes,
                children=command.children,
                addresses=m.addresses if command.children else {},
                **self._ids(),
            )
        except (OSError, ValueError) as error:
            reply = {"refused": str(error)}
        elapsed_s = time.perf_counter() - started
        for row in route_results(command.host, command.children, reply, elapsed_s):
            host = {"host": row["host"], "version": command.version}
            if row["reason"]:
                m.host.feed(distribution.HostUnreachable, **host, reason=row["reason"], relay=row["relay"])
            elif row["whole"]:
                m.host.feed(distribution.HostCompleted, **host, n_bytes=n_bytes, publish_s=row["after_s"])

    # ------------------------------------------------------------------ checkpoints, placement, the end
    async def _place(self, command: words.AskPlacement) -> None:
        kind, fields = await self.m.ask_placement(command.planner)
        if not self.m.is_over:
            self.m.host.feed(kind, **fields)

    async def _end(self, command: words.EndTask) -> None:
        await self.m.finish(command.state, command.reason)
