"""Play a run back: its journal is released row by row, on a clock of its own, without a cluster or any process."""

import heapq
import math
import time
import weakref
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, starmap
from operator import attrgetter, itemgetter
from pathlib import Path

from drlnb.fleet.rows.board import Board
from drlnb.fleet.tasks.run_spec import RunSpec
from drlnb.fleet.training import Training
from drlnb.fleet.watch import Watch
from drlnb.records.base import Event, Record
from drlnb.records.common import Defect
from drlnb.records.errors import ConfigError, JournalError, JournalFormatError
from drlnb.records.journal import Anew, Journal, Stream, joined, read_stream, stream_files
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.entries import Entry, entries_of, split_stream
from drlnb.views.folds.fold import Fold

__all__ = ["Player", "Recording", "play", "readable"]

#: Seconds between two looks at the clock: pictures move at 4 Hz.
_TICK_S = 0.1
#: Rows that are released at once: a run may be larger than memory.
_PIECE = 4096


class Player(Watch):
    """What is known of a recorded run at one second of it, `speed` seconds after each second; infinite: all at once."""

    def __init__(self, folder: RunDir, spec: RunSpec, speed: float) -> None:
        super().__init__(spec.run, spec.tasks, folder)
        self._whole, self._missing = readable(folder.path)
        fold = Fold(details=False)  # for the clocks; what cannot be read is found on the way
        fold.feed(entries_of(self._whole))
        self._offsets_s = {name: fold.offset_s(name) for name in self._whole.streams}
        self.speed, self.duration_s = speed, fold.now_s
        self._clock_t, self._from_s = time.monotonic(), self.duration_s if math.isinf(speed) else 0.0
        self._begin()
        self._go_on()

    def _begin(self) -> None:
        """Go back to the first row."""
        self._coming = _timed(self._whole, self._missing, self._offsets_s, self.duration_s)
        self._close_files = weakref.finalize(self, self._coming.close)
        self._ahead = next(self._coming, None)
        self._n_shown: Counter[str] = Counter()
        self._shown_s = 0.0

    @property
    def refusal(self) -> str:
        """Why nothing can be steered: it is over since long."""
        return "this is a recording"

    @property
    def t_s(self) -> float:
        """Which second of the run is shown now."""
        if math.isinf(self.speed):
            return self._from_s
        return min(self.duration_s, self._from_s + (time.monotonic() - self._clock_t) * self.speed)

    def seek(self, t_s: float) -> None:
        """Go on from another second of the run, later or earlier."""
        with self._lock:
            self._from_s, self._clock_t = float(t_s), time.monotonic()
            self._ended.clear()
        self._go_on()

    def journal(self) -> Journal:
        """Return the part of the journal that has been played."""
        with self._lock:
            shown = self._n_shown.copy()
        whole = self._whole.streams.items()
        return Journal(streams={name: _first(stream, shown[name]) for name, stream in whole if shown[name]})

    def close(self, timeout_s: float | None = None) -> None:
        """Play no further."""
        super().close(timeout_s)
        self._close_files()
        self._shown_s = math.inf  # who seeks begins anew
        self._ended.set()

    def _go_on(self) -> None:
        """Show what has happened by now, and start a thread that looks at the clock if something will come."""
        self._release()
        playing = self._thread is not None and self._thread.is_alive()
        if not (self.ended or self.closed or playing):
            self._start(self._play)

    def _play(self) -> None:
        while not self._closing.wait(_TICK_S) and not self.ended:
            self._release()

    def _release(self) -> None:
        """Show what has happened by now; after a rewind, everything from the beginning."""
        with self._lock:
            now_s = self.t_s
            if now_s < self._shown_s:
                self._close_files()
                self._begin()
                self._board, self._defects = Board(list(self.specs.values())), []
                self.feed.add((), anew=True)
            self._shown_s, due = now_s, self._due(now_s)
            while new := list(islice(due, _PIECE)):
                self._count(new)
                self.feed.add(new)
            over = self._ahead is None or math.isinf(self.speed)
            if self._ahead is None:
                for name in self.specs:
                    self._board.end(name, "stopped", "the recording ends here")
            if over:
                self._ended.set()

    def _due(self, now_s: float) -> Iterator[Entry]:
        """Yield what comes until a second of the run."""
        while self._ahead is not None and self._ahead[0] <= now_s:
            entry = self._ahead[1]
            self._n_shown[entry[0]] += 1
            yield entry
            self._ahead = next(self._coming, None)


def _timed(
    journal: Journal, missing: list[str], offsets_s: dict[str, float], duration_s: float
) -> Generator[tuple[float, Entry]]:
    """Yield each entry after its seconds since the run's first event, as they happened."""

    def of(name: str, stream: Stream) -> Iterator[tuple[float, Entry]]:
        latest = 0.0
        for entry in entries_of(Journal(streams={name: stream})):
            if isinstance(entry[1], Event):
                latest = min(max(latest, entry[1].t + offsets_s[name]), duration_s)
            yield latest, entry

    yield from ((0.0, ("", Defect(text=text))) for text in missing)
    streams = sorted(journal.streams.items(), key=lambda item: (split_stream(item[0]) or ("", 0))[1])
    yield from heapq.merge(*starmap(of, streams), key=itemgetter(0))  # a stream keeps its order


class Recording(Training):
    """A run that is played back; made by :func:`drlnb.play`.

    It answers as of the second :attr:`t_s` of the run.
    """

    watch: Player

    t_s = property(attrgetter("watch.t_s"), doc="Which second of the run is shown now.")
    duration_s = property(attrgetter("watch.duration_s"), doc="How long the run took, in its own seconds.")

    def seek(self, t_s: float) -> "Recording":
        """Go on playing from another second of the run, later or earlier; at infinite speed, stand still there.

        Parameters
        ----------
        t_s
            Seconds since the run's first event.

        Raises
        ------
        ConfigError
            If it is not between 0 and :attr:`duration_s`.
        """
        if not isinstance(t_s, int | float) or isinstance(t_s, bool) or not 0 <= t_s <= self.duration_s:
            raise ConfigError(
                f"t_s must be from 0 to {self.duration_s:.1f} s, the length of this recording, got {t_s!r}"
            )
        self.watch.seek(t_s)
        return self


def _first(stream: Stream, n: int) -> Stream:
    """Return the first `n` rows of a stream, its header among them."""
    return replace(stream, records=Anew(lambda: islice(stream.records, n - 1)))


def _good(file: Stream, missing: list[str]) -> Iterator[Record]:
    """Yield the records of a file as far as its lines can be read; `missing` gets in words what is not."""
    n_good = 1  # its header
    try:
        for record in file.records:
            yield record
            n_good += 1
    except JournalError as error:
        if (text := _lost(error, file.source, n_good)) not in missing:
            missing.append(text)


def _lost(error: JournalError, source: str, n_good: int) -> str:
    return f"{error}; {Path(source).read_bytes().count(10) - n_good} rows from there on are missing"


def readable(folder: Path) -> tuple[Journal, list[str]]:
    """Return what can be read of a journal, and in words what is missing, as far as its rows have been asked for.

    Raises
    ------
    JournalError
        If there is none, or a newer version wrote it.
    """
    streams: dict[str, list[Stream]] = {}
    missing: list[str] = []
    files = [(name, path) for name, paths in stream_files(folder / "journal").items() for path in paths]
    for name, path in (file for file in files if file[1].stat().st_size):
        try:
            stream = read_stream(path)
        except JournalFormatError:
            raise
        except JournalError as error:
            missing.append(_lost(error, str(path), 0))
            continue
        if stream.torn:
            missing.append(f"{path}: its last line was cut off; 1 row is missing")
        good = Anew(partial(_good, stream, missing))
        streams.setdefault(name, []).append(replace(stream, records=good))
    return Journal(streams={name: joined(files) for name, files in streams.items()}), missing


def play(out: str | Path, speed: float | None = 4.0) -> Recording:
    """Play a run back from its directory: the panels of a run, without a cluster or any process.

    Parameters
    ----------
    out
        The run's directory.
    speed
        Seconds of the run per second; None or infinite: all of it at once.

    Raises
    ------
    ConfigError
        If no run is there, or `speed` is not a number above 0.
    JournalError
        If its journal cannot be read.
    """
    if speed is None:
        speed = math.inf
    if not isinstance(speed, int | float) or isinstance(speed, bool) or not speed > 0:
        raise ConfigError(f"speed must be a number > 0, or None for all at once, got {speed!r}")
    folder = RunDir(out)
    spec = RunSpec.read(folder)
    return Recording(Player(folder, spec, float(speed)), planners=spec.planners)
