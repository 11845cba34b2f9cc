"""What does a person hold while tasks train?  A handle that watches, steers and waits."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from drlnb.fleet.board import Board, TaskStatus
from drlnb.fleet.export import MetricsExport
from drlnb.fleet.faces import RunFaces
from drlnb.fleet.frames import after, frame_of, journal_of, table_rows
from drlnb.fleet.link import Link
from drlnb.fleet.model import Model, load_model
from drlnb.fleet.planners import planner_names
from drlnb.fleet.summary import summarise
from drlnb.fleet.tap import Rows, Tap
from drlnb.records.errors import ConfigError, JournalError, TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.spec import TaskSpec
from drlnb.runtime.rundir import RunDir

__all__ = ["Training"]

#: Longest wait of one question for rows, in seconds: how late a hang-up is noticed; and for the rows after the end.
_POLL_S, _LAST_S = 2.0, 0.5
#: Questions in a row that may fail before the cluster counts as gone (a network that stumbles is not the end), and the
#: pause between them in seconds.
_PATIENCE, _PAUSE_S = 15, 1.0
#: Seconds for the journal's last lines to reach the disk after the last task has ended (its writers flush every 1 s).
_SETTLE_S = 3.0
#: What can be changed while tasks run -> whose planner it names.
_SETTINGS = {"leasing.hold": "hold"}
#: Rows kept in memory where the journal lies on another machine's disk.
_MOST_ROWS = 200_000


class Training(RunFaces):
    """A run of one or more tasks; made by :meth:`drlnb.fleet.fleet.Fleet.train` and :func:`drlnb.resume`.

    A thread follows the journal.  Nothing blocks but :meth:`wait`, :meth:`settle`, :meth:`close` and, until the cluster
    has answered, the steering methods.

    Parameters
    ----------
    run_id
        Of the run on its cluster.
    specs
        Its tasks.
    out
        Its directory.
    link
        The way to its cluster.
    fleet
        Kept alive as long as this handle.
    planners
        Decision -> name, as the run began.
    guest
        Whether somebody else started it, and so writes its metrics.
    """

    def __init__(
        self,
        run_id: str,
        specs: Sequence[TaskSpec],
        out: RunDir,
        link: Link,
        fleet: Any = None,
        *,
        planners: Mapping[str, str] | None = None,
        guest: bool = False,
    ) -> None:
        self.run_id = run_id
        self.specs = {spec.name: spec for spec in specs}
        self.out = out.path
        self.fleet = fleet
        self.planners = dict(planners or {})
        self._guest = guest
        self._dir = out
        self._link = link
        self._board = Board(specs)
        self._export = MetricsExport(out.metrics)
        self._rows: list[dict[str, Any]] = []
        self._live = Rows(self.journal)
        self._missed = False
        self._defects: list[str] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._thread = threading.Thread(target=self._follow, name=f"drlnb-training-{run_id}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        rows = ", ".join(f"{t.name} {t.n_timesteps:,}/{t.total_timesteps:,}" for t in self.tasks.values())
        return f"<Training {self.run_id} {self.status}: {rows}>"

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
        return (*self._defects, *((self._export.failure,) if self._export.failure else ()))

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
        if not self._ended.wait(timeout_s):
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
        yield from future.__await__()
        return self._outcome()

    # ------------------------------------------------------------------ steer
    def stop(self, task: str | None = None) -> None:
        """Stop at the next round boundary, with a checkpoint; returns at once."""
        self._control("stop", task)

    def kill(self, task: str | None = None) -> None:
        """Stop now; what was done since the last checkpoint is lost."""
        self._control("kill", task)

    def pause(self, task: str | None = None) -> None:
        """Finish the round, write a checkpoint, rest."""
        self._control("pause", task)

    def resume(self, task: str | None = None) -> None:
        """Go on after a pause."""
        self._control("resume", task)

    def checkpoint(self, task: str | None = None) -> None:
        """Write a checkpoint at the next round boundary."""
        self._control("checkpoint", task)

    def set(self, key: str, value: Any, task: str | None = None) -> None:
        """Change a setting of the running tasks; it counts from the next round on.

        Parameters
        ----------
        key
            ``leasing.hold``: which planner says how long a slot is kept.
        value
            Its new value.
        task
            None: all of them.

        Raises
        ------
        ConfigError
            If the key, the value or the task is unknown.
        """
        if key not in _SETTINGS:
            raise ConfigError(f"{key!r} cannot be changed while tasks run; what can: {', '.join(_SETTINGS)}")
        planner_names({_SETTINGS[key]: value})
        if task is not None:
            self._known(task)
        if self.ended:
            raise ConfigError(f"run {self.run_id} is {self.status}: nothing is left to change")
        self._link.set(self.run_id, key, value, task=task)

    def _control(self, action: str, task: str | None) -> None:
        if task is not None:
            self._known(task)
        if not self.ended:
            self._link.control(self.run_id, action, task=task, reason="asked for")

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
        if since <= 0:
            return journal
        return Journal(streams={name: after(stream, since) for name, stream in journal.streams.items()})

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
        """Return a table of the journal as a ``pandas.DataFrame``: ``metrics``, ``rounds``, ``leases``, ``episodes``.

        Raises
        ------
        ConfigError
            If there is no such table.
        MissingExtra
            If pandas is not installed.
        """
        return frame_of(table_rows(self.journal(), table))

    def tap(self) -> Tap:
        """Return a queue of this run's journal rows, from the beginning on; for panels."""
        return self._live.tap()

    # ------------------------------------------------------------------ the end
    def settle(self, timeout_s: float) -> bool:
        """Wait until every task has ended, however; return whether that is so."""
        return self._ended.wait(timeout_s)

    def close(self, timeout_s: float = _POLL_S + 5.0) -> None:
        """Stop watching; the run goes on if its cluster does.

        Parameters
        ----------
        timeout_s
            Longest wait for the watching thread to end.
        """
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    # ------------------------------------------------------------------ the thread
    def _follow(self) -> None:
        since, n_failures = 0, 0
        try:
            while not self._closing.is_set() and not self._board.ended:
                try:
                    since, rows, gap = self._link.rows(self.run_id, since, _POLL_S)
                    self._take(rows, gap)
                    if not rows:
                        self._look_at_states()
                    n_failures = 0
                except (OSError, RuntimeError, ValueError) as error:  # the cluster, not we: told as the tasks' end
                    n_failures += 1
                    if n_failures >= _PATIENCE:
                        self._give_up(f"the cluster at {self._link.address} is gone ({error})")
                    self._closing.wait(_PAUSE_S)
            for _ in range(20 if self._board.ended else 0):  # the pool takes the last leases back
                rows = []
                with contextlib.suppress(OSError, RuntimeError, ValueError):
                    since, rows, gap = self._link.rows(self.run_id, since, _LAST_S)
                    self._take(rows, gap)
                if not rows or self._closing.is_set():
                    break
        except Exception as error:  # noqa: BLE001 - a defect of ours: it must end the waiting, and be told
            self._give_up(f"watching the run failed: {type(error).__name__}: {error}")
        finally:
            self._finish()

    def _take(self, rows: list[dict[str, Any]], gap: bool) -> None:
        self._missed |= gap
        if not self._guest:
            self._export.feed(rows)
        self._live.add(rows, gap=gap)
        with self._lock:
            self._board.feed(rows)
            self._defects += [str(row.get("text", "")) for row in rows if row.get("r") in {"Defect", "JournalFailed"}]
            if any(self._dir.journal.glob("*.jsonl")):
                self._rows.clear()
            else:
                self._rows = (self._rows + rows)[-_MOST_ROWS:]

    def _look_at_states(self) -> None:
        """Hear of ends that no master could tell: it never started, or was given up."""
        mine = next((run for run in self._link.runs() if run["run"] == self.run_id), None)
        if mine is None:
            raise RuntimeError("the cluster does not know this run any more")
        with self._lock:
            for name, row in dict(mine["tasks"]).items():
                if name in self.specs and row["state"] in {"done", "stopped", "failed"}:
                    self._board.end(name, row["state"], str(row.get("reason", "")))

    def _give_up(self, why: str) -> None:
        if self._closing.is_set():
            return
        with self._lock:
            for name in self.specs:
                self._board.end(name, "failed", f"{why}; go on with: drlnb resume {self.out}")

    def _finish(self) -> None:
        try:
            self._export.close()
            if self._missed and not self._guest:
                with contextlib.suppress(JournalError, OSError):
                    self._export.rebuild(self.journal())
            if self._board.ended:
                with contextlib.suppress(OSError):
                    self._dir.remove_lock(self._link.lock(self.run_id).epoch)
        finally:
            self._ended.set()
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for loop, future in waiters:
            with contextlib.suppress(RuntimeError):  # its loop was closed meanwhile
                loop.call_soon_threadsafe(_set, future)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
