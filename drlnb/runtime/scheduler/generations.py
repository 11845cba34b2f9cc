"""Distinguish the lives of a run, and the attempts of its tasks, in row numbers and requests.

A run that ended is resumed under its old name.  Whoever watched it goes on to ask for rows by number, and what its
former masters and clients have sent may still be under way.
"""

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from drlnb.runtime.protocol import Plain, refused

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.run import LiveRun

__all__ = ["Lives"]

#: Longest time from a task's last row to its master's own report, in seconds: it ends its collectors between the two.
_END_S = 12.0
#: Pause between two looks, in seconds.
_LOOK_S = 0.02
#: Most rows of one answer.
_PAGE = 2000


class Lives:
    """What the register of runs remembers over lives and attempts."""

    def __init__(self) -> None:
        #: Run -> number of the first row of its present life.
        self._first_row: dict[str, int] = {}
        #: Request of a master to be registered -> the attempt that it is.
        self._attached: dict[str, int] = {}
        #: Run -> what its present life was asked for with.
        self._asked: dict[str, Plain] = {}

    def attempt(self, request: str, following: int) -> int:
        """Return the attempt that a request to be registered is: `following` if it is new, else what it was."""
        return self._attached.setdefault(request, following)

    async def ended(self, former: "LiveRun | None", spec: Plain) -> Plain | None:
        """Wait until a run that is to be resumed has ended here, too; return the answer if it is not to be opened.

        Its journal may show its end before its masters report it.
        """
        if former is None or former.state != "running":
            return None
        if not spec.get("resume") or spec == self._asked.get(former.run):
            return {"ok": True}  # the same message again
        deadline = time.monotonic() + _END_S
        while former.state == "running":
            if time.monotonic() > deadline:
                return refused("RunLocked", f"run {former.run} goes on: attach to it instead")
            await asyncio.sleep(_LOOK_S)
        return None

    def follow(self, former: "LiveRun | None", spec: Plain) -> Plain:
        """Return the spec of a run's next life here: its attempts are later ones, journalled or not."""
        attempts = dict(spec.get("attempts", {}))
        for task, row in former.tasks.items() if former is not None and spec.get("resume") else ():
            attempts[task] = max(row["attempt"], attempts.get(task, 0))
        return {**spec, "attempts": attempts}

    def begin(self, live: "LiveRun", former: "LiveRun | None", spec: Plain) -> None:
        """Continue the rows of a run's next life where the former one ended."""
        self._asked[live.run] = spec
        if former is not None:
            live.n_rows = former.n_rows
            live.ring.extend(former.ring)
        self._first_row[live.run] = live.n_rows

    def reserve(self, live: "LiveRun") -> None:
        """Make the file of a run's stream now, not with its first rows: the next life may begin before those."""
        with contextlib.suppress(OSError):  # its writer reports what the disk refuses
            live.writer.path.parent.mkdir(parents=True, exist_ok=True)
            live.writer.path.touch()

    def page(self, live: "LiveRun", since: int) -> Plain:
        """Return rows from a number on (0: this life's), the next number, and whether some are not kept any more."""
        since = since or self._first_row[live.run]
        first = live.n_rows - len(live.ring)
        skip = max(0, since - first)
        page = list(live.ring)[skip : skip + _PAGE]
        return {"next": max(since, first) + len(page), "rows": page, "gap": since < first}
