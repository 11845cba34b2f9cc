"""Share memory with other processes of a host: large results of executors, and parameters for its actors.

A result comes back without a copy per hand: the agent makes segments and lends them, one to each piece of work whose
result it expects to be large.  A segment is lent until nobody looks at what is in it any more, so whoever keeps a
result keeps it as it is; the executor's death takes nothing along.

Parameters: one mapping per task and host, no message per actor.  The writer is the node agent, readers are collectors.
The copy-safe simple form: a reader copies the newest slot and looks again; if the slot was taken over meanwhile it
copies once more.  With `N_SLOTS` slots that happens only when the writer publishes `N_SLOTS` versions during one copy.

Layout: one page of header (magic, slot bytes, current word), then the slots, each ``<version: 8><length: 8><bytes>``.
A *word* is ``version << 8 | slot``, stored with one aligned 8-byte write.
"""

import contextlib
import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from drlnb.runtime.protocol import Payload

__all__ = ["LEAST_BYTES", "N_SLOTS", "HostStore", "Segment", "Segments", "StoreReader", "attached"]

#: Smaller results travel in their frame.
LEAST_BYTES = 1 << 18
#: Segments that lie ready for the next result; one per executor of a large node.
_MOST_FREE = 4
#: Slots per task and host: the version in use, the one before, and two to write ahead.
N_SLOTS = 4
_MAGIC = 0x44524C4E42535430
_PAGE = mmap.ALLOCATIONGRANULARITY
_SLOT_HEAD = 16


class Segment:
    """Memory that other processes of this user reach by its path: a file in memory, or in a folder without these.

    Parameters
    ----------
    n_bytes
        Its size; all of it is there afterwards.
    directory
        Where the file goes on systems without memory files.
    label
        Its name, for whoever looks at the machine.

    Raises
    ------
    OSError
        If there is no room.
    """

    def __init__(self, n_bytes: int, directory: Path, label: str = "segment") -> None:
        self.n_bytes = n_bytes
        if hasattr(os, "memfd_create"):
            self._fd, self._file = os.memfd_create(f"drlnb-{label}", os.MFD_CLOEXEC), ""
        else:
            directory.mkdir(parents=True, exist_ok=True)
            self._fd, self._file = tempfile.mkstemp(prefix=f"drlnb-{label}-", dir=directory)
        self.path = self._file or f"/proc/{os.getpid()}/fd/{self._fd}"
        try:
            # ftruncate beyond a small file system succeeds and the write dies of SIGBUS; this one says ENOSPC.
            os.posix_fallocate(self._fd, 0, n_bytes)
            self._map = mmap.mmap(self._fd, n_bytes)
        except OSError:
            self._remove()
            raise

    def look(self) -> np.ndarray:
        """Return it as a fresh uint8 array of shape ``(n_bytes,)``."""
        return np.frombuffer(self._map, dtype=np.uint8)

    def close(self) -> None:
        """Give the memory back."""
        with contextlib.suppress(BufferError):  # somebody looks at it still: the mapping goes with the last one
            self._map.close()
        self._remove()

    def _remove(self) -> None:
        os.close(self._fd)
        if self._file:
            Path(self._file).unlink(missing_ok=True)


class Segments:
    """The segments of one node.

    Parameters
    ----------
    directory
        Where files go on systems without memory files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._free: deque[Segment] = deque()
        #: Id of the array by which a segment is lent -> the segment.
        self._lent: dict[int, Segment] = {}
        self._closed = False

    def lend(self, n_bytes: int) -> tuple[Segment, memoryview] | None:
        """Return a segment of at least `n_bytes`, and a view of them that keeps it lent; None if there is no room."""
        segment = next((free for free in self._free if n_bytes <= free.n_bytes <= 2 * n_bytes), None)
        if segment is not None:
            self._free.remove(segment)
        else:
            try:
                segment = Segment(n_bytes, self._directory)
            except OSError:
                return None
        array = segment.look()
        self._lent[id(array)] = segment
        weakref.finalize(array, self._back, id(array)).atexit = False
        return segment, array.data[:n_bytes]

    def _back(self, key: int) -> None:
        segment = self._lent.pop(key)
        self._free.append(segment)
        self.trim(0 if self._closed else _MOST_FREE)

    def find(self, view: object) -> tuple[str, int] | None:
        """Return (path, first byte) of what a view shows of a segment; None if it shows something else."""
        exporter = view.obj if isinstance(view, memoryview) else None
        segment = self._lent.get(id(exporter))
        if segment is None or not isinstance(exporter, np.ndarray):
            return None
        start = np.frombuffer(view, dtype=np.uint8).ctypes.data - exporter.ctypes.data
        return segment.path, start

    def trim(self, n_kept: int = 0) -> None:
        """Give back what nobody looks at, but for some."""
        while len(self._free) > n_kept:
            self._free.popleft().close()

    def close(self) -> None:
        """Give back what nobody looks at, and the rest once nobody does."""
        self._closed = True
        self.trim()


@contextlib.contextmanager
def attached(path: str, n_bytes: int, *, write: bool = False) -> Iterator[np.ndarray]:
    """Show the first `n_bytes` of another process's segment as a uint8 array; it must not be kept.

    Raises
    ------
    OSError
        If it is gone, or its owner is.
    """
    mapped = _mapped(path, n_bytes, getattr(mmap, "MAP_POPULATE", 0), write=write)
    array = np.frombuffer(mapped, dtype=np.uint8)
    try:
        yield array
    finally:
        del array
        with contextlib.suppress(BufferError):
            mapped.close()


def _mapped(path: str, n_bytes: int = 0, flags: int = 0, *, write: bool = False) -> mmap.mmap:
    """Map the first `n_bytes` of another process's segment; 0: all of it."""
    with Path(path).open("r+b" if write else "rb") as file:
        access = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
        return mmap.mmap(file.fileno(), n_bytes, flags=mmap.MAP_SHARED | flags, prot=access)


def _stride(slot_bytes: int) -> int:
    return -(-(slot_bytes + _SLOT_HEAD) // _PAGE) * _PAGE


class HostStore:
    """The writer's end.

    Parameters
    ----------
    n_bytes
        Size of one version.
    directory
        Where the file goes on systems without memory files.
    """

    def __init__(self, n_bytes: int, directory: Path) -> None:
        self.n_bytes = n_bytes
        self.version = 0
        self._slot = 0
        self._segment: Segment | None = Segment(_PAGE + N_SLOTS * _stride(n_bytes), directory, "store")
        self.path = self._segment.path
        self._bytes = self._segment.look()
        self._head = self._bytes[:24].view(np.uint64)
        self._head[:2] = _MAGIC, n_bytes

    def write(self, version: int, payload: Payload) -> None:
        """Put a whole version into the next slot, then make it the current one.

        Raises
        ------
        ValueError
            If the payload has not the size of a version.
        """
        view = memoryview(payload).cast("B")
        if view.nbytes != self.n_bytes:
            raise ValueError(f"payload must have {self.n_bytes} bytes, got {view.nbytes}")
        self._slot = (self._slot + 1) % N_SLOTS
        start = _PAGE + self._slot * _stride(self.n_bytes)
        head = self._bytes[start : start + _SLOT_HEAD].view(np.uint64)
        head[0] = 0  # a reader that copies this slot now will notice
        self._bytes[start + _SLOT_HEAD :][: view.nbytes] = np.frombuffer(view, dtype=np.uint8)
        head[1], head[0] = view.nbytes, version
        self._head[2] = (version << 8) | self._slot
        self.version = version

    def current(self) -> bytes:
        """Return a copy of the current version."""
        start = _PAGE + self._slot * _stride(self.n_bytes) + _SLOT_HEAD
        return self._bytes[start:][: self.n_bytes].tobytes()

    def close(self) -> None:
        """Give the memory back; readers that still map it keep it until they end."""
        if self._segment is not None:
            del self._head, self._bytes
            self._segment.close()
            self._segment = None


class StoreReader:
    """A reader's end; opens the store by the path that the agent names."""

    def __init__(self, path: str) -> None:
        self._map = _mapped(path)
        self.path = path
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._head = self._bytes[:24].view(np.uint64)
        if int(self._head[0]) != _MAGIC:
            raise ValueError(f"{path} is not a host store")
        self.n_bytes = int(self._head[1])

    def read(self) -> tuple[int, np.ndarray]:
        """Return (version, copy of its bytes as uint8 of shape ``(n_bytes,)``); version 0 = nothing there yet."""
        while True:
            word = int(self._head[2])
            version, slot = word >> 8, word & 0xFF
            if version == 0:
                return 0, np.empty(0, dtype=np.uint8)
            start = _PAGE + slot * _stride(self.n_bytes)
            copy = self._bytes[start + _SLOT_HEAD :][: self.n_bytes].copy()
            if int(self._bytes[start : start + 8].view(np.uint64)[0]) == version:
                return version, copy

    def close(self) -> None:
        """Unmap."""
        del self._head, self._bytes
        self._map.close()
