"""What can be asked of a run, whether it trains or is played back?  How it stands, its journal, its policies."""

import asyncio
import contextlib
import datetime
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from drlnb.fleet.faces import faces
from drlnb.fleet.faces.faces import RunFaces
from drlnb.fleet.faces.say import say
from drlnb.fleet.policies.policy import Model, load_model
from drlnb.fleet.rows.row_feed import Rows, Tap
from drlnb.fleet.rows.summary import summarise
from drlnb.fleet.rows.tables import frame_of, from_second, table_rows
from drlnb.fleet.rows.task_status import Board, TaskStatus
from drlnb.fleet.whatif.preview import Preview, preview
from drlnb.records.common import Defect, JournalFailed
from drlnb.records.errors import ConfigError, JournalError, TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.round import EpisodesLost
from drlnb.records.spec import TaskSpec
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.entries import Entry, journal_of

__all__ = ["Run"]

#: Seconds for the journal's last lines to reach the disk after the last task has ended (its writers flush every 1 s).
_SETTLE_S = 3.0


class Run(RunFaces):
    """A run of one or more tasks, as far as its rows have come.

    Parameters
    ----------
    run_id
        Of the run.
    specs
        Its tasks.
    out
        Its directory.
    planners
        Decision -> name, as the run began.
    """

    def __init__(
        self, run_id: str, specs: Sequence[TaskSpec], out: RunDir, *, planners: Mapping[str, str] | None = None
    ) -> None:
        self.run_id = run_id
        self.specs = {spec.name: spec for spec in specs}
        self.out = out.path
        self.planners = dict(planners or {})
        self._dir = out
        self._board = Board(specs)
        self._rows: list[Entry] = []
        self._live = Rows(self.journal)
        self._defects: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        rows = ", ".join(f"{t.name} {t.n_timesteps:,}/{t.total_timesteps:,}" for t in self.tasks.values())
        return f"<{type(self).__name__} {self.run_id} {self.status}: {rows}>"

    # ------------------------------------------------------------------ watch
    @property
    def closed(self) -> bool:
        """Whether this handle has stopped watching."""
        return self._closing.is_set()

    @property
    def tasks(self) -> dict[str, TaskStatus]:
        """Each task's status now, by name."""
        with self._lock:
            return self._board.statuses()

    @property
    def status(self) -> str:
        """``running`` (or ``paused``) while any task is; then ``failed``, ``stopped`` or ``done``, the worst end."""
        states = {task.state for task in self.tasks.values()}
        return next(state for state in ("running", "paused", "failed", "stopped", "done") if state in states)

    @property
    def ended(self) -> bool:
        """Whether every task has ended, or nobody listens any more."""
        return self._ended.is_set()

    @property
    def notices(self) -> tuple[str, ...]:
        """What went wrong beside the training, in words."""
        return tuple(self._defects)

    @property
    def refusal(self) -> str:
        """Why nothing can be steered now, in words; empty while something can."""
        return f"run {self.run_id} {self._end_words()}" if self.ended else ""

    def _end_words(self) -> str:
        """Say how the run ended, and when by the wall clock if its directory tells."""
        with contextlib.suppress(OSError):
            at = datetime.datetime.fromtimestamp((self.out / "status.json").stat().st_mtime).astimezone()
            return f"ended at {at:%H:%M} ({self.status})"
        return f"is {self.status} already"

    def wait(self, timeout_s: float | None = None) -> dict[str, TaskStatus]:
        """Wait until every task has ended.

        Parameters
        ----------
        timeout_s
            None: as long as it takes.

        Returns
        -------
        dict
            Each task's last status.

        Raises
        ------
        TrainingFailed
            If a task failed; the message names it and the cause.
        TimeoutError
            If the time is up first; the training goes on.
        """
        with self._interruptible():
            ended = self._ended.wait(timeout_s)
        if not ended:
            raise TimeoutError(f"run {self.run_id} is still {self.status} after {timeout_s:g} s")
        return self._outcome()

    def _outcome(self) -> dict[str, TaskStatus]:
        tasks = self.tasks
        failed = [task for task in tasks.values() if task.state == "failed"]
        if failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise TrainingFailed(f"task {failed[0].name} failed{more}: {failed[0].failure}")
        return tasks

    def __await__(self) -> Generator[Any, None, dict[str, TaskStatus]]:
        """Wait without blocking the loop: panels stay alive meanwhile."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._waiters.append((loop, future))
        if self._ended.is_set():
            self._wake_waiters()
        with self._interruptible():
            yield from future.__await__()
        return self._outcome()

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Say in a notebook that an interrupted cell has ended its waiting, and nothing else."""
        try:
            yield
        except (KeyboardInterrupt, asyncio.CancelledError):
            if faces.notebook() and not self.ended:
                say(f"interrupted: this cell waits no more, run {self.run_id} goes on (run.stop() ends it)")
            raise

    def _known(self, task: str) -> TaskSpec:
        if task not in self.specs:
            raise ConfigError(f"this run has no task {task!r}; it has {', '.join(self.specs)}")
        return self.specs[task]

    # ------------------------------------------------------------------ results
    def load(self, task: str | None = None) -> Model:
        """Return the policy of a task's newest checkpoint.

        Parameters
        ----------
        task
            Its name; None where the run has only one.

        Raises
        ------
        ConfigError
            If there is no such task.
        CheckpointError
            If it has no checkpoint yet.
        """
        name = next(iter(self.specs)) if task is None and len(self.specs) == 1 else str(task)
        return load_model(self._known(name), self._dir.checkpoints / name)

    def journal(self, since: float = 0.0) -> Journal:
        """Return the run's journal as it is now.

        Parameters
        ----------
        since
            Leave out events before this, in seconds on each stream's own clock, and what was answered to them.

        Raises
        ------
        JournalError
            If there is none yet.
        """
        if any(self._dir.journal.glob("*.jsonl")):
            journal = Journal.read(self.out)
        else:
            with self._lock:
                journal = journal_of(self._rows)
        return from_second(journal, since)

    def summary(self) -> dict[str, Any]:
        """Return what came out, as plain data (the object of ``drlnb train --json``)."""
        deadline = time.monotonic() + (_SETTLE_S if self.ended else 0.0)
        while True:
            try:
                summary = summarise(self.run_id, tuple(self.specs.values()), self.journal())
            except JournalError:
                if time.monotonic() >= deadline:
                    raise
            else:
                shown = {row["name"]: row["timesteps"] for row in summary["tasks"]}
                behind = any(shown[name] < task.n_timesteps for name, task in self.tasks.items())
                if not behind or time.monotonic() >= deadline:
                    return summary
            time.sleep(0.2)

    def frame(self, table: str = "metrics") -> Any:
        """Return ``metrics``, ``rounds``, ``leases``, ``pool`` or ``episodes`` as a ``pandas.DataFrame``.

        Raises
        ------
        ConfigError
            If there is no such table.
        MissingExtra
            If pandas is not installed.
        """
        return frame_of(table_rows(self.journal(), table))

    def preview(self, key: str, value: Any, task: str | None = None) -> Preview:
        """Say what would come of a change, without making it; it starts from the settings that are in force now.

        For leasing, the durations of this run are played once more on a virtual clock, before and after the change.
        For warm-up, its events are decided again: what would have been planned in each round, and what those starts
        come to against the recorded gaps.

        Parameters
        ----------
        key
            ``leasing.hold``, another setting of leasing, ``task.priority``, ``slots``, or ``warmup.NAME``.
        value
            Its new value.
        task
            None: all that still train; in a run that has ended, all.

        Returns
        -------
        Preview
            A figure before and after, :meth:`~drlnb.fleet.whatif.preview.Preview.rows` of it, and by how much the
            telling of
            things as they are misses what was recorded: for leasing rounds and waits of each task (``speedup``,
            ``calibration_frac``), for warm-up waits and idle times of its rounds (``wait_s``, ``idle_s``,
            ``calibration_s``).

        Raises
        ------
        ConfigError
            If the key or task is unknown, the value wrong, fewer than 5 rounds of a task are recorded, no start of
            the kind that is asked for, or the setting cannot matter where nothing fails.
        """
        training = [name for name, row in self.tasks.items() if not row.ended] or list(self.specs)
        return preview(self.journal(), key, value, task, tasks=training, run=self.run_id)

    def tap(self) -> Tap:
        """Return a queue of this run's journal rows, from the beginning on; for panels."""
        return self._live.tap()

    def settle(self, timeout_s: float) -> bool:
        """Wait until every task has ended, however; return whether that is so."""
        return self._ended.wait(timeout_s)

    # ------------------------------------------------------------------ for who brings the rows
    def _heard(self, entries: Sequence[Entry]) -> None:
        """Take in entries; the lock is held."""
        self._board.feed(entries)
        self._defects += [r.text for _, r in entries if isinstance(r, Defect | JournalFailed | EpisodesLost)]

    def _wake_waiters(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            with contextlib.suppress(RuntimeError):  # its loop was closed meanwhile
                loop.call_soon_threadsafe(_set, future)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
