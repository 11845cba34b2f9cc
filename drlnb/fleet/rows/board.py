"""Keep how the tasks of a run stand, by its rows and by what its cluster says of them; pure."""

from collections.abc import Sequence

from drlnb.records.round import ENDS
from drlnb.records.spec import WorkSpec
from drlnb.views.folds.entries import Entry
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.status import TaskStatus, at, statuses

__all__ = ["Board"]


class Board:
    """The present state of a run's tasks, from its journal.

    Parameters
    ----------
    specs
        The run's tasks.
    """

    def __init__(self, specs: Sequence[WorkSpec]) -> None:
        self.fold = Fold(details=False)
        #: Whether rows were missed, so that nothing can be said of the slots.
        self.missed = False
        self._specs = {spec.name: spec.to_plain() for spec in specs}
        #: Task -> (state, reason) of an end that no row told.
        self._ends: dict[str, tuple[str, str]] = {}
        #: Task -> attempt that was asked for, or has begun: earlier ones count no more.
        self._attempts = dict.fromkeys(self._specs, 0)

    def feed(self, entries: Sequence[Entry], *, gap: bool = False) -> None:
        """Fold entries in; `gap`: some before them were missed."""
        self.missed |= gap
        self.fold.feed(entries)
        for name in self._specs:
            if self._began(name) > self._attempts[name]:
                self.restarted(name, self._began(name))

    def _began(self, task: str) -> int:
        """Return the number of the newest attempt that has begun, 0 if there is none."""
        fold = self.fold.tasks.get(task)
        return fold.made.number if fold is not None else 0

    def restarted(self, task: str, attempt: int) -> None:
        """Begin a task again as `attempt`; what is still on its way of the former one counts no more."""
        if attempt > self._attempts[task]:
            self._attempts[task] = attempt
            self._ends.pop(task, None)

    def end(self, task: str, state: str, reason: str) -> None:
        """End a task that no record ended: the pool gave it up, or the cluster is gone."""
        self._ends.setdefault(task, (state, reason))

    def statuses(self) -> dict[str, TaskStatus]:
        """Return each task's status, by name, in the order of the run."""
        known = statuses(self.fold, self._specs, ends=self._ends, pooled=not self.missed)
        return {
            name: known[name] if self._began(name) >= attempt else at(known[name], *self._ends.get(name, ("starting",)))
            for name, attempt in self._attempts.items()
        }

    @property
    def ended(self) -> bool:
        """Whether every task has ended; asked after each row, so no status is made for it."""
        return all(self._has_ended(name) for name in self._specs)

    def _has_ended(self, task: str) -> bool:
        told = self._began(task) >= self._attempts[task] and task in self.fold.tasks
        end, _ = self._ends.get(task, ("", ""))
        return end in ENDS or (told and self.fold.tasks[task].state in ENDS)
