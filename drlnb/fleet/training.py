"""What does a person hold while tasks train?  A handle that watches, steers and waits."""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from drlnb.fleet.cluster.link import Link
from drlnb.fleet.rows.export import MetricsExport
from drlnb.fleet.rows.tracking import Trackings
from drlnb.fleet.run import Run
from drlnb.fleet.tasks.live_settings import sendable
from drlnb.planning.settings import owner
from drlnb.records.common import Defect
from drlnb.records.errors import ConfigError, JournalError, PeerError, RunLocked
from drlnb.records.spec import TaskSpec
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.entries import decoded

__all__ = ["Training"]

#: Longest wait of one question for rows, in seconds: how late a hang-up is noticed; and for the rows after the end.
_POLL_S, _LAST_S = 2.0, 0.5
#: Questions in a row that may fail before the cluster counts as gone (a network that stumbles is not the end), and the
#: pause between them in seconds.
_PATIENCE, _PAUSE_S = 15, 1.0
#: Rows kept in memory where the journal lies on another machine's disk.
_MOST_ROWS = 200_000
#: How a task ends, and which ends it can be started again from.
_ENDS, _RESTARTABLE = ("done", "stopped", "failed"), ("failed", "stopped")


class Training(Run):
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
        super().__init__(run_id, specs, out, planners=planners)
        self.fleet = fleet
        self._guest = guest
        self._link = link
        self._export = MetricsExport(out.metrics)
        self._trackings = Trackings(self._live, run_id=run_id, specs=specs, out=out.path)
        self._missed = False
        #: Number of the next row to ask for.
        self._since = 0
        #: Held while the cluster says how tasks stand, and while one is started again: answers keep their order.
        self._standing = threading.Lock()
        self._thread = self._watching()

    @property
    def notices(self) -> tuple[str, ...]:
        """What went wrong beside the training, in words."""
        own = (self._export.failure,) if self._export.failure else ()
        return (*super().notices, *own, *self._trackings.failures)

    # ------------------------------------------------------------------ track
    @property
    def tracked(self) -> bool:
        """Whether sinks hear of this run."""
        return self._trackings.active

    def track(self, track: Any) -> None:
        """Send the run's scalars elsewhere too, from its first round on; this process writes, no Dask worker.

        A sink that breaks is told in :attr:`notices`; training goes on.  Sinks end with the run.

        Parameters
        ----------
        track
            ``tensorboard``, ``wandb``, ``mlflow``, an object of :class:`drlnb.rl.tracking.sinks.Sink`'s form, or
            several.

        Raises
        ------
        ConfigError
            If it is something else.
        MissingExtra
            If its library is not installed.
        """
        self._trackings.begin(track)
        if self.ended or self.closed:
            self._trackings.close()

    def record(self, key: str, value: float, task: str | None = None) -> None:
        """Add a scalar of your own to the tracked rows: of several values between two rows the last one counts.

        Parameters
        ----------
        key
            Its name, such as ``mine/temperature``.
        value
            A number.
        task
            None: every task.

        Raises
        ------
        ConfigError
            If nothing tracks the run, or there is no such task.
        """
        self._record(key, value, task, mean=False)

    def record_mean(self, key: str, value: float | None, task: str | None = None) -> None:
        """Add a scalar of your own to the tracked rows: values between two rows are averaged; None is ignored."""
        self._record(key, value, task, mean=True)

    def _record(self, key: str, value: float | None, task: str | None, *, mean: bool) -> None:
        if task is not None:
            self._known(task)
        self._trackings.record(key, value, task=task, mean=mean)

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
        """Change a setting of the running tasks; from when on it counts is in docs/reference/settings.md.

        It outlives a move of the task to another executor or node, and is in its next checkpoint.

        Parameters
        ----------
        key
            ``leasing.hold``: which planner says how long a slot is kept; ``task.priority``: who comes first;
            ``warmup.planner``, ``warmup.collector_mode``, ``warmup.rho`` ...: what becomes of collectors between two
            rounds; ``rl.NAME``: a setting of the algorithm, such as ``rl.learning_rate``; ``leasing.NAME``: a setting
            of the pool, for all who share it; ``slot.drain``, ``slot.undrain``: a slot is lent no more, or again.
        value
            Its new value, judged beside what is in force now; of a slot its name.
        task
            None: all that still train.

        Raises
        ------
        ConfigError
            If the key or the task is unknown, a task's algorithm cannot change the setting while it trains, the value
            is wrong, or nothing that is meant trains any more.  Nothing has been changed then.
        """
        self._link.set(self.run_id, key, self._sendable(key, value, task), task=task)

    def check(self, key: str, value: Any, task: str | None = None) -> None:
        """Raise what :meth:`set` would, and change nothing."""
        self._link.check(self.run_id, key, self._sendable(key, value, task), task=task)

    def _sendable(self, key: str, value: Any, task: str | None) -> Any:
        """Return a value as plain data, and see that somebody is meant by it."""
        if task is not None:
            self._known(task)
            if owner(key) == "pool":
                raise ConfigError(f"{key} belongs to the pool, not to a task: leave task out")
        meant = {name: row for name, row in self.tasks.items() if task in (None, name)}
        if self.ended:
            raise ConfigError(f"run {self.run_id} is {self.status}: nothing is left to change")
        if all(row.ended for row in meant.values()):
            names = ", ".join(f"{name} is {row.state}" for name, row in meant.items())
            raise ConfigError(f"task {names}: nothing is left to change")
        return sendable([self.specs[name] for name, row in meant.items() if not row.ended], key, value)

    def restart(self, task: str | None = None) -> None:
        """Start a task that failed or was stopped again, from its newest checkpoint; the others are left alone.

        Parameters
        ----------
        task
            None: every task that failed or was stopped.

        Raises
        ------
        ConfigError
            If there is no such task, it has not failed and was not stopped, or this handle was closed.
        RunLocked
            If the run goes on somewhere else.
        PeerError
            If the cluster is gone; :func:`drlnb.resume` goes on with the run on another one.
        """
        names = self._restarts(task)
        if self.closed:
            raise ConfigError(
                f"this handle of run {self.run_id} was closed; go on with: drlnb.resume({str(self.out)!r})"
            )
        lock = self._link.lock(self.run_id)
        found = self._dir.live_lock() if self.ended else None
        if found is not None and found.epoch != lock.epoch:
            raise RunLocked(f"run {self.run_id} goes on at {found.address}: fleet.attach({self.run_id!r}) there")
        with self._standing:
            for name in names:
                self._restarted(name)
        self._dir.write_lock(lock)
        self.go_on()

    def _restarts(self, task: str | None) -> list[str]:
        """Return the tasks that a wish to start again means."""
        states = {name: status.state for name, status in self.tasks.items()}
        if task is None:
            names = [name for name, state in states.items() if state in _RESTARTABLE]
            if not names:
                raise ConfigError(f"no task of run {self.run_id} has failed or was stopped")
            return names
        self._known(task)
        if states[task] not in _RESTARTABLE:
            raise ConfigError(
                f"task {task} is {states[task]}: only one that failed or was stopped can be started again"
            )
        return [task]

    def _restarted(self, name: str) -> None:
        try:
            attempt = self._link.restart(self.run_id, name)
        except PeerError as error:
            raise PeerError(error.node, f"{error.what}; go on with: drlnb.resume({str(self.out)!r})") from None
        with self._lock:
            self._board.restarted(name, attempt)

    def go_on(self, tasks: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Watch a run again that had ended, since a task of it was started again, here or by somebody else.

        Parameters
        ----------
        tasks
            Its tasks as the cluster knows them (``state``, ``attempt``); None: it was started again here.
        """
        with self._lock:
            for name, row in (tasks or {}).items():
                if name in self.specs and row["state"] not in _ENDS:
                    self._board.restarted(name, int(row["attempt"]) + (row["state"] == "starting"))
            if not self.ended or self.closed or self._board.ended:
                return
            self._ended.clear()
        self._thread.join()
        self._thread = self._watching()

    def _control(self, action: str, task: str | None) -> None:
        if task is not None:
            self._known(task)
        if not self.ended:
            self._link.control(self.run_id, action, task=task, reason="asked for")

    # ------------------------------------------------------------------ the end
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
    def _watching(self) -> threading.Thread:
        thread = threading.Thread(target=self._watch, name=f"drlnb-training-{self.run_id}", daemon=True)
        thread.start()
        return thread

    def _watch(self) -> None:
        """Follow the run to its end, and further if a task was started again just then."""
        while True:
            self._follow()
            try:
                self._tidy()
            finally:
                with self._lock:
                    over = self._board.ended or self.closed
                    if over:
                        self._ended.set()
            if over:
                break
            with contextlib.suppress(OSError):
                self._dir.write_lock(self._link.lock(self.run_id))
        self._wake_waiters()

    def _follow(self) -> None:
        n_failures = 0
        try:
            while not self._closing.is_set() and not self._board.ended:
                try:
                    rows = self._more(_POLL_S)
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
                    rows = self._more(_LAST_S)
                if not rows or self._closing.is_set():
                    break
        except Exception as error:  # noqa: BLE001 - a defect of ours: it must end the waiting, and be told
            self._give_up(f"watching the run failed: {type(error).__name__}: {error}")

    def _more(self, wait_s: float) -> list[dict[str, Any]]:
        """Ask for rows, and take them in."""
        self._since, rows, gap = self._link.rows(self.run_id, self._since, wait_s)
        self._take(rows, gap)
        return rows

    def _take(self, rows: list[dict[str, Any]], gap: bool) -> None:
        entries = decoded(rows)
        self._missed |= gap
        if not self._guest:
            self._export.feed(entries)
        self._live.add(entries, gap=gap)
        self._trackings.feed()
        with self._lock:
            self._heard(entries)
            if any(self._dir.journal.glob("*.jsonl")):
                self._rows.clear()
            else:
                self._rows = (self._rows + entries)[-_MOST_ROWS:]

    def _look_at_states(self) -> None:
        """Hear of ends that no master could tell: it never started, or was given up."""
        with self._standing:
            mine = next((run for run in self._link.runs() if run["run"] == self.run_id), None)
            if mine is None:
                raise RuntimeError("the cluster does not know this run any more")
            self._stand(mine)

    def _stand(self, mine: Mapping[str, Any]) -> None:
        with self._lock:
            for name, row in dict(mine["tasks"]).items():
                if name in self.specs and row["state"] in _ENDS:
                    self._board.end(name, row["state"], str(row.get("reason", "")))

    def _give_up(self, why: str) -> None:
        if self._closing.is_set():
            return
        said = f"{why}; go on with: drlnb resume {self.out}"
        with self._lock:
            for name in self.specs:
                self._board.end(name, "failed", said)
        self._live.add([("", Defect(text=said))])  # no row of the cluster will tell it

    def _tidy(self) -> None:
        """Leave files as they shall be when nothing more comes."""
        self._export.close()
        self._trackings.close()
        if self._missed and not self._guest:
            with contextlib.suppress(JournalError, OSError):
                self._export.rebuild(self.journal())
        if self._board.ended:
            with contextlib.suppress(OSError):
                self._dir.remove_lock(self._link.lock(self.run_id).epoch)
