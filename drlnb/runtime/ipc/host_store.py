"""Keep the newest versions of a task's parameters once per host, for all processes that act there.

One mapping per task and host, no message per actor: the node agent writes, actors look at the bytes in place.

Layout, each part from a multiple of the mapping granularity: header and cells (one per reader, 64 bytes), then the
slots, each the bytes of a version and a trailer.  Readers may write the first part and only read the second.
A *word* is ``attempt << 48 | version << 8 | slot``: it grows from version to version, is stored by one aligned 8-byte
write, and says which slot is current (header), announced (cell) or written (trailer).

A reader loads the current word, announces it, loads it again and starts over if it has changed; the slot is its own
then until it announces something else.  The writer takes slots that are neither current nor announced, the one that was
written longest ago first, and wipes the trailer before it writes: so whoever copies without announcing finds out.
"""

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from drlnb.planning.distribution.slots import choose_slot
from drlnb.runtime.ipc.lifeline import started
from drlnb.runtime.ipc.shared_memory import Segment
from drlnb.runtime.protocol import Payload

__all__ = ["N_CELLS", "N_SLOTS", "HostStore", "StoreView"]

#: Slots per task and host: the current one, one that is being filled, and two that slow readers may hold.
N_SLOTS = 4
#: Readers per task and host; those that copy do without a cell if none is free.
N_CELLS = 510
_MAGIC = 0x44524C4E42535431
#: 8-byte words of the header, and the place of the current word among them; words of a cell.
_HEADER, _CURRENT, _CELL = 16, 4, 8
#: Places in a cell.
_PID, _START, _ANNOUNCED, _APPLIED, _PAUSED_NS = range(5)
#: Current word of a store that its writer has left.
_CLOSED = (1 << 64) - 1


def _whole_pages(n_bytes: int) -> int:
    return -(-n_bytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


#: Bytes of header and cells.
_FRONT = _whole_pages(8 * (_HEADER + N_CELLS * _CELL))


def _stride(n_bytes: int) -> int:
    """Return bytes per slot: the last 64 are its trailer."""
    return _whole_pages(n_bytes + 64)


def _split_front(front: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return header and cells."""
    words = front.view(np.uint64)
    return words[:_HEADER], words[_HEADER:][: N_CELLS * _CELL].reshape(N_CELLS, _CELL)


def _split_slots(back: np.ndarray, n_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the slots' bytes ``(N_SLOTS, n_bytes)`` and the words of their trailers ``(N_SLOTS,)``."""
    slots = back.reshape(N_SLOTS, -1)
    return slots[:, :n_bytes], slots[:, -64:-56].view(np.uint64)[:, 0]


def _key(word: int) -> tuple[int, int]:
    """Return (attempt, version) of a word."""
    return word >> 48, word >> 8 & 0xFF_FFFF_FFFF


def _clear_dead(cells: np.ndarray) -> int:
    """Free the cells of processes that are gone, and return how many; whoever calls it holds the lock on cells."""
    gone = [row for row in np.flatnonzero(cells[:, _PID]) if started(int(cells[row, _PID])) != int(cells[row, _START])]
    cells[gone] = 0
    return len(gone)


class HostStore:
    """The writer's end.

    Parameters
    ----------
    n_bytes
        Size of one version; the store takes `N_SLOTS` times as much.

    Raises
    ------
    OSError
        If there is no room.
    """

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        try:
            self._segment: Segment | None = Segment(_FRONT + N_SLOTS * _stride(n_bytes), "store")
        except OSError as error:
            message = f"no room for a host store of {N_SLOTS} slots of {n_bytes:,} bytes: {error.strerror}"
            raise OSError(error.errno, message) from error
        self.path, whole = self._segment.path, self._segment.look()
        self._head, self._cells = _split_front(whole[:_FRONT])
        self._slots, self._written = _split_slots(whole[_FRONT:], n_bytes)
        self._head[:_CURRENT] = _MAGIC, n_bytes, N_SLOTS, N_CELLS
        #: (attempt, version) that was begun last; where its bytes go until it is current, and in which slot that is:
        #: none while every slot is held.  It is whole, and waits for one.
        self._newest = (0, 0)
        self._into: np.ndarray | None = None
        self._slot: int | None = None
        self._waits = False

    @property
    def current(self) -> tuple[int, int]:
        """(attempt, version) that readers find; (0, 0) before the first."""
        return _key(int(self._head[_CURRENT]))

    def begin(self, version: int, *, attempt: int = 1) -> np.ndarray:
        """Return where the bytes of a version go: uint8, shape ``(n_bytes,)``; the same again until it is current.

        An older version that is not whole is abandoned.  One that waits for a slot gets it first, if there is one now.

        Raises
        ------
        ValueError
            If the version is not newer than the one that was begun before.
        """
        key = (attempt, version)
        if key == self._newest and self._into is not None:
            return self._into
        if key <= self._newest:
            raise ValueError(f"(attempt, version) must be above {self._newest}, got {key}")
        self.settle()
        if self._slot is None and self._take() is None and self._into is None:
            self._into = np.empty(self.n_bytes, np.uint8)
        self._newest, self._waits = key, False
        assert self._into is not None
        return self._into

    def _take(self) -> int | None:
        """Begin to write into a slot, and return it; None if every one is held."""
        for look in range(2):
            words = [self._head[_CURRENT], *self._cells[:, _ANNOUNCED][self._cells[:, _ANNOUNCED] != 0]]
            slot = choose_slot(self._written.tolist(), {int(word) & 0xFF for word in words})
            if slot is not None:
                self._written[slot] = 0
                self._slot, self._into = slot, self._slots[slot]
                return slot
            if look == 0:
                self._clear_dead(self._cells)
        return None

    def _clear_dead(self, cells: np.ndarray) -> bool:
        """Free dead readers' cells, and return whether any was; not now if somebody attaches: nobody is waited for."""
        assert self._segment is not None
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._segment.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            n_freed = _clear_dead(cells)
            fcntl.flock(self._segment.fd, fcntl.LOCK_UN)
            return n_freed > 0
        return False

    def commit(self) -> bool:
        """Make the version that was begun last current: its bytes are there; False if it has to wait for a slot.

        It waits in memory aside, and nothing that a reader holds is overwritten: :meth:`settle` tries again, and so
        does the next :meth:`begin`.  A version that is begun while it still waits takes its place.
        """
        self._waits = True
        return self.settle()

    def settle(self) -> bool:
        """Make a version current that waits for a slot; return whether none waits any more."""
        if not self._waits:
            return True
        if self._slot is None:
            aside = self._into
            if self._take() is None:
                return False
            assert self._into is not None
            assert aside is not None
            self._into[:] = aside
        assert self._slot is not None
        attempt, version = self._newest
        word = attempt << 48 | version << 8 | self._slot
        self._written[self._slot] = word
        self._head[_CURRENT] = word
        self._slot, self._into, self._waits = None, None, False
        return True

    def write(self, version: int, payload: Payload, *, attempt: int = 1) -> bool:
        """Write a whole version and commit it.

        Raises
        ------
        ValueError
            If the payload has not the size of a version, or the version is not newer.
        """
        view = memoryview(payload).cast("B")
        if view.nbytes != self.n_bytes:
            raise ValueError(f"payload must have {self.n_bytes} bytes, got {view.nbytes}")
        self.begin(version, attempt=attempt)[:] = view
        return self.commit()

    @property
    def shown(self) -> np.ndarray:
        """Bytes that readers find."""
        return np.asarray(self._slots[int(self._head[_CURRENT]) & 0xFF])

    @property
    def newest(self) -> np.ndarray:
        """Bytes of the version that was begun last, as far as they are here."""
        return self.shown if self._into is None else self._into

    def applied(self) -> tuple[int, int] | None:
        """Return the least (attempt, version) that a living reader with a cell has applied; None if there is none."""
        while len(rows := np.flatnonzero(self._cells[:, _PID])):
            row = rows[self._cells[rows, _APPLIED].argmin()]
            word = int(self._cells[row, _APPLIED])
            # Only the last one need be alive: this is asked often, and every process takes a look of its own.
            if word == int(self._head[_CURRENT]) or not self._clear_dead(self._cells[row : row + 1]):
                return _key(word)
        return None

    def readers(self, attempt: int, version: int) -> tuple[int, int, float]:
        """Return the number of living readers, of those that lack a version, and the others' longest pause, in s."""
        self._clear_dead(self._cells)
        cells = self._cells[self._cells[:, _PID] != 0]
        late = cells[:, _APPLIED] < np.uint64(attempt << 48 | version << 8)
        return len(cells), int(late.sum()), int(cells[~late, _PAUSED_NS].max(initial=0)) / 1e9

    def paused_s(self) -> float:
        """Return the longest time for which a reader could not act when it went on to the version that it has."""
        return int(self._cells[self._cells[:, _APPLIED] != 0, _PAUSED_NS].max(initial=0)) / 1e9

    def close(self) -> None:
        """Give the memory back; readers keep what they look at until they look away, and learn that this is the end."""
        if self._segment is not None:
            self._head[_CURRENT] = _CLOSED
            del self._head, self._cells, self._slots, self._written, self._into
            self._segment.close()
            self._segment = None


class StoreView:
    """A reader's end, for one thread.

    Parameters
    ----------
    path
        Of the store, as its writer names it.
    copy
        Copy each version instead of holding its slot: for those who keep what they have read.

    Raises
    ------
    OSError
        If the store is gone, or has no cell for another reader that does not copy.
    ValueError
        If there is something else.
    """

    def __init__(self, path: str, *, copy: bool = False) -> None:
        self.path, self._copies = path, copy
        self._word, self._own = 0, np.empty(0, np.uint8)
        self._held = self._pinned = False
        with Path(path).open("r+b") as file:
            if os.fstat(file.fileno()).st_size <= _FRONT:
                raise ValueError(f"{path} is not a host store")
            front = mmap.mmap(file.fileno(), _FRONT)
            self._head, self._cells = _split_front(np.frombuffer(front, np.uint8))
            if int(self._head[0]) != _MAGIC:
                raise ValueError(f"{path} is not a host store")
            self.n_bytes = int(self._head[1])
            size = N_SLOTS * _stride(self.n_bytes)
            # What writes into it by mistake ends with SIGSEGV, instead of spoiling what all others act with.
            back = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ, offset=_FRONT)
            self._slots, self._written = _split_slots(np.frombuffer(back, np.uint8), self.n_bytes)
            self._cell = self._claim(file)

    def _claim(self, file: BinaryIO) -> np.ndarray:
        """Return a cell of our own."""
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            if self._cells[:, _PID].all():
                _clear_dead(self._cells)
            free = np.flatnonzero(self._cells[:, _PID] == 0)
            if not len(free):
                if self._copies:
                    return np.zeros(_CELL, np.uint64)
                raise OSError(f"{self.path} has {N_CELLS} readers, more must copy (copy=True)")
            cell: np.ndarray = self._cells[free[0]]
            cell[_START] = started(os.getpid())
            cell[_PID] = os.getpid()
            return cell
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # mappings have copies of the descriptor: closing it frees nothing

    @property
    def version(self) -> int:
        """Version that was looked at last; 0 before the first."""
        return _key(self._word)[1]

    @property
    def bytes(self) -> np.ndarray:
        """Bytes of the version, uint8, shape ``(n_bytes,)``; empty before the first.

        Read-only, and to be used while the version is held, unless they are a copy.
        """
        shown: np.ndarray = self._slots[self._word & 0xFF]
        return self._own if self._copies or not self._word else shown

    @property
    def closed(self) -> bool:
        """Whether the writer has left; a task whose parameters have another size has another store."""
        return int(self._head[_CURRENT]) == _CLOSED

    def refresh(self) -> bool:
        """Go on to the newest version and hold it until the next one, or :meth:`release`; return whether it is new.

        Raises
        ------
        ConnectionError
            If the writer has left.
        RuntimeError
            Inside of :meth:`pinned`.
        """
        if self._pinned:
            raise RuntimeError(f"version {self.version} is pinned: refresh after the block")
        if int(self._head[_CURRENT]) == self._word and self._held:
            return False
        began_ns = time.perf_counter_ns()
        word = self._copied() if self._copies else self._announced()
        new, self._word, self._held = word != self._word, word, True
        if new:
            try:
                self._moved()
            except BaseException:
                self._word = 0  # so the next one tries again
                self.release()
                raise
            self._cell[_PAUSED_NS] = time.perf_counter_ns() - began_ns
        self._cell[_APPLIED] = word
        return new

    def _load(self) -> int:
        word = int(self._head[_CURRENT])
        if word == _CLOSED:
            raise ConnectionError(f"the writer of {self.path} has left")
        return word

    def _announced(self) -> int:
        """Return the current word once its slot is ours."""
        while True:
            self._cell[_ANNOUNCED] = word = self._load()
            if word == self._load() and (not word or word == int(self._written[word & 0xFF])):
                return word

    def _copied(self) -> int:
        """Return a word whose slot was copied while nobody wrote into it."""
        while word := self._load():
            self._own = self._slots[word & 0xFF].copy()
            if word == int(self._written[word & 0xFF]):
                break
        return word

    def _moved(self) -> None:
        """Act on a new version before it counts as applied."""

    def release(self) -> None:
        """Look away: what was held may be overwritten from now on."""
        self._held, self._cell[_ANNOUNCED] = self._copies, 0

    @contextlib.contextmanager
    def pinned(self) -> Iterator[int]:
        """Hold the newest version for the length of a block, and yield its number; 0: there is none yet."""
        self.refresh()
        self._pinned = True
        try:
            yield self.version
        finally:
            self._pinned = False
            self.release()

    def close(self) -> None:
        """Leave the cell; what was mapped goes with the last array that shows it."""
        self._cell[[_ANNOUNCED, _APPLIED]] = 0
        self._cell[_PID] = 0
        self._cell = np.zeros(_CELL, np.uint64)
        self._head = self._head.copy()
        self._cells, self._slots = self._cells[:0].copy(), self._slots[:, :0].copy()
        self._written = self._written.copy()
