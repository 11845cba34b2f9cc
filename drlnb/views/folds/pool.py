"""Fold a pool's stream into columns: slots, leases, waiting requests and settings."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drlnb.records.columns import leasing, placement
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.records.journal import StreamOpened
from drlnb.views.folds.aged import Aged
from drlnb.views.folds.clocks import Clocks
from drlnb.views.folds.entries import Rules, handlers_of
from drlnb.views.folds.grow import Grow, Spans, begin_span, end_span
from drlnb.views.folds.reasons import without_run

__all__ = ["NEWEST", "PoolFold", "SlotLife"]

#: Newest leases, and waits, of a stream that are kept one by one, at least; twice as many at most.
NEWEST = 1500
#: Most estimates of the load that are kept.
_MOST_LOADS = 8_192


@dataclass(slots=True)
class SlotLife:
    """When one slot was there, and when it was draining; seconds on the clock of `stream`."""

    name: str
    node: str
    stream: str
    device: str = ""
    up: Spans = field(default_factory=list)
    draining: Spans = field(default_factory=list)

    def added(self, t: float) -> None:
        """Begin a span in which the slot is there; it may be lent."""
        end_span(self.draining, t)
        begin_span(self.up, t)

    def gone(self, t: float) -> None:
        """End the span in which the slot is there."""
        end_span(self.draining, t)
        end_span(self.up, t)


class PoolFold:
    """Columns of every pool's stream of a run.

    Parameters
    ----------
    clocks
        Gets the relations between streams.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        #: Full names of tasks as the pool calls them (``run/task``), in order of their first appearance.
        self.tasks: dict[str, int] = {}
        #: Slot -> its number, in order of first appearance.
        self.slots: dict[str, int] = {}
        self.lives: dict[tuple[str, int], SlotLife] = {}
        self.streams: list[str] = []
        #: One row per lease and slot: those that go on, each task's first, and the newest.
        self.leases = Grow(
            "stream", "task", "slot", "start", "stop", "waited", "computed", "held", "epoch", "token", "reason"
        )
        #: Stream -> how many there were.
        self.n_leases: Counter[int] = Counter()
        #: Fence -> rows of a lease that goes on.
        self._open: dict[Fence, list[int]] = {}
        #: How a lease ended -> its number in the column ``reason``; the empty one goes on.
        self.reasons: dict[str, int] = {"": 0}
        #: One row per request that was answered or withdrawn: each task's first, and the newest; slot -1.
        self.waits = Grow("stream", "task", "slot", "start", "stop", "waited", "computed")
        #: Stream -> its older leases and waits; lanes are slots and -1, series are tasks.
        self.old: dict[int, Aged] = defaultdict(Aged)
        #: What theory expects of the load from a second on; of a long run every 2nd, 4th, ... estimate by its number.
        self.loads = Grow("number", "stream", "t", "bound", "utilisation", "inflation")
        #: Request id -> (stream, task, since).
        self.waiting: dict[str, tuple[int, int, float]] = {}
        #: Changes with their stream and time.
        self.settings: list[tuple[str, float, SettingChanged]] = []

    def stream(self, name: str) -> Rules:
        """Return the handlers of one stream."""
        if name not in self.streams:
            self.streams.append(name)
            self._clocks.pool(name)
        return handlers_of(self, self.streams.index(name))

    def short(self, task: str) -> str:
        """Return a task's name without its run, unless two runs have one of that name."""
        name = without_run(task)
        return name if sum(without_run(other) == name for other in self.tasks) == 1 else task

    # -- records -----------------------------------------------------------------------------------------------------
    def _task(self, name: str) -> int:
        return self.tasks.setdefault(name, len(self.tasks))

    def _opened(self, stream: int, header: StreamOpened, t: float) -> None:
        snapshot = header.snapshot or {}
        since = float(snapshot.get("t", t))
        for slot in snapshot.get("slots", {}).values():
            life = self._slot(str(slot["name"]), str(slot.get("node", "")), stream)
            life.device = str(slot.get("device", ""))
            if slot.get("state") != "failed":
                life.added(since)

    def _slot(self, name: str, node: str, stream: int) -> SlotLife:
        """Return a slot's life in this pool; a new pool counts its seconds anew, so it begins another life."""
        self.slots.setdefault(name, len(self.slots))
        key = (name, stream)
        if key not in self.lives:
            self.lives[key] = SlotLife(name=name, node=node, stream=self.streams[stream])
        return self.lives[key]

    def _slot_added(self, stream: int, event: leasing.SlotAdded, t: float) -> None:
        life = self._slot(event.slot, event.node, stream)
        life.device = event.device
        life.added(t)

    def _slot_gone(self, stream: int, event: leasing.SlotFailed | placement.NodeLost, t: float) -> None:
        for (_, of), life in self.lives.items():
            lost = life.name == event.slot if isinstance(event, leasing.SlotFailed) else life.node == event.node
            if of == stream and lost:
                life.gone(t)

    def _slot_drained(self, stream: int, decision: leasing.SlotDrained, t: float) -> None:
        begin_span(self._slot(decision.slot, "", stream).draining, t)

    def _slot_freed(self, stream: int, decision: leasing.SlotFreed, t: float) -> None:
        end_span(self._slot(decision.slot, "", stream).draining, t)

    def _requested(self, stream: int, event: leasing.SlotRequested, t: float) -> None:
        task = self._task(event.task)
        if event.request_id not in self.waiting:
            self.waiting[event.request_id] = (stream, task, t)
            self._clocks.seen("ask", _request_key(event.request_id), self.streams[stream], t)

    def _waited(self, stream: int, answer: leasing.LeaseGranted | leasing.RequestCancelled, t: float) -> None:
        if answer.request_id in self.waiting:
            _, task, since = self.waiting.pop(answer.request_id)
            self.waits.append(stream, task, -1, since, t, t - since, 0.0)

    def _granted(self, stream: int, lease: leasing.LeaseGranted, t: float) -> None:
        task = self._task(lease.task)
        self._clocks.sent("grant", lease.fence, self.streams[stream], t)
        for name in lease.slots:
            self._slot(name, "", stream)
            at = self.leases.append(
                stream, task, self.slots[name], t, math.nan, lease.waited_s, math.nan, math.nan,
                lease.fence.epoch, lease.fence.token, 0.0,
            )  # fmt: skip
            self._open.setdefault(lease.fence, []).append(at)
        self.n_leases[stream] += 1
        if self.n_leases[stream] % NEWEST == 0:
            self._age(stream, t)

    def _age(self, stream: int, t: float) -> None:
        """Turn a stream's older leases and waits into shares of time."""
        for grow in (self.leases, self.waits):
            old = _old(grow, stream)
            start, stop = grow["start"][old], grow["stop"][old]
            named = {"lane": grow["slot"], "series": grow["task"], "waited": grow["waited"]}
            spread = {
                "low": start, "high": stop, "held": stop - start, "computed": np.nan_to_num(grow["computed"][old]),
                "count": np.ones(len(old)), **{name: column[old] for name, column in named.items()},
            }  # fmt: skip
            self.old[stream].add(spread, t)
            kept = np.setdiff1d(np.arange(len(grow)), old)
            grow.take(kept)
            if grow is self.leases:
                self._open = {fence: np.searchsorted(kept, rows).tolist() for fence, rows in self._open.items()}

    def _returned(self, stream: int, event: leasing.LeaseReturned, t: float) -> None:
        self._clocks.seen("return", event.fence, self.streams[stream], t)

    def _ended(self, stream: int, lease: leasing.LeaseReleased | leasing.LeaseExpired, t: float) -> None:
        computed, reason = math.nan, "expired"
        if isinstance(lease, leasing.LeaseReleased):
            computed, reason = lease.computed_s, lease.reason
        number = self.reasons.setdefault(reason, len(self.reasons))
        for at in self._open.pop(lease.fence, ()):
            for name, value in (("stop", t), ("held", lease.held_s), ("computed", computed), ("reason", number)):
                self.leases.set(at, name, value)

    def _stopped(self, stream: int, event: placement.TaskStopped, t: float) -> None:
        task = self._task(event.task)
        for request, (_, other, since) in list(self.waiting.items()):
            if other == task:
                del self.waiting[request]
                self.waits.append(stream, task, -1, since, t, t - since, 0.0)

    def _placed(self, stream: int, event: placement.PlacementAsked, t: float) -> None:
        self._task(event.task)

    def _load(self, stream: int, load: leasing.LoadEstimated, t: float) -> None:
        expected = (load.bound_frac, load.expected_utilisation_frac, load.expected_inflation)
        number = self.loads.get(-1, "number") + 1 if len(self.loads) else 0
        self.loads.append(number, stream, t, *expected)
        self.loads.thin("number", _MOST_LOADS)

    def _setting(self, stream: int, event: SettingChanged, t: float) -> None:
        self.settings.append((self.streams[stream], t, event))


def _old(grow: Grow, stream: int) -> NDArray[np.int64]:
    """Return a stream's rows that ended, but for each task's first and the newest ones."""
    begun = grow["task"] + 1j * grow["start"]  # a gang's rows begin together
    mine = np.flatnonzero(grow["stream"] == stream)
    first = begun[mine[np.unique(grow["task"][mine], return_index=True)[1]]]
    old = mine[:-NEWEST]
    return old[~np.isnan(grow["stop"][old]) & ~np.isin(begun[old], first)]


def _request_key(request: str) -> str:
    """Return what a request is called in its task's stream, too: there it comes without the run in front."""
    return "/".join(request.split("/")[-3:])
