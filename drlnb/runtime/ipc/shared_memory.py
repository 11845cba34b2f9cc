"""Share memory with other processes of a host, without a copy per hand; large results of executors come back so.

The agent makes segments and lends them, one to each piece of work whose result it expects to be large.  A segment is
lent until nobody looks at what is in it any more, so whoever keeps a result keeps it as it is; the executor's death
takes nothing along.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["LEAST_BYTES", "Segment", "Segments", "attached"]

#: Smaller results travel in their frame.
LEAST_BYTES = 1 << 18
#: Segments that lie ready for the next result; one per executor of a large node.
_MOST_FREE = 4


class Segment:
    """Memory that other processes of this user reach by its path: a file in memory.

    Parameters
    ----------
    n_bytes
        Its size; all of it is there afterwards.
    label
        Its name, for whoever looks at the machine.

    Raises
    ------
    OSError
        If there is no room.
    """

    def __init__(self, n_bytes: int, label: str = "segment") -> None:
        self.n_bytes = n_bytes
        _check_room(n_bytes)
        self.fd = os.memfd_create(f"drlnb-{label}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"
        try:
            # ftruncate beyond a small file system succeeds and the write dies of SIGBUS; this one says ENOSPC.
            os.posix_fallocate(self.fd, 0, n_bytes)
            # A mapping beyond the end of a file that shrank dies of SIGBUS.
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._map = mmap.mmap(self.fd, n_bytes)
        except OSError:
            os.close(self.fd)
            raise

    def look(self) -> np.ndarray:
        """Return it as a fresh uint8 array of shape ``(n_bytes,)``."""
        return np.frombuffer(self._map, dtype=np.uint8)

    def close(self) -> None:
        """Give the memory back."""
        with contextlib.suppress(BufferError):  # somebody looks at it still: the mapping goes with the last one
            self._map.close()
        os.close(self.fd)


def _check_room(n_bytes: int) -> None:
    """Refuse what does not fit into memory: a memory file has no limit of its own, and would end other processes."""
    import psutil

    available = int(psutil.virtual_memory().available)
    if n_bytes > available:
        raise OSError(errno.ENOSPC, f"{n_bytes:,} bytes asked for, {available:,} bytes of memory are available")


class Segments:
    """The segments of one node."""

    def __init__(self) -> None:
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
                segment = Segment(n_bytes)
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
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    with Path(path).open("r+b" if write else "rb") as file:
        mapped = mmap.mmap(file.fileno(), n_bytes, flags=flags, prot=protection)
    array = np.frombuffer(mapped, dtype=np.uint8)
    try:
        yield array
    finally:
        del array
        with contextlib.suppress(BufferError):
            mapped.close()
