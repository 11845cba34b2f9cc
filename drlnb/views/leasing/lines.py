"""Put every lease of a run on one clock, joined with what was computed under each; sum up each task's part."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from drlnb.views.drawing.payload import Floats, Table, picked
from drlnb.views.folds.aged import Aged, packed, seconds
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.grow import Grow, Spans
from drlnb.views.folds.pool import Part

__all__ = ["THEORY", "LeaseLine", "Sharing", "expected", "inflation", "inside", "lent_s", "n_devices", "sharing"]


class LeaseLine:
    """A fold's pool as it is now, with every time in seconds since the run's first event."""

    def __init__(self, fold: Fold) -> None:
        self.fold, self.now = fold, fold.now_s
        self.tasks = fold.task_names()
        self.slots = tuple(fold.pool.slots)
        short = [fold.pool.short(name) for name in fold.pool.tasks]
        #: Number of a task in the pool -> its series.
        self.series = np.array([self.tasks.index(name) for name in short], dtype=np.int64)
        streams, self.newest = fold.pool.streams, fold.pool.newest
        self.offsets = np.array([fold.offset_s(name) for name in streams], dtype=np.float64)
        #: Until when each pool's stream is known: a former one to its latest event, the newest one until now.
        self.until = np.array([fold.latest(name) for name in streams], dtype=np.float64) + self.offsets
        if streams:
            self.until[self.newest] = self.now

    @classmethod
    def of(cls, fold: Fold) -> "LeaseLine":
        """Return a fold's pool as it is now, once per state of it however many pictures and numbers are made of it."""
        return fold.keep("leasing.line", fold.n_rows, partial(cls, fold))

    @property
    def ended(self) -> bool:
        """Whether there were tasks, and all of them are over."""
        tasks = self.fold.tasks
        return bool(tasks) and {*self.fold.named} <= {*tasks} and all(task.latest.ended for task in tasks.values())

    def at(self, grow: Grow, name: str) -> Floats:
        """Return a column of times of the pools' streams."""
        times: Floats = grow[name] + self.offsets[grow["stream"].astype(np.int64)]
        return times

    @cached_property
    def leases(self) -> Table:
        """All leases; one whose end was never told is drawn as long as its pool was heard of.

        ``is_open``: its end was never told; ``goes_on``: nor has another pool come since; ``reason``: number of how it
        ended; ``is_old``: several in one row, their seconds lie side by side at the end of the column from ``low`` to
        ``high``.
        """
        grow = self.fold.pool.leases
        start, ended = self.at(grow, "start"), self.at(grow, "stop")
        stream = grow["stream"].astype(np.int64)
        stop = np.maximum(np.where(np.isnan(ended), self.until[stream], ended), start)
        return self._after_old(
            "leases",
            {
                "start": start,
                "stop": stop,
                "waited": grow["waited"],
                "computed": grow["computed"],
                "held": np.where(np.isnan(grow["held"]), stop - start, grow["held"]),
                "epoch": grow["epoch"],
                "token": grow["token"].astype(np.int64),
                "lane": grow["slot"].astype(np.int64),
                "reason": grow["reason"].astype(np.int64),
                "is_open": np.isnan(ended),
                "goes_on": np.isnan(ended) & (stream == self.newest),
            },
        )

    def _after_old(self, name: str, rows: Table) -> Table:
        """Return the pool's rows behind the columns that its older ones have become."""
        grow: Grow = getattr(self.fold.pool, name)
        parts = [seconds(Aged().spread)]
        for (kind, stream), old in self.fold.pool.old.items():
            if kind == name:
                part = seconds(old.spread)
                parts.append({**part, **{edge: part[edge] + self.offsets[stream] for edge in ("low", "high")}})
        columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        start, stop = packed(columns)
        columns |= {"start": start, "stop": stop, "is_old": np.ones(len(start), dtype=bool)}
        n = len(rows["start"])
        new = {
            **rows,
            "low": rows["start"],
            "high": rows["stop"],
            "count": np.ones(n),
            "series": grow["task"],
            "is_old": np.zeros(n, dtype=bool),
        }
        nothing = np.zeros(len(start))
        both = {key: np.concatenate([columns.get(key, nothing), of]).astype(of.dtype) for key, of in new.items()}
        return {**both, "series": self.series[both["series"].astype(np.int64)]}

    @cached_property
    def work(self) -> Table:
        """What was computed when, cut to the lease (its row) that it was computed under; by lane, in order of time."""
        told = self._in_streams()
        pieces = np.concatenate([told, self._at_ends(told[0])], axis=1)
        is_told = np.arange(pieces.shape[1]) < told.shape[1]
        real = pieces[2] > pieces[1]
        (row, start, stop), is_told = pieces[:, real], is_told[real]
        row = row.astype(np.int64)
        order = np.lexsort((start, self.leases["lane"][row]))
        of_lease = {name: self.leases[name][row] for name in ("lane", "series", "is_old")}
        return picked(
            {"start": start, "stop": stop, "computed": stop - start, "lease": row, "is_told": is_told, **of_lease},
            order,
        )

    def idle_s(self, low: float) -> tuple[float, float, float]:
        """Return what leases from a second on were idle for: to begin, between gradients, and to hand back; seconds.

        Of those that have ended and whose tasks tell of each gradient.
        """
        of = {name: self.work[name][self.work["is_told"]] for name in ("lease", "start", "stop", "computed")}
        start, stop, is_open = (self.leases[name] for name in ("start", "stop", "is_open"))
        first, last = np.full(len(start), np.inf), np.full(len(start), -np.inf)
        np.minimum.at(first, of["lease"], of["start"])
        np.maximum.at(last, of["lease"], of["stop"])
        computed = np.bincount(of["lease"], weights=of["computed"], minlength=len(start))
        counts = ~is_open & (start >= low) & np.isfinite(first)
        parts = (first - start, last - first - computed, stop - last)
        begin, between, end = (float(np.maximum(0.0, part[counts]).sum()) for part in parts)
        return begin, between, end

    def computed_s(self, low: float, high: float) -> float:
        """Return the slot-seconds that were computed between two points: of older time evenly within its columns."""
        is_old, single = self.leases["is_old"], ~self.work["is_old"]
        old = {name: self.leases[name][is_old] for name in ("low", "high", "computed")}
        pieces = {"low": self.work["start"][single], "high": self.work["stop"][single]}
        parts = (inside(old, low, high) * old["computed"], inside(pieces, low, high) * (pieces["high"] - pieces["low"]))
        return float(sum(part.sum() for part in parts))

    def _in_streams(self) -> Floats:
        """Return lease, start and stop of each piece of work in the tasks' own streams."""
        parts = [np.zeros((5, 0))]
        lanes = self.fold.pool.slots
        for _, task in sorted(self.fold.tasks.items()):
            for attempt in task.in_order:
                work = [attempt.work[name] for name in ("stop", "elapsed", "epoch", "token")]
                lane = np.array([lanes.get(name, -1) for name in attempt.slots])[attempt.work["slot"].astype(np.int64)]
                parts.append(np.stack([work[0] + self.fold.offset_s(attempt.stream), *work[1:], lane]))
        stop, elapsed, epoch, token, lane = np.concatenate(parts, axis=1)
        n = len(lanes) + 1
        held = self.leases["epoch"] + 1j * (self.leases["token"] * n + self.leases["lane"])
        fences, first = np.unique(held, return_index=True)
        wanted = epoch + 1j * (token * n + lane)
        at = np.searchsorted(fences, wanted)
        known = np.flatnonzero(np.append(fences, np.nan)[at] == wanted)
        row = first[at[known]]
        begin = np.maximum((stop - elapsed)[known], self.leases["start"][row])
        end = np.minimum(stop[known], self.leases["stop"][row])
        return np.stack([row, begin, end])

    def _at_ends(self, known: Floats) -> Floats:
        """Return, for leases of which no piece is known, the seconds that the pool knows of, at the end of each."""
        leases = self.leases
        wanted = (leases["computed"] > 0) & ~leases["is_open"]
        wanted[known.astype(np.int64)] = False
        row = np.flatnonzero(wanted)
        stop = leases["stop"][row]
        return np.stack([row, np.maximum(stop - leases["computed"][row], leases["start"][row]), stop])

    @property
    def strangers(self) -> tuple[str, ...]:
        """Names of holders that are no tasks of this run: people's own loops, and other runs' tasks."""
        known = {*self.fold.named, *self.fold.tasks}
        return tuple(name for name in self.tasks if name not in known)

    @cached_property
    def guests(self) -> frozenset[int]:
        """Series of strangers that hold slots beside a run's own tasks; without any task of its own there is none."""
        names = self.strangers
        return frozenset(map(self.tasks.index, names)) if len(names) < len(self.tasks) else frozenset()

    def alive_s(self, low: float, high: float) -> float:
        """Return slot-seconds that could be lent between two points."""
        gone = sum(stop - start for start, stop, _ in self.absent(low, high))
        return max(0.0, len(self.slots) * max(0.0, high - low) - gone)

    def absent(self, low: float, high: float) -> list[tuple[float, float, int]]:
        """Return (start, stop, lane) of when a slot was not there: before it came up, and after it was lost."""
        absences = []
        for lane, ups in enumerate(self._ups):
            at = low
            for up, down in ups:
                if up > at:
                    absences.append((at, min(up, high), lane))
                at = max(at, down)
            if at < high:
                absences.append((at, high, lane))
        return [absence for absence in absences if absence[1] > absence[0]]

    @cached_property
    def _ups(self) -> list[Spans]:
        """When each slot was there, in order."""
        return [sorted(self._up(name)) for name in self.slots]

    def _up(self, name: str) -> Spans:
        """Return when a slot was there; what a pool last knew ends with its stream if a later one knows the slot."""
        mine = [life for life in self.fold.pool.lives.values() if life.name == name]
        lives = sorted(mine, key=lambda life: self.fold.offset_s(life.stream))
        times: Spans = []
        for life, after in zip(lives, [*lives[1:], None], strict=True):
            end = math.inf if after is None else self.heard_s(life.stream)
            times += self.spans(life.stream, life.up, end)
        return times

    def heard_s(self, stream: str) -> float:
        """Return when a stream's latest event was, on the common line."""
        return self.fold.latest(stream) + self.fold.offset_s(stream)

    def spans(self, stream: str, spans: Spans, end: float) -> Spans:
        """Return spans of a stream's seconds on the common line; one that goes on ends at `end`."""
        shift = self.fold.offset_s(stream)
        return [(since + shift, end if math.isnan(until) else until + shift) for since, until in spans]

    def n_alive(self) -> int:
        """Return how many slots there are now."""
        lives = [life for (_, of), life in self.fold.pool.lives.items() if of == self.newest]
        return sum(bool(life.up) and math.isnan(life.up[-1][1]) for life in lives)

    @cached_property
    def waits(self) -> Table:
        """The waits that ended."""
        grow = self.fold.pool.waits
        rows = {name: self.at(grow, name) for name in ("start", "stop")}
        return self._after_old("waits", {**rows, "waited": grow["waited"]})

    @cached_property
    def refused(self) -> Table:
        """When slots were free though requests waited, a row per slot; what goes on is known as :attr:`until` says."""
        pool = self.fold.pool
        going = [(of, lane, since) for of, (n, since) in pool.demand.now.items() for lane in range(n)]
        stream, _, since = np.array(going, dtype=np.float64).reshape(-1, 3).T
        known = self._after_old("refused", {name: self.at(pool.refused, name) for name in ("start", "stop")})
        start = since + self.offsets[stream.astype(np.int64)]
        stop = np.maximum(self.until[stream.astype(np.int64)], start)
        open_rows = {"start": start, "low": start, "stop": stop, "high": stop}
        return {name: np.concatenate([known[name], values]) for name, values in open_rows.items()}

    @cached_property
    def waiting(self) -> Table:
        """The waits without an answer, while their pool was heard of; ``goes_on``: no other pool has come since."""
        asked = self.fold.pool.waiting
        stream = np.array([of for of, _ in asked], dtype=np.int64)
        start = np.array([t for _, t in asked.values()], dtype=np.float64) + self.offsets[stream]
        asking = np.array([self.series[task] for task, _ in asked.values()], dtype=np.int64)
        stop = np.maximum(self.until[stream], start)
        return {"start": start, "stop": stop, "series": asking, "goes_on": stream == self.newest}

    def pauses(self, task: str, span: tuple[float, float]) -> Spans:
        """Return (start, stop) of a task's pauses within a span; one that goes on ends with it, or with its attempt."""
        attempts = self.fold.tasks[task].in_order if task in self.fold.tasks else ()
        ends = [*(self.heard_s(of.stream) for of in attempts[:-1]), span[1]]
        each = zip(attempts, ends, strict=False)
        pauses = [pause for of, end in each for pause in self.spans(of.stream, of.pauses, end)]
        inside = [(max(span[0], since), min(span[1], until)) for since, until in pauses]
        return [pause for pause in inside if pause[1] > pause[0]]


def inside(rows: Table, low: float, high: float) -> Floats:
    """Return how much of each row, from its `low` to its `high`, lies between two points; dimensionless."""
    width, shared = rows["high"] - rows["low"], np.minimum(rows["high"], high) - np.maximum(rows["low"], low)
    whole = (rows["low"] >= low) & (rows["high"] <= high)
    part: Floats = np.divide(np.maximum(0.0, shared), width, out=whole.astype(np.float64), where=~whole & (width > 0))
    return part


def lent_s(rows: Table, low: float, high: float) -> Floats:
    """Return the seconds of each row between two points: of older time evenly within its column."""
    seconds: Floats = (rows["stop"] - rows["start"]) * inside(rows, low, high)
    return seconds


_USED = "seconds computed / seconds that slots were there, from the first grant to the last release of the run"
_PRICE = (
    "time with waits for slots / without them, from each task's first slot on, mean over tasks; where a wait "
    "overlapped with collecting, the true price is less"
)
#: How well slots were used and what waiting for them cost, each beside what theory expects.
THEORY = {
    "utilisation": ("utilisation", "%", _USED),
    "bound": ("bound", "%", "most that utilisation can be: sum of duties / slots, mean over the time of the run"),
    "expected": ("expected", "%", "utilisation by queueing theory, mean over the time of the run"),
    "inflation": ("rounds take", "x", _PRICE),
    "expected_inflation": ("expected", "x", "the same by queueing theory, mean over the time of the run"),
}

#: What theory expects -> its column in the pool's estimates.
_EXPECTED = {"bound": "bound", "expected": "utilisation", "expected_inflation": "inflation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """One task's part; seconds."""

    series: int
    #: Slots at the same time.
    n_slots: int
    #: First lease and last return (or open wait), on the common line.
    span: tuple[float, float]
    #: From its first lease to its last return, pauses left out.
    active: float
    #: Of these, waited for slots.
    waited: float
    #: Slot-seconds lent, and computed.
    held: float
    computed: float

    @property
    def alone(self) -> float:
        """What the same rounds take without waiting for slots."""
        return self.active - self.waited

    @property
    def inflation(self) -> float | None:
        """Time with the waits / time without."""
        return self.active / self.alone if self.alone > 0 else None


def expected(line: LeaseLine, low: float, high: float) -> dict[str, float | None]:
    """Return the means over a time of what theory expects, each estimate holding until the next one; None before it."""
    grow = line.fold.pool.loads
    if not len(grow):
        return dict.fromkeys(_EXPECTED)
    t = line.at(grow, "t")
    order = np.argsort(t, kind="stable")
    stop = np.minimum(np.append(t[order][1:], max(high, low)), high)
    weight = np.maximum(0.0, stop - np.maximum(t[order], low))
    if weight.sum() <= 0:
        weight[-1] = 1.0
    return {key: float(np.average(grow[name][order], weights=weight)) for key, name in _EXPECTED.items()}


def sharing(line: LeaseLine) -> tuple[Sharing, ...]:
    """Return every task's part from its first lease on, in the order of tasks; who has had none is left out.

    The wait for the first slot of all is the pool's start, or the run's queue, and would count in no round.  Of a run
    that has tasks, its own alone: who else holds slots of the pool has no rounds that could be compared.
    """
    pool, waiting, open_ = line.fold.pool, line.waiting, picked(line.leases, line.leases["is_open"])
    mine: dict[int, list[tuple[float, Part]]] = {}
    for (stream, task), part in pool.parts.items():
        if math.isfinite(part.first) and int(line.series[task]) not in line.guests:
            mine.setdefault(int(line.series[task]), []).append((float(line.offsets[stream]), part))
    parts = []
    for series, had in sorted(mine.items()):
        first = min(offset + part.first for offset, part in had)
        asks = picked(waiting, (waiting["series"] == series) & (waiting["start"] >= first))
        holds = picked(open_, open_["series"] == series)
        last = max(first, *asks["stop"], *holds["stop"], *(offset + part.last for offset, part in had))
        later = [part.early for offset, part in had if offset + part.first > first]  # it had a lease of another pool
        paused = sum(stop - start for start, stop in line.pauses(line.tasks[series], (first, last)))
        parts.append(
            Sharing(
                series=series,
                n_slots=max(part.n_slots for _, part in had),
                active=last - first - paused,
                span=(first, last),
                waited=sum(part.waited for _, part in had) + sum(later) + float(np.sum(asks["stop"] - asks["start"])),
                held=sum(part.held for _, part in had) + float(np.sum(holds["stop"] - holds["start"])),
                computed=sum(part.computed for _, part in had),
            )
        )
    return tuple(parts)


def inflation(parts: Sequence[Sharing]) -> float | None:
    """Return the mean of the tasks' time with the waits for slots / time without, None if there is none."""
    prices = [part.inflation for part in parts if part.inflation is not None]
    return sum(prices) / len(prices) if prices else None


def n_devices(line: LeaseLine) -> int:
    """Return how many devices the slots are on: seats of one device count once."""
    devices = {}
    for life in line.fold.pool.lives.values():
        shared = life.device not in ("", "cpu")
        devices[life.name] = (life.node, life.device) if shared else (life.name, "")
    return len(set(devices.values()))
