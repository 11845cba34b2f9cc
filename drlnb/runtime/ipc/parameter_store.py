"""Share parameters with every actor of a host: one mapping per task and host, no message per actor.

The writer is the node agent, readers are collectors.  The copy-safe simple form: a reader copies the newest slot and
looks again; if the slot was taken over meanwhile it copies once more.  With `N_SLOTS` slots that happens only when
the writer publishes `N_SLOTS` versions during one copy.

Layout: one page of header (magic, slot bytes, current word), then the slots, each ``<version: 8><length: 8><bytes>``.
A *word* is ``version << 8 | slot``, stored with one aligned 8-byte write.
"""

import contextlib
import mmap
import os
from pathlib import Path

import numpy as np

from drlnb.runtime.ipc.shared_results import create
from drlnb.runtime.protocol import Payload

__all__ = ["N_SLOTS", "HostStore", "StoreReader"]

#: Slots per task and host: the version in use, the one before, and two to write ahead.
N_SLOTS = 4
_MAGIC = 0x44524C4E42535430
_PAGE = mmap.ALLOCATIONGRANULARITY
_SLOT_HEAD = 16


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
        size = _PAGE + N_SLOTS * _stride(n_bytes)
        self.fd, self.path, self._file = create(size, directory, "store")
        self._map = mmap.mmap(self.fd, size)
        self._head = np.frombuffer(self._map, dtype=np.uint64, count=3)
        self._head[0], self._head[1] = _MAGIC, n_bytes

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
        head = np.frombuffer(self._map, dtype=np.uint64, count=2, offset=start)
        head[0] = 0  # a reader that copies this slot now will notice
        body = np.frombuffer(self._map, dtype=np.uint8, count=view.nbytes, offset=start + _SLOT_HEAD)
        body[:] = np.frombuffer(view, dtype=np.uint8)
        head[1], head[0] = view.nbytes, version
        self._head[2] = (version << 8) | self._slot
        self.version = version

    def close(self) -> None:
        """Give the memory back; readers that still map it keep it until they end."""
        if self.fd < 0:
            return
        del self._head
        with contextlib.suppress(BufferError):  # a view is alive somewhere: the mapping goes with it
            self._map.close()
        os.close(self.fd)
        self.fd = -1
        if self._file:
            Path(self._file).unlink(missing_ok=True)


class StoreReader:
    """A reader's end; opens the store by the path that the agent names."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            self._map = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self.path = path
        self._head = np.frombuffer(self._map, dtype=np.uint64, count=3)
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
            copy = np.frombuffer(self._map, dtype=np.uint8, count=self.n_bytes, offset=start + _SLOT_HEAD).copy()
            trailer = int(np.frombuffer(self._map, dtype=np.uint64, count=1, offset=start)[0])
            if trailer == version:
                return version, copy

    def close(self) -> None:
        """Unmap."""
        del self._head
        self._map.close()
