"""What does the pool's stream say?  Slots, leases, waiting requests and settings, as columns."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drlnb.views.folds.clocks import Clocks
from drlnb.views.folds.fences import Fences
from drlnb.views.folds.grow import Grow

__all__ = ["PoolFold", "SlotLife", "fence_of"]

Row = Mapping[str, Any]
Changed = tuple[str, ...]

#: Still going on.
OPEN = math.nan


def fence_of(row: Row) -> tuple[int, int]:
    """Return (epoch, token) of a row's fence."""
    epoch, token = row["fence"]["fence"]
    return int(epoch), int(token)


@dataclass(slots=True)
class SlotLife:
    """When one slot was there, and when it was draining; seconds on the clock of `stream`."""

    name: str
    node: str
    stream: str
    device: str = ""
    up: list[tuple[float, float]] = field(default_factory=list)
    draining: list[tuple[float, float]] = field(default_factory=list)

    def added(self, t: float) -> None:
        """Note that the slot is there."""
        self.freed(t)
        if not self.up or not math.isnan(self.up[-1][1]):
            self.up.append((t, OPEN))

    def gone(self, t: float) -> None:
        """Note that the slot is not there any more."""
        self.freed(t)
        if self.up and math.isnan(self.up[-1][1]):
            self.up[-1] = (self.up[-1][0], t)

    def drained(self, t: float) -> None:
        """Note that nobody may have it until it is idle."""
        if not self.draining or not math.isnan(self.draining[-1][1]):
            self.draining.append((t, OPEN))

    def freed(self, t: float) -> None:
        """Note that it may be lent again."""
        if self.draining and math.isnan(self.draining[-1][1]):
            self.draining[-1] = (self.draining[-1][0], t)


class PoolFold:
    """Columns of every pool's stream of a run.

    Parameters
    ----------
    clocks
        Where relations between streams are noted.
    fences
        Where work finds its lease.
    """

    def __init__(self, clocks: Clocks, fences: Fences) -> None:
        self._clocks = clocks
        self._fences = fences
        #: Full names of tasks as the pool calls them (``run/task``), in order of their first appearance.
        self.tasks: dict[str, int] = {}
        #: Slot -> its number, in order of first appearance.
        self.slots: dict[str, int] = {}
        self.lives: dict[tuple[str, int], SlotLife] = {}
        self.streams: list[str] = []
        #: One row per lease and slot.
        self.leases = Grow(
            "stream", "task", "slot", "granted", "ended", "waited", "held", "computed", "token", "reason", "resident"
        )
        #: How a lease ended -> its number in the column ``reason``; the empty one goes on.
        self.reasons: dict[str, int] = {"": 0}
        #: One row per request that was answered or withdrawn.
        self.waits = Grow("stream", "task", "start", "stop", "granted")
        #: What theory expects of the load from a second on.
        self.loads = Grow("stream", "t", "n_tasks", "n_slots", "d", "bound", "utilisation", "inflation")
        #: Request id -> (stream, task, since).
        self.waiting: dict[str, tuple[int, int, float]] = {}
        #: (stream, t, key, value, task or None).
        self.settings: list[tuple[str, float, str, Any, str | None]] = []

    def stream(self, name: str) -> dict[str, Callable[[Row, float], Changed]]:
        """Return what takes in the rows of one stream, by the kind of row."""
        if name not in self.streams:
            self.streams.append(name)
            self._clocks.pool(name)
        number = self.streams.index(name)
        return {kind: partial(handler, self, stream=number) for kind, handler in _HANDLERS.items()}

    @property
    def lease_rows(self) -> Mapping[tuple[int, int], list[int]]:
        """Rows of :attr:`leases` by fence, one per slot."""
        return self._fences.rows

    def short(self, task: str) -> str:
        """Return a task's name without its run, unless two runs have one of that name."""
        name = _without_run(task)
        return name if sum(_without_run(other) == name for other in self.tasks) == 1 else task

    # -- rows --------------------------------------------------------------------------------------------------------
    def _task(self, row: Row) -> int:
        return self.tasks.setdefault(str(row["task"]), len(self.tasks))

    def _opened(self, row: Row, t: float, stream: int) -> Changed:
        snapshot = row.get("snapshot") or {}
        since = float(snapshot.get("t", t))
        for slot in (snapshot.get("table") or {}).get("slots", ()):
            life = self._slot(str(slot["name"]), str(slot.get("node", "")), stream)
            life.device = str(slot.get("device", ""))
            if slot.get("state") != "failed":
                life.added(since)
        return ("slots",)

    def _slot(self, name: str, node: str, stream: int) -> SlotLife:
        """Return a slot's life in this pool; a new pool counts its seconds anew, so it begins another life."""
        self.slots.setdefault(name, len(self.slots))
        key = (name, stream)
        if key not in self.lives:
            self.lives[key] = SlotLife(name=name, node=node, stream=self.streams[stream])
        return self.lives[key]

    def _slot_added(self, row: Row, t: float, stream: int) -> Changed:
        life = self._slot(str(row["slot"]), str(row["node"]), stream)
        life.device = str(row["device"])
        life.added(t)
        return ("slots",)

    def _slot_gone(self, row: Row, t: float, stream: int) -> Changed:
        for (_, of), life in self.lives.items():
            if of == stream and (life.name == row.get("slot") or life.node == row.get("node")):
                life.gone(t)
        return ("slots",)

    def _slot_drained(self, row: Row, t: float, stream: int) -> Changed:
        self._slot(str(row["slot"]), "", stream).drained(t)
        return ("slots",)

    def _slot_freed(self, row: Row, t: float, stream: int) -> Changed:
        self._slot(str(row["slot"]), "", stream).freed(t)
        return ("slots",)

    def _requested(self, row: Row, t: float, stream: int) -> Changed:
        request = str(row["request_id"])
        task = self._task(row)
        if request not in self.waiting:
            self.waiting[request] = (stream, task, t)
            self._clocks.seen("ask", _request_key(request), self.streams[stream], t)
        return ("waits",)

    def _cancelled(self, row: Row, t: float, stream: int) -> Changed:
        return self._waited(str(row["request_id"]), t, granted=0.0, stream=stream)

    def _waited(self, request: str, t: float, *, granted: float, stream: int) -> Changed:
        found = self.waiting.pop(request, None)
        if found is not None:
            self.waits.append(stream, found[1], found[2], t, granted)
        return ("waits",)

    def _granted(self, row: Row, t: float, stream: int) -> Changed:
        fence = fence_of(row)
        task = self._task(row)
        self._clocks.sent("grant", fence, self.streams[stream], t)
        self._waited(str(row["request_id"]), t, granted=1.0, stream=stream)
        for name in row["slots"]:
            self._slot(str(name), "", stream)
            slot = self.slots[str(name)]
            waited_s = float(row["waited_s"])
            resident = float(row.get("resident", False))
            at = self.leases.append(stream, task, slot, t, OPEN, waited_s, math.nan, math.nan, fence[1], 0.0, resident)
            self._fences.granted(fence, at)
        return ("leases", "waits")

    def _returned(self, row: Row, t: float, stream: int) -> Changed:
        self._clocks.seen("return", fence_of(row), self.streams[stream], t)
        return ()

    def _ended(self, row: Row, t: float, stream: int) -> Changed:
        del stream
        reason = self.reasons.setdefault(str(row.get("reason", "expired")), len(self.reasons))
        for one in self.lease_rows.get(fence_of(row), ()):
            self.leases.set(one, "ended", t)
            self.leases.set(one, "held", float(row["held_s"]))
            self.leases.set(one, "computed", float(row.get("computed_s", math.nan)))
            self.leases.set(one, "reason", reason)
        return ("leases",)

    def _stopped(self, row: Row, t: float, stream: int) -> Changed:
        task = self._task(row)
        for request in [r for r, (_, one, _) in self.waiting.items() if one == task]:
            self._waited(request, t, granted=0.0, stream=stream)
        return ("waits",)

    def _spoken(self, row: Row, t: float, stream: int) -> Changed:
        del t, stream
        self._task(row)
        return ("tasks",)

    def _load(self, row: Row, t: float, stream: int) -> Changed:
        names = ("n_tasks", "n_slots", "d_mean", "bound_frac", "expected_utilisation_frac", "expected_inflation")
        self.loads.append(stream, t, *(float(row[name]) for name in names))
        return ("leases",)

    def _setting(self, row: Row, t: float, stream: int) -> Changed:
        self.settings.append((self.streams[stream], t, str(row["key"]), row["value"], row.get("task")))
        return ("settings",)


def _without_run(task: str) -> str:
    run, mark, name = task.partition("/")
    return name if mark else run


def _request_key(request: str) -> str:
    """Return what a request is called in its task's stream, too: there it comes without the run in front."""
    return "/".join(request.split("/")[-3:])


_HANDLERS: dict[str, Callable[..., Changed]] = {
    "StreamOpened": PoolFold._opened,
    "SlotAdded": PoolFold._slot_added,
    "SlotFailed": PoolFold._slot_gone,
    "NodeLost": PoolFold._slot_gone,
    "SlotDrained": PoolFold._slot_drained,
    "SlotFreed": PoolFold._slot_freed,
    "SlotRequested": PoolFold._requested,
    "RequestCancelled": PoolFold._cancelled,
    "LeaseGranted": PoolFold._granted,
    "LeaseReturned": PoolFold._returned,
    "LeaseReleased": PoolFold._ended,
    "LeaseExpired": PoolFold._ended,
    "LoadEstimated": PoolFold._load,
    "TaskStopped": PoolFold._stopped,
    "PlacementAsked": PoolFold._spoken,
    "SettingChanged": PoolFold._setting,
}
