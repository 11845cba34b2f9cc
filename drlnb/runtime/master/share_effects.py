"""Have the slots of a lease share gradient steps: gradients go from node to node, never through here."""

import time
from typing import TYPE_CHECKING

from drlnb.records.columns.batching import (
    ApplyGradients,
    ComputeShare,
    CutShare,
    GradientsApplied,
    JoinRound,
    RoundJoined,
    ShareComputed,
)
from drlnb.records.ids import Fence
from drlnb.runtime.master.slot_effects import SlotEffects
from drlnb.runtime.protocol import Plain

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["ShareEffects"]


class ShareEffects:
    """Carries out the commands of one master's machine that shared steps need, by what a slot needs anyway."""

    def __init__(self, master: "Master", slot: SlotEffects) -> None:
        self.m, self._slot = master, slot
        #: What the shares of the latest round said of it: the lead may have had none of them.
        self._round: Plain = {}

    async def compute(self, command: ComputeShare) -> None:
        """Have a slot compute its samples, and bring their gradient to the lead's node."""
        m, started = self.m, time.perf_counter()
        self._round = {name: getattr(command, name) for name in ("version", "after_timesteps", "settings")}
        async with self._slot.in_order[command.slot]:
            key = f"{command.round}/{command.split}/{command.first}/{command.fence.token}"
            more = {"key": key, "to": [m.slots.get(command.lead, "")], "needs": [*filter(None, [command.parameters])]}
            reply = await self._slot.with_state("share", command, b"", more, command.settings)
            if _says(reply, "need-parameters") and not _is_of(command.parameters, command.round):
                # A former round's are those of the version.
                more |= {"parameters": "", "needs": []}
                reply = await self._slot.with_state("share", command, b"", more, command.settings)
        if (event := self._event(reply, "shared", command.fence)) is not None:
            which = {name: getattr(command, name) for name in ("round", "split", "slot", "fence", "first")}
            took = {"n_planned": command.n, "elapsed_s": time.perf_counter() - started, "key": key}
            m.host.feed(ShareComputed, **which, **took, **event)

    async def join(self, command: JoinRound) -> None:
        """Have a slot compute its part of the minibatches of a round, beside the lead."""
        m = self.m
        async with self._slot.in_order[command.slot]:
            held = [m.experience.get(key) for key in command.keys]
            batches = [batch for batch in held if batch is not None]
            if len(batches) < len(held):
                return  # the round is over
            about = [(header, len(payload)) for header, payload in batches]
            more = {"batches": about, "gang": self._slot.gang(command)}
            payload = b"".join(payload for _, payload in batches)
            reply = await self._slot.with_state("join", command, payload, more, command.settings)
        if (event := self._event(reply, "joined", command.fence)) is not None:
            which = {name: getattr(command, name) for name in ("round", "fence", "slot")}
            m.host.feed(RoundJoined, **which, **event)

    async def cut(self, command: CutShare) -> None:
        """Have a share end at its next chunk, whatever the slot does meanwhile."""
        where = self.m.slots.get(command.slot, "")
        await self.m.link.call(where, "drlnb_cut", slot=command.slot, fence=command.fence, split=command.split)

    async def apply(self, command: ApplyGradients) -> None:
        """Have the lead make a step, or go on from one, and bring its parameters to the nodes of the others."""
        m, started = self.m, time.perf_counter()
        async with self._slot.in_order[command.slot]:
            key = f"{command.round}/{command.split}/made/{command.fence.token}"
            to = sorted({m.slots.get(slot, "") for slot in command.others})
            more = {**self._round, "key": key, "to": to, "needs": list(command.keys)}
            reply = await self._slot.with_state("apply", command, b"", more, {})
        if _says(reply, "behind"):
            reply, key = {"op": "applied", "event": {"cosines": ()}}, ""
        if (event := self._event(reply, "applied", command.fence)) is not None:
            which = {name: getattr(command, name) for name in ("round", "split", "fence")}
            event = {"elapsed_s": time.perf_counter() - started, "cosines": tuple(event.pop("cosines"))}
            m.host.feed(GradientsApplied, **which, key=key, **event)

    def _event(self, reply: Plain | None, op: str, fence: Fence) -> Plain | None:
        """Return what an executor says of its work; None if it has not done it: then the round is computed anew."""
        if reply is None or _says(reply, op):
            return reply and reply["event"]
        self.m.leases.lost(fence, f"a slot cannot share the step: {reply.get('op')}")
        return None


def _says(reply: Plain | None, op: str) -> bool:
    return reply is not None and reply["op"] == op


def _is_of(key: str, round: int) -> bool:
    """Return whether parameters were made in a round."""
    return key.startswith(f"{round}/")
