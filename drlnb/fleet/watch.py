"""Keep what is known of a run: how its tasks stand, and what went wrong."""

import contextlib
import datetime
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from drlnb.fleet.plain import Row
from drlnb.fleet.rows.board import Board
from drlnb.fleet.rows.row_feed import Rows
from drlnb.fleet.rows.summary import summarise
from drlnb.planning.settings import owner
from drlnb.records.columns.leasing import RequestUnmet
from drlnb.records.columns.placement import PlacementPostponed
from drlnb.records.columns.swapping import SwapUnavailable
from drlnb.records.common import Defect, JournalFailed
from drlnb.records.errors import ConfigError, TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.round import CheckpointWritten, EpisodesLost, RoundUnfinished
from drlnb.records.spec import RlWork, WorkSpec
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.protocol import split_pool_task
from drlnb.views.folds.entries import Entry
from drlnb.views.folds.status import TaskStatus

__all__ = ["Watch", "known", "known_rl", "outcome", "refuse_task", "status_of"]

#: What pools say of the tasks of all runs.
_OF_POOL = (RequestUnmet, PlacementPostponed)
#: What is told in words.
_TOLD = (Defect, JournalFailed, EpisodesLost, CheckpointWritten, RoundUnfinished, SwapUnavailable, *_OF_POOL)
#: States of tasks, the one that is shown for the whole run first.
_STATES = ("running", "paused", "failed", "stopped", "done")


class Watch(ABC):
    """A run as far as its rows have come; a subclass brings the rows, from a cluster or from a directory.

    Parameters
    ----------
    run_id
        Of the run.
    specs
        Its tasks.
    folder
        Its directory.
    """

    #: Whether it is followed on a cluster, so that it can be steered.
    live = False

    def __init__(self, run_id: str, specs: Sequence[WorkSpec], folder: RunDir) -> None:
        self.run_id, self.folder = run_id, folder
        self.specs = {spec.name: spec for spec in specs}
        #: Where panels, sinks and callbacks get the rows from, each at its own pace.
        self.feed = Rows(self.journal)
        self._board = Board(specs)
        self._defects: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def journal(self) -> Journal:
        """Return the run's journal as it is now."""

    def close(self, timeout_s: float | None = 7.0) -> None:
        """Watch no longer; `timeout_s`: longest wait for the thread that brings the rows."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _start(self, bring: Callable[[], None]) -> None:
        """Start the thread that brings the rows."""
        self._thread = threading.Thread(target=bring, name=f"drlnb-rows-{self.run_id}", daemon=True)
        self._thread.start()

    @property
    def tasks(self) -> dict[str, TaskStatus]:
        """Each task's status now, by name."""
        with self._lock:
            return self._board.statuses()

    def summary(self) -> Row:
        """Return what has come of the run so far, since it was started or resumed, as plain data."""
        with self._lock:
            return summarise(self.run_id, self._board)

    @property
    def ended(self) -> bool:
        """Whether every task has ended, or the watching."""
        return self._ended.is_set()

    @property
    def closed(self) -> bool:
        """Whether the watching was ended by :meth:`close`."""
        return self._closing.is_set()

    @property
    def notices(self) -> tuple[str, ...]:
        """What went wrong beside the training, in words."""
        return tuple(self._defects)

    @property
    def refusal(self) -> str:
        """Why nothing can be steered now, in words; empty while something can."""
        if not self.ended:
            return ""
        status = status_of(self.tasks)
        with contextlib.suppress(OSError):
            at = datetime.datetime.fromtimestamp((self.folder.path / "status.json").stat().st_mtime).astimezone()
            return f"run {self.run_id} ended at {at:%H:%M} ({status})"
        return f"run {self.run_id} is {status} already"

    def settle(self, timeout_s: float | None) -> bool:
        """Wait until every task has ended, however; return whether that is so."""
        return self._ended.wait(timeout_s)

    def _count(self, entries: Sequence[Entry], *, gap: bool = False) -> None:
        """Bring tasks and defects up to date; the lock is held."""
        self._board.feed(entries, gap=gap)
        told = [r for _, r in entries if isinstance(r, _TOLD)]
        said = [r.text for r in told if not isinstance(r, _OF_POOL) or split_pool_task(r.task)[0] == self.run_id]
        self._defects += [text for text in dict.fromkeys(said) if text and text not in self._defects]


def known(specs: Mapping[str, WorkSpec], task: str | None) -> WorkSpec:
    """Return the spec of a task; None: of the only one.

    Raises
    ------
    ConfigError
        If the run has no such task, or several where none is named.
    """
    if task is None and len(specs) == 1:
        return next(iter(specs.values()))
    if task is None or task not in specs:
        raise ConfigError(f"this run has no task {task!r}; it has {', '.join(specs)}")
    return specs[task]


def known_rl(specs: Mapping[str, WorkSpec], task: str | None) -> RlWork:
    """Return the spec of a task as :func:`known` does; raise ConfigError if it has no policy, too."""
    spec = known(specs, task)
    if not isinstance(spec, RlWork):
        raise ConfigError(f"task {spec.name} is supervised work: it has no policy")
    return spec


def refuse_task(key: str, task: str | None) -> None:
    """Raise ConfigError if a task is named for a setting of the pool."""
    if task is not None and owner(key) == "pool":
        raise ConfigError(f"{key} belongs to the pool, not to a task: leave task out")


def status_of(tasks: Mapping[str, TaskStatus]) -> str:
    """Return ``running`` (or ``paused``) while any task is; then ``failed``, ``stopped`` or ``done``, the worst end."""
    states = {task.state for task in tasks.values()}
    return next(state for state in _STATES if state in states)


def outcome(tasks: dict[str, TaskStatus]) -> dict[str, TaskStatus]:
    """Return how the tasks of a run ended; raise TrainingFailed if one of them failed."""
    failed = [task for task in tasks.values() if task.state == "failed"]
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise TrainingFailed(f"task {failed[0].name} failed{more}: {failed[0].failure}")
    return tasks
