"""How do several watchers read one run's rows, each at its own pace and from the beginning?"""

import json
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal, Stream

__all__ = ["Rows", "Tap"]

Row = Mapping[str, Any]

#: Rows that wait for one watcher, and that are kept for the next one: as many as the broker keeps.
_MOST = 20_000
#: Rows that must agree before two pieces of a stream are laid over each other.
_SAME = 8


class Tap:
    """One watcher's queue.  :meth:`drain` may be called by any thread, but by one at a time."""

    def __init__(self, source: "Rows") -> None:
        self._source = source
        self._queue: deque[Row] = deque()
        #: Whether the watcher must begin anew: at first, and after it was too slow.
        self._anew = True

    def _put(self, rows: Sequence[Row]) -> None:
        if self._anew:
            return  # the history that it will be given holds them
        self._queue.extend(rows)
        if len(self._queue) > _MOST:
            self._queue.clear()
            self._anew = True

    def drain(self) -> tuple[bool, list[Row]]:
        """Return (whether these rows begin the run anew, rows since the last time)."""
        return self._source._drain(self)

    @property
    def n_waiting(self) -> float:
        """How many rows :meth:`drain` would return; infinite where it had to read files."""
        return self._source._n_at_hand if self._anew else len(self._queue)

    def close(self) -> None:
        """Hear no more."""
        self._source._forget(self)
        self._queue.clear()


class Rows:
    """The newest rows of a run, and who wants to hear of more.

    Parameters
    ----------
    read
        Returns the whole journal, or raises JournalError.
    """

    def __init__(self, read: Callable[[], Journal]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._recent: deque[Row] = deque(maxlen=_MOST)
        #: Whether `_recent` begins with the run's first row.
        self._whole = True
        self._taps: weakref.WeakSet[Tap] = weakref.WeakSet()

    def add(self, rows: Sequence[Row], *, gap: bool = False, anew: bool = False) -> None:
        """Take in rows; `gap`: some before them were missed; `anew`: they begin the run once more."""
        with self._lock:
            if anew:
                self._recent.clear()
                self._whole, gap = True, False
            self._whole = self._whole and not gap and len(self._recent) + len(rows) <= _MOST
            if gap:
                self._recent.clear()  # what is kept is one piece without a hole
            self._recent.extend(rows)
            for tap in self._taps:
                tap._anew = tap._anew or gap or anew
                tap._put(rows)

    def tap(self) -> Tap:
        """Return a new queue; its first :meth:`Tap.drain` gives the run from the beginning."""
        tap = Tap(self)
        with self._lock:
            self._taps.add(tap)
        return tap

    @property
    def _n_at_hand(self) -> float:
        return len(self._recent) if self._whole else math.inf

    def _forget(self, tap: Tap) -> None:
        with self._lock:
            self._taps.discard(tap)

    def _drain(self, tap: Tap) -> tuple[bool, list[Row]]:
        with self._lock:
            anew, tap._anew = tap._anew, False
            rows = list(self._recent if anew else tap._queue)
            tap._queue.clear()
            whole = self._whole
        if anew and not whole:
            rows = self._completed(rows)
        return anew, rows

    def _completed(self, recent: list[Row]) -> list[Row]:
        """Put what the journal's files say before the rows that are still at hand."""
        try:
            journal = self._read()
        except JournalError as error:
            return [
                {"s": "", "k": "n", "r": "Defect", "text": f"the beginning of this run is missing: {error}"},
                *recent,
            ]
        ours: dict[str, list[Row]] = {}
        for row in recent:
            ours.setdefault(str(row.get("s", "")), []).append(row)
        before: list[Row] = []
        for name, stream in journal.streams.items():
            written = [{"s": name, **row} for row in _rows(stream)]
            before += written[: _overlap(written, ours.get(name, ()))]
        return before + recent


def _rows(stream: Stream) -> Iterable[dict[str, Any]]:
    yield stream.header.to_row()
    for record in stream.records:
        yield record.to_row()


def _overlap(written: Sequence[Row], recent: Sequence[Row]) -> int:
    """Return how many rows of the file come before `recent`, which is a later piece of the same stream."""
    head = [_plain(row) for row in recent[:_SAME]]
    if not head:
        return len(written)
    for i in range(len(written) - 1, -1, -1):
        if all(_plain(a) == b for a, b in zip(written[i : i + _SAME], head, strict=False)):
            return i
    return len(written)


def _plain(row: Row) -> str:
    """Return a row as text: what came through the network has tuples where a file has lists."""
    return json.dumps(row, sort_keys=True)
