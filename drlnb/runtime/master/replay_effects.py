"""Carry out the commands about a task's replay ring, like a collector's, on the master's own node."""

import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from drlnb.planning.round.state import RING
from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.base import Command
from drlnb.rl.fragments import Fragment
from drlnb.runtime.master.opening import AGAIN

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["ReplayEffects"]


class ReplayEffects:
    """Carries out the ring's commands of one master; each ends in one closing event."""

    def __init__(self, master: "Master") -> None:
        self.m = master
        self._key = (master.run, master.task, RING)
        #: The task has a ring.
        self._has_ring = False
        #: What takes time.
        self.table: Mapping[type[Command], Callable[[Any], Coroutine[Any, Any, None]]] = {
            replay.StartReplay: self._start,
            replay.DrawMinibatches: self._draw,
            replay.RestartTask: self._restart,
        }

    async def _start(self, command: replay.StartReplay) -> None:
        del command
        m, self._has_ring = self.m, True
        ring, buffer = (None, b"") if m.ring_state is None else m.ring_state.pack()
        try:
            reply = await m.processes.start(
                self._key,
                attempt=m.attempt,
                configuration={"role": "replay", "spec": m.spec_plain, "ring": ring},
                state=buffer,
                log=m.out / "logs" / m.agent.node / f"{m.task}-replay.log",
            )
        except (OSError, RuntimeError) as error:
            reason, _, detail = str(error).partition("\n")
            m.host.feed(replay.ReplayLost, reason=reason, detail=detail)
            return
        m.ring_state = None
        m.host.feed(
            replay.ReplayReady,
            start_s=reply["start_s"],
            n_transitions=reply["n_transitions"],
            n_bytes_lost=reply["n_bytes_lost"],
        )

    async def _ask(self, header: dict[str, Any], *payloads: Any) -> tuple[dict[str, Any], bytes]:
        """Ask the ring; ``gone`` if it is (its loss is reported on its own)."""
        try:
            return await self.m.processes.ask(self._key, header, *payloads)
        except ConnectionError as error:
            return {"op": "gone", "reason": str(error)}, b""

    async def _draw(self, command: replay.DrawMinibatches) -> None:
        m, started = self.m, time.perf_counter()
        held = [m.experience[key] for key in command.keys]
        header = {
            "op": "draw",
            "round": command.round,
            "n_timesteps": command.n_timesteps,
            "fragments": [fragment for fragment, _ in held],
            "sizes": [len(payload) for _, payload in held],
        }
        reply, made = await self._ask(header, *(payload for _, payload in held))
        if reply["op"] != "drawn":
            return  # told by ReplayLost
        key = f"ring/{command.round}"
        if reply["n_gradient_steps"]:
            m.experience[key] = (reply["fragment"], made)
        m.host.feed(
            replay.MinibatchesDrawn,
            round=command.round,
            key=key,
            n_gradient_steps=reply["n_gradient_steps"],
            n_samples=reply["n_samples"],
            n_bytes=len(made),
            elapsed_s=time.perf_counter() - started,
            metrics=dict(reply["metrics"]),
        )

    def carry(self, command: replay.CarryParameters) -> None:
        """Keep what is committed as the next version."""
        m = self.m
        refusal = m.gate.carry(m.attempt, command.version)
        if refusal:
            m.host.feed(words.TaskFailed, reason=f"the store refused: {refusal}", detail="")
            return
        m.committed = replace(m.committed, version=command.version)
        m.host.feed(replay.ParametersCarried, version=command.version)

    async def saved(self) -> Fragment | None:
        """Return the ring for a checkpoint; None if the task has none.

        Raises
        ------
        ConnectionError
            If its process is gone: there is no whole state to write.
        """
        if not self._has_ring:
            return None
        reply, buffer = await self._ask({"op": "state"})
        if reply["op"] != "state":
            raise ConnectionError(f"the replay ring is gone: {reply.get('reason') or reply.get('message')}")
        return Fragment.unpack(reply["ring"], buffer)

    async def _restart(self, command: replay.RestartTask) -> None:
        del command
        await self.m.finish(AGAIN)
