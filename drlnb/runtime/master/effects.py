"""Carry out each command of the round machine: a table from command to coroutine; no rule lives here."""

import time
from typing import TYPE_CHECKING

from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.columns import distribution, leasing, warmup
from drlnb.runtime.ipc.routes import route_results
from drlnb.runtime.machine_host import EffectTable
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
        collectors = CollectorEffects(master)
        ring, slot = ReplayEffects(master, collectors), SlotEffects(master)
        checkpoints = CheckpointEffects(master, collectors.ask, ring.saved)
        #: What takes no time is carried out at once, of the rest a coroutine is returned.
        self.table: EffectTable = {
            replay.StartReplay: ring.start,
            replay.DrawMinibatches: ring.draw,
            replay.CarryParameters: ring.carry,
            replay.RestartTask: ring.restart,
            words.RequestSlot: slot.request,
            words.InitialiseParameters: slot.initialise,
            words.ComputeGradient: slot.stage,
            leasing.RestoreGradients: slot.restore_gradients,
            words.FinishRound: slot.finish_round,
            words.CommitParameters: slot.commit,
            words.ReturnLease: slot.give_back,
            words.WriteCheckpoint: checkpoints.write,
            warmup.StartCollector: collectors.start,
            warmup.StopCollector: collectors.stop,
            warmup.ParkCollector: collectors.park,
            warmup.RevokeStart: collectors.revoke_start,
            warmup.WakeCollector: collectors.wake,
            words.Evaluate: collectors.evaluate,
            words.AskPlacement: self._place,
            words.EndTask: self._end,
            words.DropExperience: self._drop,
            distribution.SendChunk: self._send,
        }

    def _drop(self, command: words.DropExperience) -> None:
        self.m.experience.pop(command.key, None)

    async def _send(self, command: distribution.SendChunk) -> None:
        """Send a range along its route; every host of the route ends in an event of its own."""
        m = self.m
        n_bytes = len(m.committed.published)
        chunk = {name: getattr(command, name) for name in ("version", "start", "stop", "children")}
        started = time.perf_counter()
        reply = await m.link.call(
            m.addresses.get(command.host, ""),
            "drlnb_chunk",
            timeout_s=_SEND_S,
            payload=memoryview(m.committed.published)[command.start : command.stop],
            task=(m.run, m.task),
            chunk={**chunk, "attempt": m.attempt, "total": n_bytes},
            addresses=m.addresses if command.children else {},
        )
        for row in route_results(command.host, command.children, reply, time.perf_counter() - started):
            host = {"host": row["host"], "version": command.version}
            if row["reason"]:
                m.host.feed(distribution.HostUnreachable, **host, reason=row["reason"], relay=row["relay"])
            elif row["whole"]:
                m.host.feed(distribution.HostCompleted, **host, n_bytes=n_bytes, publish_s=row["after_s"])

    async def _place(self, command: words.AskPlacement) -> None:
        await self.m.place(command.planner)

    async def _end(self, command: words.EndTask) -> None:
        await self.m.finish(command.state, command.reason)
