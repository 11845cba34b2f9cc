"""Swap to a file: saved tensors of the CPU, whose memory they leave for the disk or its cache.

The file has no name; ``pwrite`` and ``preadv`` run in one thread each and release the interpreter.  The file's cache is
memory that the kernel takes back when it needs it; a file in a memory file system is no saving, only a stand-in.
"""

import math
import os
import tempfile
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch

from drlnb.runtime.swapping.tiers.base import Held, Meter, Place, Places, Rate, flat

__all__ = ["IN_FLIGHT_BYTES", "FileTier"]

#: Copies under way together, each way, have at most about this many bytes.
IN_FLIGHT_BYTES = 64 << 20


class FileTier:
    """Holds saved tensors in a file without a name.

    Parameters
    ----------
    meter
        Counts what comes back.
    folder
        Where the file is; None: where temporary files go.
    in_flight_bytes
        Bound on the bytes that wait to be written.

    Raises
    ------
    OSError
        If no file can be made there.
    """

    name = "file"

    def __init__(self, meter: Meter, folder: Path | None = None, in_flight_bytes: int = IN_FLIGHT_BYTES) -> None:
        self.meter, self.broken = meter, ""
        self.out, self.back = Rate(), Rate()
        self.file, path = tempfile.mkstemp(dir=folder, prefix="drlnb-swap-")
        Path(path).unlink()
        self._close_file = weakref.finalize(self, os.close, self.file)  # a ticket keeps the tier, and so the file
        self.places = Places(math.inf)
        self.writer, self.reader = ThreadPoolExecutor(1, "drlnb swap out"), ThreadPoolExecutor(1, "drlnb swap in")
        self._in_flight_bytes = in_flight_bytes
        self._writing: deque[tuple[int, Future[None]]] = deque()
        self.lock = threading.RLock()  # of what tickets hold; a collected object may let go of one

    def store(self, held: Held) -> "_FileTicket | None":
        """Begin to write a storage; waits while too many bytes are under way."""
        if self.broken:
            return None
        n_bytes = held.storage.nbytes()
        while sum(size for size, _ in self._writing) + n_bytes > self._in_flight_bytes and self.relieve():
            pass
        while self._writing and self._writing[0][1].done():
            self._writing.popleft()
        place = self.places.take(n_bytes)
        if place is None:
            return None
        ticket = _FileTicket(self, place, held)
        self._writing.append((n_bytes, self.writer.submit(_write, [ticket])))
        return ticket

    def relieve(self) -> bool:
        """Wait until the oldest storage is written."""
        if self._writing:
            began_s = time.perf_counter()
            self._writing.popleft()[1].result()
            self.meter.waited_s += time.perf_counter() - began_s
            return True
        return False

    def write(self, rest: memoryview, offset: int) -> None:
        """Write bytes to the file from an offset on.

        Raises
        ------
        OSError
            If they cannot be written, all of them.
        """
        end = offset + len(rest)
        while rest:
            rest = rest[os.pwrite(self.file, rest, end - len(rest)) :]

    def read(self, rest: memoryview, offset: int) -> None:
        """Fill memory with the bytes of the file from an offset on.

        Raises
        ------
        OSError
            If they cannot be read, or the file ends before.
        """
        end = offset + len(rest)
        while rest:
            n_read = os.preadv(self.file, [rest], end - len(rest))
            if n_read == 0:
                raise OSError(f"the swap file ends before byte {end}")
            rest = rest[n_read:]

    def close(self) -> None:
        """End both threads; the file goes with its last ticket."""
        self.broken = self.broken or "it is closed"
        self.writer.shutdown()
        self.reader.shutdown()
        if self.places.n_taken == 0:
            self._close_file()


class _FileTicket:
    """One storage in the file."""

    __slots__ = ("_loading", "_n_bytes", "_place", "_source", "_stays", "_tier", "copy_s")

    def __init__(self, tier: FileTier, place: Place, held: Held) -> None:
        self._tier, self._place, self._n_bytes = tier, place, held.storage.nbytes()
        self._source: Held | None = held
        self._stays = False  # it is wanted back before it has left
        self._loading: tuple[Held, Future[None]] | None = None
        self.copy_s = 0.0

    def write(self) -> None:
        """Write the storage and let go of it; one that cannot be written stays in memory, and nothing is lost."""
        source = self._source
        if source is None:
            return
        began_s = time.perf_counter()
        try:
            self._tier.write(memoryview(flat(source.storage).numpy()), self._place.offset)
        except OSError as problem:
            self._tier.broken = str(problem)
            return
        self.copy_s = time.perf_counter() - began_s
        self._tier.out.add(self._n_bytes, self.copy_s)
        with self._tier.lock:
            self._source = source if self._stays else None

    def stay(self) -> bool:
        """Keep the storage if it is here: it is wanted back, written or not."""
        with self._tier.lock:
            self._stays = self._source is not None
        return self._stays or self._loading is not None

    def load(self) -> None:
        """Begin to read it; what is still here stays: others would take its room."""
        if not self.stay() and self._tier.broken != "it is closed":
            held = self._room()
            self._loading = held, self._tier.reader.submit(_read, [(self, held)])

    def _room(self) -> Held:
        return Held(self._tier.meter, torch.empty(self._n_bytes, dtype=torch.uint8, device="cpu").untyped_storage())

    def wait(self) -> Held:
        """Return what was read."""
        if (source := self._taken()) is not None:
            return source
        self.load()
        loading, self._loading = self._loading, None
        held = loading[0] if loading else self._room()
        try:
            if loading:
                loading[1].result()
            else:
                self.read(held)
            return held
        finally:
            del loading, held  # or an error would hold this frame, and with it the graph

    def forget(self) -> None:
        """Drop what was read."""
        self._taken()
        self._loading = None

    def _taken(self) -> Held | None:
        """Return the storage if it is still here; it stays no longer than until it is written."""
        with self._tier.lock:
            source, self._stays = self._source, False
            self._source = None if self.copy_s > 0 else source
        return source

    def read(self, held: Held) -> None:
        """Read it."""
        began_s = time.perf_counter()
        self._tier.read(memoryview(flat(held.storage).numpy()), self._place.offset)
        self._tier.back.add(self._n_bytes, time.perf_counter() - began_s)


# A ticket in a box: once the future is done, the thread holds neither ticket nor bytes, so both count for nobody.
def _write(box: list[_FileTicket]) -> None:
    box.pop().write()


def _read(box: list[tuple[_FileTicket, Held]]) -> None:
    ticket, held = box.pop()
    ticket.read(held)
