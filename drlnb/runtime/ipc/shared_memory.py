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

from drlnb.runtime.protocol import Plain

__all__ = ["LEAST_BYTES", "Segment", "Segments", "arrived", "attached", "moved_bytes", "put_into", "state_of"]

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


# ---------------------------------------------------------------------- what frames say of it
@contextlib.contextmanager
def state_of(header: Plain, payload: memoryview) -> Iterator[np.ndarray | None]:
    """Yield the training state that came with a frame, or that it names the place of; None if there is none."""
    if "state_in" in header:
        path, start, n_bytes = header["state_in"]
        with attached(path, start + n_bytes) as shared:
            yield shared[start:]
    elif header["n_state"]:
        yield np.frombuffer(payload[: header["n_state"]], dtype=np.uint8)
    else:
        yield None


def moved_bytes(header: Plain) -> int:
    """Return the bytes of training state that a frame brought."""
    return int(header["state_in"][2] if "state_in" in header else header["n_state"])


@contextlib.contextmanager
def arrived(header: Plain, payload: memoryview) -> Iterator[list[np.ndarray]]:
    """Yield what a frame brought under ``parts``: (path, first byte, bytes) of each, those without a path in itself."""
    start = header["n_state"]
    with contextlib.ExitStack() as stack:
        parts = []
        for path, first, n_bytes in header.get("parts", ()):
            if path:
                parts.append(stack.enter_context(attached(path, first + n_bytes))[first:])
            else:
                parts.append(np.frombuffer(payload[start : start + n_bytes], dtype=np.uint8))
                start += n_bytes
        yield parts
        del parts


def put_into(into: tuple[str, int] | None, *parts: np.ndarray) -> int:
    """Put a result into the segment that is lent for it; return its bytes, 0 if it must travel in the frame."""
    n_bytes = sum(part.nbytes for part in parts)
    if into is None or into[1] < n_bytes:
        return 0
    try:
        with attached(into[0], n_bytes, write=True) as shared:
            start = 0
            for part in parts:
                shared[start : start + part.nbytes] = part
                start += part.nbytes
    except OSError:
        return 0
    return n_bytes
