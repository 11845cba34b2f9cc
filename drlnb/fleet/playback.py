"""Play a run back: its journal is released row by row, on a clock of its own, without a cluster or any process."""

import bisect
import math
import time
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import NoReturn

from drlnb.fleet.policies.files import refuse_code
from drlnb.fleet.policies.policy import Model
from drlnb.fleet.rows.task_status import Board
from drlnb.fleet.run import Run
from drlnb.fleet.tasks.run_spec import RunSpec
from drlnb.fleet.watch import Watch, known
from drlnb.records.base import Event, Record
from drlnb.records.common import Defect
from drlnb.records.errors import ConfigError, JournalError, JournalFormatError
from drlnb.records.journal import Journal, Stream, read_stream, stream_files
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.entries import Entry, entries_of, journal_of
from drlnb.views.folds.fold import Fold

__all__ = ["Player", "Recording", "play", "readable"]

#: Seconds between two looks at the clock: pictures move at 4 Hz.
_TICK_S = 0.1


class Player(Watch):
    """What is known of a recorded run at one second of it, `speed` seconds after each second; infinite: all at once."""

    def __init__(self, folder: RunDir, spec: RunSpec, speed: float) -> None:
        super().__init__(spec.run, spec.tasks, folder)
        journal, defects = readable(folder.path)
        times, rows = _timed(journal)
        self._rows: list[Entry] = [("", Defect(text=text)) for text in defects] + rows
        self._times = [0.0] * len(defects) + times
        self._n_shown = 0
        self.speed = speed
        self.duration_s = self._times[-1] if self._times else 0.0
        self._clock_t, self._from_s = time.monotonic(), self.duration_s if math.isinf(speed) else 0.0
        self._go_on()

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
            return journal_of(self._rows[: self._n_shown])

    def close(self, timeout_s: float | None = None) -> None:
        """Play no further."""
        super().close(timeout_s)
        self._ended.set()
        self._wake_waiters()

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
            now, before = bisect.bisect_right(self._times, self.t_s), self._n_shown
            if now < before:
                self._board, self._defects = Board(list(self.specs.values())), []
            new = self._rows[0 if now < before else before : now]
            self._n_shown = now
            self._count(new)
            self.feed.add(new, anew=now < before)
            over = now == len(self._rows) or math.isinf(self.speed)
            if now == len(self._rows):
                for name in self.specs:
                    self._board.end(name, "stopped", "the recording ends here")
            if over:
                self._ended.set()
        if over:
            self._wake_waiters()


class Recording(Run):
    """A run that is played back; made by :func:`drlnb.play`.

    It is asked like a :class:`~drlnb.fleet.training.Training`, and answers as of the second :attr:`t_s` of the run.
    """

    watch: Player

    t_s = property(attrgetter("watch.t_s"), doc="Which second of the run is shown now.")
    duration_s = property(attrgetter("watch.duration_s"), doc="How long the run took, in its own seconds.")

    def load(self, task: str | None = None, *, trust: bool = False) -> Model:
        """Return the policy of a task's newest checkpoint.

        Parameters
        ----------
        task
            Its name; None where the run has only one.
        trust
            Take a policy that was made by a function of its author's as well: using it runs their code.

        Raises
        ------
        ConfigError
            If there is no such task.
        CheckpointError
            If it has no checkpoint, or holds code and `trust` is not given.
        """
        if not trust:
            refuse_code(known(self.specs, task).to_plain(), self.out)
        return super().load(task)

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

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise ConfigError: a recording cannot be steered."""
        del args, kwargs
        raise ConfigError(f"this is a recording of run {self.id}: nothing can be changed in it")

    stop = pause = resume = checkpoint = restart = set = _refuse


def readable(folder: Path) -> tuple[Journal, list[str]]:
    """Return what can be read of a journal, and in words what is missing.

    Raises
    ------
    JournalError
        If there is none, or a newer version wrote it.
    """
    streams: dict[str, Stream] = {}
    rows: dict[str, list[Record]] = {}
    defects = []
    files = [(name, path) for name, paths in stream_files(folder / "journal").items() for path in paths]
    for name, path in (file for file in files if file[1].stat().st_size):
        good: list[Record] = []
        try:
            stream = read_stream(path)
            streams.setdefault(name, replace(stream, records=rows.setdefault(name, [])))
            for record in stream.records:
                good.append(record)  # noqa: PERF402 - those before a broken line stay
            if stream.torn:
                defects.append(f"{path}: its last line was cut off; 1 row is missing")
        except JournalFormatError:
            raise
        except JournalError as error:
            n_good = len(good) + (name in streams)
            n_lines = path.read_bytes().count(b"\n")
            defects.append(f"{error}; {n_lines - n_good} rows from there on are missing")
        rows.setdefault(name, []).extend(good)
    return Journal(streams=streams), defects


def _timed(journal: Journal) -> tuple[list[float], list[Entry]]:
    """Return each entry's seconds since the run's first event, and the entries, as they happened."""
    fold = Fold(details=False)
    fold.feed(entries_of(journal))
    latest: dict[str, float] = {}
    timed: list[tuple[float, Entry]] = []
    for stream, record in entries_of(journal):
        if isinstance(record, Event):
            latest[stream] = max(latest.get(stream, 0.0), record.t + fold.offset_s(stream))
        timed.append((latest.get(stream, 0.0), (stream, record)))
    timed.sort(key=lambda pair: pair[0])  # stable: a stream keeps its order
    return [t for t, _ in timed], [entry for _, entry in timed]


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
