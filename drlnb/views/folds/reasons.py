"""Count why slots were asked for, kept, given back, refused and drained, by word, task and reason."""

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

from drlnb.records.base import Record
from drlnb.records.columns import leasing
from drlnb.records.round import ExecutorDied
from drlnb.views.folds.entries import Handlers

__all__ = ["Reasons", "without_run"]

#: Measured numbers differ from reason to reason: they are left out, so that equal reasons are counted together.
_NUMBER = re.compile(r"\d[\d.,e+-]*\d|\d")

#: Class of a pool's record -> what it is called, and the field that says whom or what it is about.
_POOL: dict[type[Record], tuple[str, str]] = {
    leasing.LeaseReleased: ("released", "task"),
    leasing.LeaseExpired: ("expired", "task"),
    leasing.RequestRefused: ("refused", ""),
    leasing.RequestCancelled: ("withdrawn", ""),
    leasing.RequestUnmet: ("cannot be met now", "task"),
    leasing.SlotDrained: ("slot drained", "slot"),
    leasing.SlotClosed: ("slot closed", "slot"),
    leasing.SlotFailed: ("slot lost", "slot"),
    leasing.RevokeLease: ("taken away", "slot"),
}


@dataclass(slots=True)
class Lent:
    """Leases of one task, those whose slots held the parameters already, and the rounds that they were for."""

    n_leases: int = 0
    n_resident: int = 0
    n_rounds: int = 0
    #: Its latest round.
    latest: int = -1


class Reasons:
    """Decisions about slots, counted: (word, who, reason) -> times, in order of first appearance."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str], int] = {}
        #: Task -> what it was lent.
        self.lent: dict[str, Lent] = defaultdict(Lent)

    def pool(self) -> Handlers:
        """Return the handlers of a pool's stream."""
        return {**dict.fromkeys(_POOL, self._decided), leasing.LeaseGranted: self._granted}

    def task(self, name: str) -> Handlers:
        """Return the handlers of a task's stream."""
        return {leasing.HoldPlanned: partial(self._planned, name), ExecutorDied: partial(self._died, name)}

    def _count(self, word: str, who: str, reason: str) -> None:
        key = (word, who, _NUMBER.sub("…", reason))
        self.counts[key] = self.counts.get(key, 0) + 1

    def _decided(self, record: Record, t: float) -> None:
        word, field = _POOL[type(record)]
        reason = getattr(record, "reason", "")
        if isinstance(record, leasing.LeaseExpired):
            reason = "its holder was silent"
        elif isinstance(record, leasing.RequestUnmet):
            reason = f"{record.n_slots} slots wanted, {record.n_allowed} exist that may serve it"
        who = str(getattr(record, field)) if field else ""
        self._count(word, without_run(who) if field == "task" else who, reason)

    def _granted(self, record: leasing.LeaseGranted, t: float) -> None:
        lent = self.lent[record.task]
        lent.n_leases += 1
        lent.n_resident += bool(record.resident)
        lent.n_rounds += record.round > lent.latest
        lent.latest = max(lent.latest, record.round)

    def _planned(self, task: str, record: leasing.HoldPlanned, t: float) -> None:
        self._count(f"{record.planner}: {record.action}", task, record.reason)

    def _died(self, task: str, record: ExecutorDied, t: float) -> None:
        self._count("executor died (a strike)", task, record.reason)


def without_run(task: str) -> str:
    """Return a task's name as the pool has it (``run/task``) without its run."""
    run, mark, name = task.partition("/")
    return name if mark else run
