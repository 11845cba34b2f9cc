"""Follow a run on its cluster: a thread that asks for its rows until every task has ended."""

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drlnb.fleet.faces import awake
from drlnb.fleet.plain import Plain
from drlnb.fleet.rows.export import MetricsExport
from drlnb.fleet.rows.tracking import Trackings
from drlnb.fleet.watch import Watch
from drlnb.records.common import Defect
from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal
from drlnb.records.round import ENDS
from drlnb.records.spec import WorkSpec
from drlnb.rl.tracking.sinks import RunFacts
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.entries import Entry, decoded, journal_of

if TYPE_CHECKING:
    from drlnb.runtime.client.link import Link

__all__ = ["Follower"]

#: Longest wait of one question for rows, in seconds: how late a hang-up is noticed; and for the rows after the end.
_POLL_S, _LAST_S = 2.0, 0.5
#: Shortest time between two questions for rows, in seconds: each costs both sides as much as a round.
_PACE_S = 0.1
#: Questions in a row that may fail before the cluster counts as gone (a network that stumbles is not the end), and the
#: pause between them in seconds.
_PATIENCE, _PAUSE_S = 15, 1.0
#: Rows kept in memory where the journal lies on another machine's disk.
_MOST_ROWS = 200_000


class Follower(Watch):
    """What is known of a run on a cluster; its thread begins at once.

    Parameters
    ----------
    link
        The way to its cluster.
    run_id
        Of the run on its cluster.
    specs
        Its tasks.
    folder
        Its directory.
    guest
        Whether somebody else started it, and so writes its metrics.
    """

    live = True

    def __init__(
        self, link: "Link", run_id: str, specs: Sequence[WorkSpec], folder: RunDir, *, guest: bool = False
    ) -> None:
        super().__init__(run_id, specs, folder)
        self.link = link
        plain = {spec.name: spec.to_plain() for spec in specs}
        self.tracking = Trackings(self.feed, RunFacts(run_id=run_id, out=folder.path, tasks=plain))
        #: Held while the cluster reports how tasks stand, and while one is started again: answers keep their order.
        self.standing = threading.Lock()
        self._guest = guest
        self._rows: list[Entry] = []
        self._export = MetricsExport(folder.metrics)
        self._missed = False
        #: Number of the next row to ask for.
        self._since = 0
        #: When the kernel gave its last sign of life.
        self._awake_t = float("-inf")
        self._start(self._watch)

    @property
    def notices(self) -> tuple[str, ...]:
        """What went wrong beside the training, in words."""
        own = (self._export.failure,) if self._export.failure else ()
        return (*super().notices, *own, *self.tracking.failures)

    def journal(self) -> Journal:
        """Return the journal that is in the directory, or what was streamed if none is there.

        Raises
        ------
        JournalError
            If there is none yet.
        """
        if _has_files(self.folder):
            return Journal.read(self.folder.path)
        with self._lock:
            return journal_of(self._rows)

    # ------------------------------------------------------------------ started again
    def restarted(self, task: str, attempt: int) -> None:
        """Count a task as running that was started again; rows of its former attempts count no more."""
        with self._lock:
            self._board.restarted(task, attempt)

    def go_on(self, tasks: Mapping[str, Plain] | None = None) -> None:
        """Watch a run again that had ended, since a task of it was started again, here or by somebody else.

        Parameters
        ----------
        tasks
            Its tasks as the cluster knows them (``state``, ``attempt``); None: it was started again here.
        """
        with self._lock:
            for name, row in (tasks or {}).items():
                if name in self.specs and row["state"] not in ENDS:
                    self._board.restarted(name, int(row["attempt"]) + (row["state"] == "starting"))
            if not self.ended or self.closed or self._board.ended:
                return
            self._ended.clear()
        if self._thread is not None:
            self._thread.join()
        self._start(self._watch)

    # ------------------------------------------------------------------ the thread
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
                self.folder.write_lock(self.link.lock(self.run_id))

    def _follow(self) -> None:
        n_failures = 0
        try:
            while not self.closed and not self._board.ended:
                asked_t = time.monotonic()
                try:
                    if not self._more(_POLL_S):
                        self._look_at_states()
                    n_failures = 0
                    self._awake_t = awake(self._awake_t)
                    if not self._board.ended:
                        self._closing.wait(max(0.0, asked_t + _PACE_S - time.monotonic()))
                except (OSError, RuntimeError, ValueError) as error:  # the cluster's fault: shown as the tasks' end
                    n_failures += 1
                    if n_failures >= _PATIENCE:
                        self._give_up(f"the cluster at {self.link.address} is gone ({error})")
                    self._closing.wait(_PAUSE_S)
            for _ in range(20 if self._board.ended else 0):  # the pool takes the last leases back
                n_rows = 0
                with contextlib.suppress(OSError, RuntimeError, ValueError):
                    n_rows = self._more(_LAST_S)
                if not n_rows or self.closed:
                    break
        except Exception as error:  # noqa: BLE001 - a defect of ours: it must end the waiting, and be reported
            self._give_up(f"watching the run failed: {type(error).__name__}: {error}")

    def _more(self, wait_s: float) -> int:
        """Ask for rows and pass them on; return how many came."""
        self._since, rows, gap = self.link.rows(self.run_id, self._since, wait_s)
        entries = decoded(rows)
        self._missed |= gap
        if not self._guest:
            self._export.feed(entries)
        self.feed.add(entries, gap=gap)
        self.tracking.feed()
        with self._lock:
            self._count(entries, gap=gap)
            self._rows = [] if _has_files(self.folder) else (self._rows + entries)[-_MOST_ROWS:]
        return len(rows)

    def _look_at_states(self) -> None:
        """Find ends that no master could report: it never started, or was given up."""
        with self.standing:
            mine = next((run for run in self.link.runs() if run["run"] == self.run_id), None)
            if mine is None:
                raise RuntimeError("the cluster does not know this run any more")
            with self._lock:
                for name, row in mine["tasks"].items():
                    if name in self.specs and row["state"] in ENDS:
                        self._board.end(name, row["state"], str(row.get("reason", "")))

    def _give_up(self, why: str) -> None:
        if self.closed:
            return
        reason = f"{why}; go on with: drlnb resume {self.folder.path}"
        with self._lock:
            for name in self.specs:
                self._board.end(name, "failed", reason)
        self.feed.add([("", Defect(text=reason))])  # no row of the cluster will report it

    def _tidy(self) -> None:
        """Leave files as they shall be when nothing more comes."""
        self._export.close()
        self.tracking.close()
        if self._missed and not self._guest:
            with contextlib.suppress(JournalError, OSError):
                self._export.rebuild(self.journal())
        if self._board.ended:
            with contextlib.suppress(OSError):
                self.folder.remove_lock(self.link.lock(self.run_id).epoch)


def _has_files(folder: RunDir) -> bool:
    return any(folder.journal.glob("*.jsonl"))
