"""Tell the members of a gang once all of them have brought their parts of a minibatch.

A part lies in a member's own memory, which its host's other members read there.  For other hosts the agents bring it:
the one that gets it keeps it where the members there find it, until the second one after it has come.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from drlnb.records.ids import Fence
from drlnb.runtime.ipc.parts import Part, Place
from drlnb.runtime.ipc.shared_memory import Segment, Segments, attached
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Meetings"]

#: Leases that are over of late: what still comes of them is not kept.
_MOST_OVER = 256
#: How often a part is brought to a node that does not take it.
_TRIALS = 3


class _Minibatch(NamedTuple):
    """Names a minibatch of a round, by its number from 1."""

    fence: Fence
    round: int
    number: int


class Meetings:
    """The meetings of one node, for which `link` speaks.

    Parameters
    ----------
    link, segments
        Of the node.
    tell
        Sends a frame to the executor of a slot of this node.
    """

    def __init__(self, link: Link, segments: Segments, tell: Callable[[str, Plain], None]) -> None:
        self._link, self._segments, self._tell = link, segments, tell
        #: Minibatch -> slot -> where its part is.
        self._brought: dict[_Minibatch, dict[str, Place]] = {}
        #: (fence, slot, 0 or 1) -> the part that was brought here last but one, or last.
        self._kept: dict[tuple[Fence, str, int], tuple[Segment, memoryview]] = {}
        self._over: deque[Fence] = deque(maxlen=_MOST_OVER)

    def brought(self, header: Mapping[str, object]) -> None:
        """Note the part of a member of this node, and bring it to the other nodes of its gang."""
        part = Part.read(header)
        self._note(part)
        others = {address for _, address in part.gang} - {self._link.address}
        path, start, n_bytes = part.place
        computed = b""
        if others and n_bytes:
            with suppress(OSError), attached(path, start + n_bytes) as shared:  # else it is dead: its lease is over
                computed = bytes(shared[start:])
        for address in others:
            self._link.keep(self._bring(address, part, computed))

    async def _bring(self, address: str, part: Part, computed: bytes) -> None:
        """Bring a part to another node; where that fails again and again, tell its member that the gang is no more."""
        about = {name: value for name, value in part._asdict().items() if name != "place"}
        for trial in range(_TRIALS):
            reply = await self._link.call(address, "drlnb_part", payload=computed, **about)
            if (why := reply.get("refused")) and trial == _TRIALS - 1:
                self._tell(part.slot, {"op": "apart", "fence": part.fence, "reason": why})
            if not why:
                return

    async def part(
        self, fence: Fence, round: int, number: int, slot: str, gang: list[tuple[str, str]], payload: Payload = b""
    ) -> None:
        """Take in the part of a member of another node."""
        place: Place = ("", 0, 0)
        if len(payload) and fence not in self._over:
            place = self._keep(payload, (fence, slot, number % 2))
        self._note(Part(fence, round, number, slot, gang, place))

    def _keep(self, payload: Payload, key: tuple[Fence, str, int]) -> Place:
        """Keep a part in the place of the one before the last, which all have read: its path stays the same.

        Raises
        ------
        OSError
            If there is no room.
        """
        segment, kept = self._kept.get(key, (None, memoryview(b"")))
        if segment is None or len(kept) < len(payload):
            lent = self._segments.lend(len(payload))
            if lent is None:
                raise OSError("there is no memory for what another node has computed")
            segment, kept = self._kept[key] = lent
        kept[: len(payload)] = payload
        return segment.path, 0, len(payload)

    def _note(self, part: Part) -> None:
        """Note where a part is; tell all members of this node once it was the last one."""
        if part.fence in self._over:
            return
        minibatch = _Minibatch(part.fence, part.round, part.number)
        places = self._brought.setdefault(minibatch, {})
        places[part.slot] = part.place
        if len(places) < len(part.gang):
            return
        del self._brought[minibatch]
        for slot, address in part.gang:
            if address == self._link.address:
                told = [places[name] for name, _ in part.gang]
                self._tell(slot, {"op": "parts", **minibatch._asdict(), "places": told})
        if not any(n_bytes for _, _, n_bytes in places.values()):  # they part
            self.end(part.fence)

    def end(self, fence: Fence) -> None:
        """Drop what is kept of a lease whose round is made, or that is over."""
        self._over.append(fence)
        self._brought = {key: places for key, places in self._brought.items() if key.fence != fence}
        self._kept = {key: part for key, part in self._kept.items() if key[0] != fence}
