"""Swap to pinned memory of the host by copies on two side streams, so that a copy out overlaps one back.

Memory is pinned by pieces as it is needed, in the first steps: pinning makes the device wait.  Sizes of pieces are
powers of two, to which torch's allocator of pinned memory would round them up.

Each order below stops a race.  Out: the copy waits for what has written the source, an event of the computing stream.
The source is dropped only after the computing stream was told to wait for the copy: what is allocated there next comes
after it.  Back: the buffer is allocated on the computing stream, whose event the copy waits for: what used that memory
before may still run, and the copy out, which the computing stream has waited for, must have ended.  The computing
stream waits for the copy before it reads the buffer, and before it drops one that nobody wanted: so the next copy into
the same place, which waits for the computing stream, comes after the copy out of it.
"""

import math
import weakref
from collections import deque

import torch

from drlnb.records.units import said_bytes
from drlnb.runtime.swapping.report import warn
from drlnb.runtime.swapping.tiers.base import Held, Meter, Place, Places, Rate, flat
from drlnb.runtime.swapping.tiers.streams import Streams

__all__ = ["SlabTier"]


#: Size of the first piece, and of the largest that are pinned ahead of what needs them.
_LEAST_BYTES, _MOST_BYTES = 4 << 20, 256 << 20


class SlabTier:
    """Holds saved tensors in pinned memory of the host.

    Parameters
    ----------
    meter
        Counts what is on the device.
    streams
        Where copies are made.
    stash_bytes
        So many bytes of sources may wait for their copies; above, the computing stream waits for the oldest.
    """

    name = "slab"

    def __init__(self, meter: Meter, streams: Streams, stash_bytes: int) -> None:
        self.meter, self.streams, self.broken = meter, streams, ""
        self.out, self.back = Rate(), Rate()
        self.places, self._stash_bytes = Places(), stash_bytes
        self.pieces = list[torch.Tensor]()
        self._refused_bytes, self._is_told = math.inf, False  # as much was not to be had
        self._free = weakref.finalize(self, _let_go, self.pieces, streams)  # a ticket keeps the tier
        self._free.atexit = False
        self._leaving: deque[weakref.ref[_SlabTicket]] = deque()
        self._timed: deque[tuple[Rate, int, object, object]] = deque()

    def time(self, rate: Rate, n_bytes: int, began: object, ended: object) -> None:
        """Count a copy once it has happened: until then nobody knows how long it takes."""
        self._timed.append((rate, n_bytes, began, ended))
        while self._timed and self.streams.done(self._timed[0][3]):
            rate, n_bytes, began, ended = self._timed.popleft()
            rate.add(n_bytes, self.streams.seconds(began, ended))

    def store(self, held: Held) -> "_SlabTicket | None":
        """Begin to copy a storage out; None if the host has no memory for it."""
        place = None if self.broken else self.places.take(held.storage.nbytes(), self._grow)
        if place is None:
            return None
        ticket = _SlabTicket(self, place, held)
        self._leaving.append(weakref.ref(ticket))
        while self._leaving and self._first_is_done():
            self.relieve()
        while sum(each.n_bytes for ref in self._leaving if (each := ref())) > self._stash_bytes and self.relieve():
            pass
        return ticket

    def _grow(self, n_bytes: int) -> int:
        """Pin another piece of at least so many bytes, as large as all before it if that can be; return its size."""
        least_bytes = max(_LEAST_BYTES, 1 << (n_bytes - 1).bit_length())
        pinned_bytes = sum(each.numel() for each in self.pieces)
        for size in (max(least_bytes, min(pinned_bytes, _MOST_BYTES)), least_bytes):
            piece = self.streams.piece(size) if size < self._refused_bytes else None
            if piece is not None:
                self.pieces.append(piece)
                return size
            self._refused_bytes = min(self._refused_bytes, size)
        if not self._is_told:
            self._is_told = True
            had = said_bytes(pinned_bytes)
            warn(
                f"swapping: the host has no memory to pin for saved tensors beyond {had}: the rest stays on the device"
            )
        return 0

    def _first_is_done(self) -> bool:
        ticket = self._leaving[0]()
        return ticket is None or self.streams.done(ticket.stored)

    def relieve(self) -> bool:
        """Have the computing stream wait for the oldest copy out, and drop its source."""
        if not self._leaving:
            return False
        ticket = self._leaving.popleft()()
        if ticket is not None:
            ticket.release()
        return True

    def close(self) -> None:
        """Accept nothing more; a piece goes with the last ticket in it."""
        self.broken = self.broken or "it is closed"
        self.pieces.clear()
        if self.places.n_taken == 0:
            self._free()


def _let_go(pieces: list[torch.Tensor], streams: Streams) -> None:
    pieces.clear()
    streams.give_back()


class _SlabTicket:
    """One storage on the host."""

    __slots__ = (
        "__weakref__", "_arrived", "_buffer", "_may_leave", "_memory", "_place", "_source", "_stays", "_tier",
        "n_bytes", "stored",
    )  # fmt: skip

    def __init__(self, tier: SlabTier, place: Place, held: Held) -> None:
        self._tier, self._place, self.n_bytes = tier, place, held.storage.nbytes()
        self._source: Held | None = None
        self._may_leave = self._stays = False  # its room is wanted; it is wanted back before it has left
        self._buffer: Held | None = None
        self._arrived: object = None
        self._memory = tier.pieces[place.piece][place.offset : place.offset + self.n_bytes]
        streams = tier.streams
        streams.wait("out", streams.record(None))
        began = streams.record("out")
        streams.copy("out", self._memory, flat(held.storage))
        self.stored = streams.record("out")
        tier.time(tier.out, self.n_bytes, began, self.stored)
        self._source = held

    def release(self) -> None:
        """Drop the source, whose memory the computing stream uses again once the copy is done; or once it was read."""
        self._may_leave = True
        source = None if self._stays else self._left()
        if source is not None:
            self._tier.streams.drop(flat(source.storage))

    def _left(self) -> Held | None:
        """Give up the source: whatever uses its memory next comes after the copy."""
        source, self._source = self._source, None
        if source is not None:
            self._tier.streams.wait(None, self.stored)
        return source

    def stay(self) -> bool:
        """Keep the source if it is here: it is wanted back."""
        self._stays = self._source is not None
        return self._stays or self._buffer is not None

    def load(self) -> None:
        """Begin to copy it back; what is still here stays: others would take its room."""
        if self.stay():
            return
        streams = self._tier.streams
        memory = streams.empty(self.n_bytes)
        streams.wait("back", streams.record(None))
        began = streams.record("back")
        streams.copy("back", memory, self._memory)
        self._arrived = streams.record("back")
        self._tier.time(self._tier.back, self.n_bytes, began, self._arrived)
        self._buffer = Held(self._tier.meter, memory.untyped_storage())

    def wait(self) -> Held:
        """Return what was copied back; what computes next waits for it."""
        self._stays = False
        source = self._left() if self._may_leave else self._source
        if source is not None:
            return source
        self.load()
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            raise RuntimeError("a copy back was not begun: a defect of drlnb")
        self._tier.streams.wait(None, self._arrived)
        return buffer

    def forget(self) -> None:
        """Drop what was copied back: the computing stream waits, or it would use the memory during the copy."""
        self._stays = False
        if self._may_leave:
            self.release()
        if self._buffer is not None:
            self._tier.streams.drop(flat(self.wait().storage))

    def __del__(self) -> None:
        self._may_leave = True
        self.forget()
