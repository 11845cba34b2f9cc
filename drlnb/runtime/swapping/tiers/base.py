"""Declare what a tier does, and hold what every tier has: counted bytes, and places that are used again."""

import math
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

__all__ = ["Held", "Meter", "Place", "Places", "Rate", "Ticket", "Tier", "flat"]

#: Share of its weight that a copy keeps when the next one is counted: some fifty copies make the mean.
_KEPT = 0.98
#: Offsets of places: pages of the file system and of the host's memory.
_ALIGNED = 4096


class Beside(Protocol):
    """Knows what the device has beside the bytes that a meter counts."""

    def counted(self, n_bytes: int) -> None:
        """Learn how many bytes were counted since this was last called."""

    def skip(self) -> None:
        """Leave out what was on the device since then."""


class Meter:
    """Bytes of saved storages that are on the device because of us, and the most there were; and the device's time."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.n_bytes, self.device = 0, device
        #: What the plan leaves room for; above it, copies that are under way are waited for.
        self.limit_bytes = math.inf
        #: Since :meth:`restart`.
        self.peak_bytes = 0
        #: Compares it with what the device has, while a step is recorded.
        self.beside: Beside | None = None
        #: How long steps have waited for copies, or for what is computed again, in all.
        self.waited_s = 0.0
        self._untimed_s = 0.0
        self._stopped_s: float | None = None
        self._lock = threading.RLock()  # a collected object may be counted out while the same thread counts one in

    def add(self, n_bytes: int) -> None:
        """Count bytes in, or out if negative."""
        with self._lock:
            self.compare()
            self.n_bytes += n_bytes
            if self.n_bytes > self.peak_bytes:
                self.peak_bytes = self.n_bytes

    def compare(self) -> None:
        """Have the bytes compared with those on the device, before either changes."""
        if self.beside is not None:
            self.beside.counted(self.n_bytes)

    def now(self) -> float:
        """Return the seconds that steps have computed, without waits and without what is :meth:`untimed`."""
        return self.settle() - self.waited_s - self._untimed_s if self._stopped_s is None else self._stopped_s

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Have the steps' time stand still while the context is open."""
        if self._stopped_s is not None:
            yield
            return
        self._stopped_s = stopped_s = self.now()
        try:
            yield
        finally:
            self._stopped_s = None
            self._untimed_s += self.now() - stopped_s  # waits in it stay waits

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave what is done while the context is open out of the steps' time, and out of what is compared."""
        with self.untimed():
            self.compare()
            try:
                yield
            finally:
                if self.beside is not None:
                    self.beside.skip()

    def follow(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until nobody has it any more."""
        n_bytes = storage.nbytes()
        self.add(n_bytes)
        weakref.finalize(storage, self.add, -n_bytes).atexit = False

    def settle(self) -> float:
        """Wait until the device has computed what it was given, but not for copies beside that; return the time."""
        if self.device is not None and self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return time.perf_counter()

    def stream(self) -> object:
        """Return the stream on which this thread computes; None where there are none."""
        return (
            torch.cuda.current_stream(self.device) if self.device is not None and self.device.type == "cuda" else None
        )

    def restart(self, beside: Beside | None = None) -> None:
        """Begin a new peak, and have changes compared with what the device has, if that is given."""
        with self._lock:
            self.peak_bytes, self.beside = self.n_bytes, beside


class Rate:
    """How long the newest copies took: each former one counts for less."""

    def __init__(self) -> None:
        self._n_bytes, self._copy_s = 0.0, 0.0

    def add(self, n_bytes: int, copy_s: float) -> None:
        """Count a copy that is done."""
        self._n_bytes, self._copy_s = _KEPT * self._n_bytes + n_bytes, _KEPT * self._copy_s + copy_s

    @property
    def s_per_byte(self) -> float:
        """Mean of late; 0 before the first one."""
        return self._copy_s / self._n_bytes if self._n_bytes else 0.0


class Held:
    """Keeps a storage alive, and counts its bytes until it is dropped."""

    __slots__ = ("__weakref__", "_meter", "_n_bytes", "storage")

    def __init__(self, meter: Meter, storage: torch.UntypedStorage) -> None:
        self._meter, self.storage, self._n_bytes = meter, storage, storage.nbytes()
        meter.add(self._n_bytes)

    def __del__(self) -> None:
        del self.storage  # first: nobody may count it among what is there beside the counted
        self._meter.add(-self._n_bytes)


class Ticket(Protocol):
    """One storage in a tier; its place is free again once nothing refers to the ticket."""

    def stay(self) -> bool:
        """Keep the storage here if it has not left; return whether it is here, or on its way back: it needs no room."""

    def load(self) -> None:
        """Begin to bring the bytes back, unless this was done or the storage has not left yet."""

    def wait(self) -> Held:
        """Return the bytes on the device, once what runs next there may read them."""

    def forget(self) -> None:
        """Give up what :meth:`load` has brought."""


class Tier(Protocol):
    """A place outside of the device's memory."""

    name: str
    #: Why it takes nothing more; empty while it works.
    broken: str
    #: Of the copies so far.
    out: "Rate"
    back: "Rate"

    def store(self, held: Held, /) -> Ticket | None:
        """Begin to copy a storage out, which stays alive until that is done; None if there is no place for it."""

    def relieve(self) -> bool:
        """Wait until the oldest copy out is done and its source gone; False if none is under way."""

    def close(self) -> None:
        """End its threads; what tickets still refer to can be waited for."""


class Place:
    """A range of a file, or of a piece of host memory; free again once nothing refers to it."""

    __slots__ = ("_freed", "offset", "piece", "size")

    def __init__(self, freed: "deque[tuple[int, int, int]]", piece: int, offset: int, size: int) -> None:
        self._freed, self.piece, self.offset, self.size = freed, piece, offset, size

    def __del__(self) -> None:
        # Only an append: a place may be collected in any thread, at any time.
        self._freed.append((self.piece, self.offset, self.size))


class Places:
    """Hands out ranges of pieces, the same ones again in every step.

    Parameters
    ----------
    sizes
        Bytes of the pieces there are; of a file, which grows, infinity.
    """

    def __init__(self, *sizes: float) -> None:
        self._sizes, self._ends = [*sizes], [0] * len(sizes)
        self._freed: deque[tuple[int, int, int]] = deque()
        self._free: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._n_taken = 0

    @property
    def n_taken(self) -> int:
        """How many places are in use."""
        while self._freed:
            piece, offset, size = self._freed.popleft()
            self._free[size].append((piece, offset))
            self._n_taken -= 1
        return self._n_taken

    def take(self, n_bytes: int, grow: Callable[[int], int] = lambda n_bytes: 0) -> Place | None:
        """Return a place.

        Parameters
        ----------
        n_bytes
            Its least size.
        grow
            Makes another piece of at least so many bytes and returns its size; 0 if there is none.

        Returns
        -------
        Place or None
            None if all is taken.
        """
        size = -(-n_bytes // _ALIGNED) * _ALIGNED
        if self.n_taken == 0:  # sizes of another batch need not stay cut out
            self._free.clear()
            self._ends = [0] * len(self._sizes)
        fitting = min((free for free, places in self._free.items() if free >= size and places), default=None)
        if fitting != size and (cut := self._cut(size, grow if fitting is None else lambda n_bytes: 0)) is not None:
            place = cut
        elif fitting is not None:
            place = Place(self._freed, *self._free[fitting].pop(), fitting)
        else:
            return None
        self._n_taken += 1
        return place

    def _cut(self, size: int, grow: Callable[[int], int]) -> Place | None:
        """Return a place that was never handed out, in another piece if need be."""
        rooms = zip(self._sizes, self._ends, strict=True)
        piece = next((i for i, (whole, end) in enumerate(rooms) if end + size <= whole), len(self._sizes))
        if piece == len(self._sizes):
            if not (grown := grow(size)):
                return None
            self._sizes.append(grown)
            self._ends.append(0)
        self._ends[piece] += size
        return Place(self._freed, piece, self._ends[piece] - size, size)


def flat(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return the bytes of a storage; shape ``(n_bytes,)``, uint8."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))
