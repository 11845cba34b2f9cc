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
from drlnb.views.folds.aged import Aged, ticks
from drlnb.views.folds.clocks import pool_order
from drlnb.views.folds.entries import Rules, folds, handlers_of
from drlnb.views.folds.grow import Grow, Spans, begin_span, end_span

__all__ = ["NEWEST", "Demand", "Part", "PoolFold", "SlotLife"]

#: Newest leases of a stream that are kept one by one, at least, and newest waits; twice as many at most.
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

    @property
    def is_up(self) -> bool:
        """Whether it is there now."""
        return bool(self.up) and math.isnan(self.up[-1][1])

    def gone(self, t: float) -> None:
        """End the span in which the slot is there."""
        end_span(self.draining, t)
        end_span(self.up, t)


@dataclass(slots=True)
class Part:
    """What one task has had of one pool: sums of leases and waits that have ended, in seconds of the stream's clock."""

    #: First grant, and last return or answer.
    first: float = math.inf
    last: float = -math.inf
    #: Most slots in one lease.
    n_slots: int = 0
    #: Slot-seconds lent and computed.
    held: float = 0.0
    computed: float = 0.0
    #: Waited for slots since its first lease, and before it.
    waited: float = 0.0
    early: float = 0.0


class Demand:
    """When slots were free though requests waited, pool by pool, as either changes."""

    def __init__(self) -> None:
        #: One row per such slot, from when to when, the newest.
        self.rows = Grow("stream", "task", "slot", "start", "stop", "waited", "computed")
        #: Stream -> how many there are now, since when.
        self.now: dict[int, tuple[int, float]] = {}
        #: Stream -> slots that are ``up`` or ``lent``, and requests that are ``waiting``, now.
        self.counts: dict[int, Counter[str]] = defaultdict(Counter)

    def change(self, stream: int, t: float, **by: int) -> None:
        """Change the counts."""
        of = self.counts[stream]
        of.update(by)
        n = max(0, min(of["up"] - of["lent"], of["waiting"]))
        before, since = self.now.get(stream, (0, t))
        if n != before:
            for lane in range(before if t > since else 0):
                self.rows.append(stream, 0, lane, since, t, 0.0, 0.0)
            self.now[stream] = (n, t)


@folds("stream")
class PoolFold:
    """Columns of every pool's stream of a run."""

    def __init__(self) -> None:
        #: Full names of tasks as the pool calls them (``run/task``), in order of their first appearance.
        self.tasks: dict[str, int] = {}
        #: Slot -> its number, in order of first appearance.
        self.slots: dict[str, int] = {}
        self.lives: dict[tuple[str, int], SlotLife] = {}
        self.streams: list[str] = []
        #: One row per lease and slot: those that go on, and the newest.
        self.leases = Grow(
            "stream", "task", "slot", "start", "stop", "waited", "computed", "held", "epoch", "token", "reason"
        )
        #: Stream -> how many there were.
        self.n_leases: Counter[int] = Counter()
        #: Leases whose holders were silent.
        self.n_expired = 0
        #: (Stream, fence) -> rows of a lease that goes on, and its request; two streams of a pool may tell of the same.
        self._open: dict[tuple[int, Fence], list[int]] = {}
        self._answered: dict[tuple[int, Fence], str] = {}
        #: How a lease ended -> its number in the column ``reason``; the empty one goes on.
        self.reasons: dict[str, int] = {"": 0}
        #: One row per request that was answered, refused or withdrawn, the newest; a task's are a lane of their own.
        self.waits = Grow("stream", "task", "slot", "start", "stop", "waited", "computed")
        self.demand = Demand()
        self.refused = self.demand.rows
        #: (Name of one of these, stream) -> its older rows; series are tasks.
        self.old: dict[tuple[str, int], Aged] = defaultdict(Aged)
        #: (Stream, task) -> its sums.
        self.parts: dict[tuple[int, int], Part] = defaultdict(Part)
        #: What theory expects of the load from a second on; of a long run every 2nd, 4th, ... estimate by its number.
        self.loads = Grow("number", "stream", "t", "bound", "utilisation", "inflation")
        #: (Stream, request id) -> (task, since).
        self.waiting: dict[tuple[int, str], tuple[int, float]] = {}
        #: Task -> slots of its gang, by its latest plan.
        self.gangs: dict[str, tuple[str, ...]] = {}
        #: Changes with their stream and time.
        self.settings: list[tuple[str, float, SettingChanged]] = []

    def stream(self, name: str) -> Rules:
        """Return the handlers of one stream."""
        if name not in self.streams:
            self.streams.append(name)
        return handlers_of(self, self.streams.index(name))

    def short(self, task: str) -> str:
        """Return a task's name without its run, unless two runs have one of that name."""
        name = _without_run(task)
        return name if sum(_without_run(other) == name for other in self.tasks) == 1 else task

    @property
    def newest(self) -> int:
        """Number of the stream that began last, -1 before there is one.

        What an earlier one never told the end of (its pool died, or the run ended before others' leases did) goes on
        no more: it is known until that stream's latest event.
        """
        return max(range(len(self.streams)), key=lambda i: (pool_order(self.streams[i]), i), default=-1)

    def engaged(self) -> tuple[set[str], set[str]]:
        """Return the tasks that hold a slot now, and those that wait for one, without their runs."""
        names, newest = [self.short(name) for name in self.tasks], self.newest
        rows = [at for (stream, _), rows in self._open.items() if stream == newest for at in rows]
        holding = {int(self.leases.get(at, "task")) for at in rows}
        asking = {task for (stream, _), (task, _) in self.waiting.items() if stream == newest}
        return {names[task] for task in holding}, {names[task] for task in asking}

    # -- records -----------------------------------------------------------------------------------------------------
    def _task(self, name: str) -> int:
        return self.tasks.setdefault(name, len(self.tasks))

    def _opened(self, stream: int, header: StreamOpened, t: float) -> None:
        """Fold in what a pool lends and is asked for as its stream begins; whatever began earlier begins with it."""
        snapshot = header.snapshot or {}
        leases = snapshot.get("leases", {})
        since = float(leases.get("t", t))
        for slot in leases.get("slots", {}).values():
            life = self._slot(str(slot["name"]), str(slot.get("node", "")), stream)
            life.device = str(slot.get("device", ""))
            if slot.get("state") != "failed":
                self.demand.change(stream, since, up=int(not life.is_up))
                life.added(since)
        for lease in leases.get("open", {}).values():
            task, request = self._task(str(lease["task"])), str(lease["request_id"])
            if lease["state"] == "granted":
                fence = Fence(epoch=int(leases["epoch"]), token=int(lease["token"]))
                self._lend(stream, since, fence, task, request, tuple(lease["slots"]), 0.0)
            elif lease["state"] == "pending":
                self._wait(stream, since, task, request)

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
        self.demand.change(stream, t, up=int(not life.is_up))
        life.added(t)

    def _slot_gone(self, stream: int, event: leasing.SlotFailed | placement.NodeLost, t: float) -> None:
        for (_, of), life in self.lives.items():
            lost = life.name == event.slot if isinstance(event, leasing.SlotFailed) else life.node == event.node
            if of == stream and lost:
                self.demand.change(stream, t, up=-life.is_up)
                life.gone(t)

    def _slot_drained(self, stream: int, decision: leasing.SlotDrained, t: float) -> None:
        begin_span(self._slot(decision.slot, "", stream).draining, t)

    def _slot_freed(self, stream: int, decision: leasing.SlotFreed, t: float) -> None:
        end_span(self._slot(decision.slot, "", stream).draining, t)

    def _requested(self, stream: int, event: leasing.SlotRequested, t: float) -> None:
        task, request = self._task(event.task), event.request_id
        answered = (known for (of, _), known in self._answered.items() if of == stream)
        if (stream, request) not in self.waiting and request not in answered:  # else it is asked again
            self._wait(stream, t, task, request)

    def _wait(self, stream: int, t: float, task: int, request: str) -> None:
        self.waiting[stream, request] = (task, t)
        self.demand.change(stream, t, waiting=1)

    def _cancelled(self, stream: int, event: leasing.RequestCancelled, t: float) -> None:
        self._waited(stream, event.request_id, t)

    def _request_refused(self, stream: int, decision: leasing.RequestRefused, t: float) -> None:
        self._waited(stream, decision.subject, t)

    def _waited(self, stream: int, request: str, t: float, *, granted: bool = False) -> None:
        """End the wait of a request; one that was refused at once has not waited."""
        if (stream, request) not in self.waiting:
            return
        task, since = self.waiting.pop((stream, request))
        if granted or t > since:
            self.waits.append(stream, task, -1 - task, since, t, t - since, 0.0)
            part = self.parts[stream, task]
            if part.first <= since:
                part.waited += t - since
                part.last = max(part.last, t)
            else:
                part.early += t - since
        self.demand.change(stream, t, waiting=-1)

    def _granted(self, stream: int, lease: leasing.LeaseGranted, t: float) -> None:
        task = self._task(lease.task)
        self._waited(stream, lease.request_id, t, granted=True)
        self._lend(stream, t, lease.fence, task, lease.request_id, lease.slots, lease.waited_s)
        if self.n_leases[stream] % NEWEST == 0:
            for name in ("leases", "waits", "refused"):
                self._age(t, name, stream)

    def _lend(
        self, stream: int, t: float, fence: Fence, task: int, request: str, slots: tuple[str, ...], waited_s: float
    ) -> None:
        for name in slots:
            self._slot(name, "", stream)
            at = self.leases.append(
                stream, task, self.slots[name], t, math.nan, waited_s, math.nan, math.nan, fence.epoch, fence.token, 0.0
            )
            self._open.setdefault((stream, fence), []).append(at)
        self._answered[stream, fence] = request
        part = self.parts[stream, task]
        part.first, part.n_slots = min(part.first, t), max(part.n_slots, len(slots))
        self.n_leases[stream] += 1
        self.demand.change(stream, t, lent=len(slots))

    def _age(self, t: float, name: str, stream: int) -> None:
        """Turn a stream's older rows of one kind into shares of time."""
        grow: Grow = getattr(self, name)
        old = _old(grow, stream)
        start, stop, waited = (ticks(grow[column][old]) for column in ("start", "stop", "waited"))
        computed = ticks(np.nan_to_num(grow["computed"][old]))
        lane, series = (grow[column][old].astype(np.int64) for column in ("slot", "task"))
        self.old[name, stream].add(
            {
                "low": start,
                "high": stop,
                "held": stop - start,
                "computed": computed,
                "lane": lane,
                "series": series,
                "waited": waited,
                "count": np.ones_like(start),
            },
            int(ticks(t)),
        )
        kept = np.setdiff1d(np.arange(len(grow)), old)
        grow.take(kept)
        if grow is self.leases:
            self._open = {lease: np.searchsorted(kept, rows).tolist() for lease, rows in self._open.items()}

    def _ended(self, stream: int, lease: leasing.LeaseReleased | leasing.LeaseExpired, t: float) -> None:
        computed_s, reason = (math.nan,) * len(lease.slots), "expired"
        self.n_expired += isinstance(lease, leasing.LeaseExpired)
        if isinstance(lease, leasing.LeaseReleased):
            computed_s, reason = lease.computed_s, lease.reason
        number = self.reasons.setdefault(reason, len(self.reasons))
        rows = self._open.pop((stream, lease.fence), ())
        part = self.parts[stream, self._task(lease.task)]
        for at, computed in zip(rows, computed_s, strict=False):
            part.held += t - self.leases.get(at, "start")
            part.computed += 0.0 if math.isnan(computed) else computed
            part.last = max(part.last, t)
            for name, value in (("stop", t), ("held", lease.held_s), ("computed", computed), ("reason", number)):
                self.leases.set(at, name, value)
        self._answered.pop((stream, lease.fence), None)
        self.demand.change(stream, t, lent=-len(rows))

    def _stopped(self, stream: int, event: placement.TaskStopped, t: float) -> None:
        task = self._task(event.task)
        asked = [name for (of, name), (other, _) in self.waiting.items() if (of, other) == (stream, task)]
        for request in asked:
            self._waited(stream, request, t)

    def _placed(self, stream: int, record: placement.PlacementAsked | placement.PlacementPlanned, t: float) -> None:
        self._task(record.task)
        if isinstance(record, placement.PlacementPlanned):
            self.gangs[record.task] = record.slots

    def _load(self, stream: int, load: leasing.LoadEstimated, t: float) -> None:
        expected = (load.bound_frac, load.expected_utilisation_frac, load.expected_inflation)
        number = self.loads.get(-1, "number") + 1 if len(self.loads) else 0
        self.loads.append(number, stream, t, *expected)
        self.loads.thin("number", _MOST_LOADS)

    def _setting(self, stream: int, event: SettingChanged, t: float) -> None:
        self.settings.append((self.streams[stream], t, event))


def _old(grow: Grow, stream: int) -> NDArray[np.int64]:
    """Return a stream's rows that ended, but for the newest ones."""
    mine = np.flatnonzero(grow["stream"] == stream)
    old = mine[:-NEWEST]
    return old[~np.isnan(grow["stop"][old])]


def _without_run(task: str) -> str:
    """Return a task's name as the pool has it (``run/task``) without its run."""
    run, mark, name = task.partition("/")
    return name if mark else run
