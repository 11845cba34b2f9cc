"""Why was a slot asked for, kept, given back, refused, drained?  Counted by word, task and reason, number of times."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

__all__ = ["Reasons"]

Row = Mapping[str, Any]
Changed = tuple[str, ...]

#: Measured numbers differ from reason to reason: they are left out, so that equal reasons are counted together.
_NUMBER = re.compile(r"\d[\d.,e+-]*\d|\d")

#: Kind of a pool's row -> what it is called, and the field of the row that says whom or what it is about.
_POOL = {
    "LeaseReleased": ("released", "task"),
    "LeaseExpired": ("expired", "task"),
    "RequestRefused": ("refused", ""),
    "RequestCancelled": ("withdrawn", ""),
    "RequestUnmet": ("cannot be met now", "task"),
    "SlotDrained": ("slot drained", "slot"),
    "SlotClosed": ("slot closed", "slot"),
    "SlotFailed": ("slot lost", "slot"),
    "RevokeLease": ("taken away", "slot"),
}


class Reasons:
    """Decisions about slots, counted: (what, who, reason) -> times, in order of first appearance."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, str], int] = {}
        #: Task -> round -> leases that it took.
        self.grants: dict[str, dict[int, int]] = {}

    def pool(self) -> dict[str, Callable[[Row, float], Changed]]:
        """Return what takes in the rows of a pool's stream, by the kind of row."""
        found: dict[str, Callable[[Row, float], Changed]] = {
            kind: partial(self._said, what, who) for kind, (what, who) in _POOL.items()
        }
        return {**found, "LeaseGranted": self._granted}

    def task(self, name: str) -> dict[str, Callable[[Row, float], Changed]]:
        """Return what takes in the rows of a task's stream, by the kind of row."""
        return {"HoldPlanned": partial(self._planned, name), "ExecutorDied": partial(self._died, name)}

    def _note(self, what: str, who: str, reason: str) -> Changed:
        key = (what, who, _NUMBER.sub("…", reason))
        self.counts[key] = self.counts.get(key, 0) + 1
        return ("leases",)

    def _said(self, what: str, who: str, row: Row, t: float) -> Changed:
        del t
        reason = str(row.get("reason") or ("its holder was silent" if what == "expired" else ""))
        if what == "cannot be met now":
            reason = f"{row['n_slots']} slots wanted, {row['n_allowed']} exist that may serve it"
        return self._note(what, _without_run(str(row[who])) if who == "task" else str(row.get(who, "")), reason)

    def _granted(self, row: Row, t: float) -> Changed:
        del t
        rounds = self.grants.setdefault(str(row["task"]), {})
        rounds[int(row["round"])] = rounds.get(int(row["round"]), 0) + 1
        return ("leases",)

    def _planned(self, task: str, row: Row, t: float) -> Changed:
        del t
        return self._note(f"{row['planner']}: {row['action']}", task, str(row["reason"]))

    def _died(self, task: str, row: Row, t: float) -> Changed:
        del t
        return self._note("executor died (a strike)", task, str(row["reason"]))


def _without_run(task: str) -> str:
    run, mark, name = task.partition("/")
    return name if mark else run
