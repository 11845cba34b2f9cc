"""Return large results from an executor without a copy per hand: in memory that it shares with its agent.

The agent makes the segments and lends them: one to each piece of work whose result it expects to be large.  A segment
is lent until nobody looks at what is in it any more, so whoever keeps a result keeps it as it is; the executor's death
takes nothing along.
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

__all__ = ["Segment", "Segments", "attached", "create"]

#: Smaller results travel in their frame.
LEAST_BYTES = 1 << 18
#: Segments that lie ready for the next result; one per executor of a large node.
_MOST_FREE = 4


def create(n_bytes: int, directory: Path, label: str) -> tuple[int, str, str | None]:
    """Make a file in memory, or where there is no such thing in a folder; return (descriptor, path, file to remove).

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
    file: str | None = None
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(f"drlnb-{label}", os.MFD_CLOEXEC)
        path = f"/proc/{os.getpid()}/fd/{fd}"
    else:
        directory.mkdir(parents=True, exist_ok=True)
        fd, file = tempfile.mkstemp(prefix=f"drlnb-{label}-", dir=directory)
        path = file
    try:
        # ftruncate beyond a small file system succeeds and the write dies of SIGBUS; this one says ENOSPC.
        os.posix_fallocate(fd, 0, n_bytes)
    except OSError:
        os.close(fd)
        if file:
            Path(file).unlink(missing_ok=True)
        raise
    return fd, path, file


class Segment:
    """Memory of `n_bytes` bytes that other processes of this user reach by its path."""

    def __init__(self, n_bytes: int, directory: Path) -> None:
        self.n_bytes = n_bytes
        self._fd, self.path, self._file = create(n_bytes, directory, "segment")
        self._map = mmap.mmap(self._fd, n_bytes)

    def look(self) -> np.ndarray:
        """Return it as a fresh uint8 array of shape ``(n_bytes,)``."""
        return np.frombuffer(self._map, dtype=np.uint8)

    def close(self) -> None:
        """Give the memory back."""
        with contextlib.suppress(BufferError):  # somebody looks at it still: the mapping goes with the last one
            self._map.close()
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
        while len(self._free) > (0 if self._closed else _MOST_FREE):
            self._free.popleft().close()

    def find(self, view: object) -> tuple[str, int] | None:
        """Return (path, first byte) of what a view shows of a segment; None if it shows something else."""
        exporter = view.obj if isinstance(view, memoryview) else None
        segment = self._lent.get(id(exporter))
        if segment is None or not isinstance(exporter, np.ndarray):
            return None
        start = np.frombuffer(view, dtype=np.uint8).ctypes.data - exporter.ctypes.data
        return segment.path, start

    def trim(self) -> None:
        """Give back what nobody looks at."""
        while self._free:
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
    fd = os.open(path, os.O_RDWR if write else os.O_RDONLY)
    try:
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
        mapped = mmap.mmap(fd, n_bytes, flags=flags, prot=prot)
    finally:
        os.close(fd)
    array = np.frombuffer(mapped, dtype=np.uint8)
    try:
        yield array
    finally:
        del array
        with contextlib.suppress(BufferError):
            mapped.close()
