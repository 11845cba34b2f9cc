"""Keep at a node what the members of leases compute for one another: gradients until a step is made, its parameters.

Gradients go when their step is made or their lease is over, parameters when newer ones are here, and all of it with its
task.  What comes later than that is not kept.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from drlnb.records.ids import Fence
from drlnb.runtime.ipc.shared_memory import LEAST_BYTES, Segments
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["EXCHANGED", "Exchange"]

#: Frames whose results go to other executors, and not to whoever asked; and how they are answered.
EXCHANGED = {"share": "shared", "apply": "applied"}

#: Leases that have been taken away of late: what still comes of them is not kept.
_MOST_VOID = 256

#: (fence, round, step): steps in their order; one may have several splits.
_Step = tuple[Fence, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What the header of a frame says of what is exchanged."""

    op: str
    #: Keys of what the executor needs.
    needs: Sequence[str]
    #: Under which key the result shall be kept, and at which nodes, by their addresses.
    key: str
    to: Sequence[str]
    task: str
    attempt: int
    fence: Fence
    round: int
    step: int

    @classmethod
    def of(cls, header: Plain) -> "_Frame":
        """Read a header."""
        return cls(**{each.name: header[each.name] for each in fields(cls)})


@dataclass(slots=True)
class _Kept:
    """What is kept of one task."""

    #: The first step whose gradients are kept still.
    since: _Step
    gradients: dict[str, Payload] = field(default_factory=dict)
    #: The newest parameters of a step, by their key.
    parameters: dict[str, Payload] = field(default_factory=dict)

    def move(self, step: _Step) -> None:
        """Drop gradients of steps before this one."""
        if step > self.since:
            self.since = step
            self.gradients.clear()


class Exchange:
    """What is kept at one node, for which `link` speaks; large ones lie in `segments`, where executors find them."""

    def __init__(self, link: Link, segments: Segments) -> None:
        self._link, self._segments = link, segments
        self._kept: dict[str, _Kept] = {}
        #: Task -> its newest attempt that is over here.
        self._over: dict[str, int] = {}
        self._void: deque[Fence] = deque(maxlen=_MOST_VOID)

    def lay_out(self, header: Plain) -> list[Payload]:
        """Say in a frame's header where the executor finds what it needs; return what goes in the frame itself.

        It gets all that it needs, in that order, or nothing.
        """
        frame = _Frame.of(header)
        kept = self._kept.get(frame.task)
        everything = {**kept.gradients, **kept.parameters} if kept is not None else {}
        found = [everything[key] for key in frame.needs if key in everything]
        found = found if len(found) == len(frame.needs) else []
        places = [self._segments.find(part) for part in found]
        header |= {"parts": [[*(place or ("", 0)), len(part)] for place, part in zip(places, found, strict=True)]}
        return [part for place, part in zip(places, found, strict=True) if place is None]

    async def settle(self, header: Plain, answer: Plain, result: Payload, timeout_s: float) -> Plain:
        """Bring a frame's result to where it is needed; return what the executor has answered, or a refusal.

        Parameters
        ----------
        header, answer
            The frame, and its answer.
        result
            A gradient, or the parameters of the step that was made.
        timeout_s
            Longest wait for a node.
        """
        frame = _Frame.of(header)
        if answer.get("op") != EXCHANGED[frame.op]:
            return answer
        step: Plain = {"fence": frame.fence, "round": frame.round, "step": frame.step, "made": frame.op == "apply"}
        about: Plain = {"task": frame.task, "attempt": frame.attempt, "key": frame.key, **step}
        if frame.op == "apply" and self._link.address not in frame.to:  # its gradients are needed no more
            await self.take(**about)
        sent = [
            self._link.call(address, "drlnb_take", timeout_s=timeout_s, payload=result, **about) for address in frame.to
        ]
        refused = [str(reply.get("refused", "")) for reply in await asyncio.gather(*sent)]
        if any(refused):
            why = "; ".join(filter(None, refused))
            return {"op": "refused", "reason": f"what was computed could not be brought to another node: {why}"}
        return answer

    async def take(
        self,
        task: str,
        attempt: int,
        fence: Fence,
        round: int,
        step: int,
        key: str,
        made: bool,
        payload: Payload = b"",
    ) -> None:
        """Keep a gradient of a step, or the parameters of one that was `made`: its gradients are not needed then.

        Parameters
        ----------
        task, attempt
            The task's name in the pool, and its attempt.
        fence, round, step
            Name the step.
        key, payload
            What shall be kept, and under which key; nothing if it is empty.
        made
            Whether it is parameters.
        """
        if attempt <= self._over.get(task, 0) or fence in self._void:
            return
        at = (fence, round, step)
        kept = self._kept.setdefault(task, _Kept(at))
        if at < kept.since:
            return
        kept.move((fence, round, step + 1) if made else at)
        if len(payload) and made:
            kept.parameters = {key: self._shown(payload)}
        elif len(payload):
            kept.gradients[key] = self._shown(payload)

    def _shown(self, payload: Payload) -> Payload:
        """Return what is to be kept, where executors find it if it is large."""
        if len(payload) < LEAST_BYTES or self._segments.find(payload):
            return payload
        lent = self._segments.lend(len(payload))
        if lent is None:
            return payload
        lent[1][:] = payload
        return lent[1]

    def revoke(self, fence: Fence) -> None:
        """Drop gradients of a lease that is over."""
        self._void.append(fence)
        for kept in self._kept.values():
            if kept.since[0] == fence:
                kept.gradients.clear()

    def forget(self, task: str, attempt: int) -> None:
        """Drop everything of a task whose attempt is over."""
        self._over[task] = max(attempt, self._over.get(task, 0))
        self._kept.pop(task, None)

    def close(self) -> None:
        """Drop everything."""
        self._kept.clear()
