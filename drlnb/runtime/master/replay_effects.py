"""Carry out the commands about a task's replay ring, like a collector's, on the master's own node."""

import time
from typing import TYPE_CHECKING

from drlnb.planning.round.state import RING
from drlnb.records import replay
from drlnb.records import round as words
from drlnb.rl.fragments import Fragment
from drlnb.runtime.master.checkpoint_effects import AGAIN
from drlnb.runtime.master.collector_effects import CollectorEffects
from drlnb.runtime.protocol import Payload, Plain

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["ReplayEffects"]


class ReplayEffects:
    """Carries out the ring's commands of one master; each ends in one closing event.

    Parameters
    ----------
    master
        Whose.
    collectors
        What speaks to its processes.
    """

    def __init__(self, master: "Master", collectors: CollectorEffects) -> None:
        self.m, self._collectors = master, collectors
        #: The task has a ring.
        self._has_ring = False

    async def start(self, _command: replay.StartReplay) -> None:
        """Start the process that holds the ring."""
        m, self._has_ring = self.m, True
        ring, buffer = (None, b"") if m.ring_state is None else m.ring_state.pack()
        configuration = {"role": "replay", "spec": m.spec_plain, "ring": ring}
        where, more = (RING, m.link.node, "drlnb_collector_start"), self._collectors.start_of(m.link.node, "replay")
        reply = await self._collectors.call(*where, configuration=configuration, payload=buffer, **more)
        if "refused" in reply:
            m.process_lost(RING, m.link.node, reply)
            return
        m.ring_state = None
        known = {name: reply["event"][name] for name in ("start_s", "n_transitions", "n_bytes_lost")}
        m.host.feed(replay.ReplayReady, **known)

    async def _ask(self, header: Plain, *payloads: Payload) -> Plain:
        """Ask the ring; ``refused`` if it is gone (its loss is reported on its own)."""
        where = (RING, self.m.link.node, "drlnb_collector_ask")
        return await self._collectors.call(*where, header=header, payloads=payloads)

    async def draw(self, command: replay.DrawMinibatches) -> None:
        """Put the round's fragments into the ring and draw its minibatches."""
        m, started = self.m, time.perf_counter()
        held = [m.experience[key] for key in command.keys]
        header = {"op": "draw", "round": command.round, "n_timesteps": command.n_timesteps}
        header |= {"fragments": [fragment for fragment, _ in held], "sizes": [len(payload) for _, payload in held]}
        reply = await self._ask(header, *(payload for _, payload in held))
        if reply.get("op") != "drawn":
            return  # told by ReplayLost
        key, fragment = f"ring/{command.round}", reply["fragment"]
        if fragment["n_gradient_steps"]:
            m.experience[key] = (fragment, reply["payload"])
        m.host.feed(
            replay.MinibatchesDrawn,
            round=command.round,
            key=key,
            n_bytes=len(reply["payload"]),
            elapsed_s=time.perf_counter() - started,
            **{name: fragment[name] for name in ("n_gradient_steps", "n_samples", "metrics")},
        )

    def carry(self, command: replay.CarryParameters) -> None:
        """Keep what is committed as the next version."""
        if refusal := self.m.gate.carry(self.m.attempt, command.version):
            self.m.host.feed(words.TaskFailed, reason=f"the store refused: {refusal}", detail="")
        else:
            self.m.host.feed(replay.ParametersCarried, version=command.version)

    async def saved(self, since: list[int] | None) -> Fragment | None:
        """Return the ring for a checkpoint, or what it has got `since` an earlier one; None if the task has none.

        Raises
        ------
        ConnectionError
            If its process is gone: there is no whole state to write.
        """
        if not self._has_ring:
            return None
        reply = await self._ask({"op": "state", "since": since})
        if reply.get("op") != "state":
            raise ConnectionError(f"the replay ring is gone: {reply.get('refused') or reply.get('message')}")
        return Fragment.unpack(reply["ring"], reply["payload"])

    async def restart(self, _command: replay.RestartTask) -> None:
        """End this attempt; another one follows here."""
        await self.m.finish(AGAIN)
