"""Hand one run's journal to several watchers, each at its own pace and from the beginning."""

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from drlnb.records.base import Record
from drlnb.records.common import Defect
from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal, line_of
from drlnb.views.folds.entries import Entry

__all__ = ["Rows", "Tap"]

#: Rows that wait for one watcher, and that are kept for the next one: as many as the broker keeps.
_MOST = 20_000
#: Rows that must agree before two pieces of a stream are laid over each other.
_SAME = 8


class Tap:
    """One watcher's queue.  :meth:`drain` may be called by any thread, but by one at a time."""

    def __init__(self, source: "Rows") -> None:
        self._source = source
        self._queue: deque[Entry] = deque()
        #: Whether the watcher must begin anew: at first, and after it was too slow.
        self._anew = True

    def _put(self, rows: Sequence[Entry]) -> None:
        if self._anew:
            return  # the history that it will be given holds them
        self._queue.extend(rows)
        if len(self._queue) > _MOST:
            self._queue.clear()
            self._anew = True

    def drain(self) -> tuple[bool, Iterable[Entry]]:
        """Return (whether these rows begin the run anew, rows since the last time).

        A run from its beginning may be larger than memory: its rows come from the files while they are asked for.
        """
        source = self._source
        with source._lock:
            anew, self._anew = self._anew, False
            rows = list(source._recent if anew else self._queue)
            self._queue.clear()
            whole = source._whole
        return anew, source._completed(rows) if anew and not whole else rows

    @property
    def n_waiting(self) -> float:
        """How many rows :meth:`drain` would return; infinite where it had to read files."""
        if not self._anew:
            return len(self._queue)
        return len(self._source._recent) if self._source._whole else math.inf

    def close(self) -> None:
        """End the queue."""
        with self._source._lock:
            self._source._taps.discard(self)
        self._queue.clear()


class Rows:
    """The newest entries of a run, and the queues of those who follow it.

    Parameters
    ----------
    read
        Returns the whole journal, or raises JournalError.
    """

    def __init__(self, read: Callable[[], Journal]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._recent: deque[Entry] = deque(maxlen=_MOST)
        #: Whether `_recent` begins with the run's first row.
        self._whole = True
        self._taps: weakref.WeakSet[Tap] = weakref.WeakSet()

    def add(self, rows: Sequence[Entry], *, gap: bool = False, anew: bool = False) -> None:
        """Add entries; `gap`: some before them were missed; `anew`: they begin the run once more."""
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

    def _completed(self, recent: list[Entry]) -> Iterator[Entry]:
        """Yield what the journal's files say, then the rows that are still at hand."""
        ours: dict[str, list[Record]] = {}
        for name, record in recent:
            ours.setdefault(name, []).append(record)
        try:
            for name, stream in self._read().streams.items():
                n_before = _overlap(chain([stream.header], stream.records), ours.get(name, [])[:_SAME])
                for record in islice(chain([stream.header], stream.records), n_before):
                    yield name, record
        except JournalError as error:
            yield "", Defect(text=f"the beginning of this run is missing: {error}")
        yield from recent


def _overlap(written: Iterable[Record], head: Sequence[Record]) -> int | None:
    """Return how many records of the file come before `head`, which begins a later piece of the same stream; None: all.

    It may be there whole, or its first records be the file's last; the last place counts.
    """
    last: int | None = None
    begun: list[int] = []
    for i, record in enumerate(written if head else ()):
        begun = [at for at in (*begun, i) if _same(record, head[i - at])]
        if begun and i - begun[0] == len(head) - 1:
            last = begun.pop(0)
    return max(begun, default=last)


def _same(this: Record, other: Record) -> bool:
    """Whether two records say the same, by their text: two that hold NaN are not equal."""
    return type(this) is type(other) and line_of(this) == line_of(other)
