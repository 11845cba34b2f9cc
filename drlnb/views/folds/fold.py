"""How do journal rows become columns?  Row by row, in any cutting: in pieces = at once.

Rows are what the runtime streams and what :func:`rows_of` makes of a journal: ``{"s": stream, **record.to_row()}``.
Streams may come one after the other or interleaved; only the order within a stream counts.  Decisions and commands
have no time of their own: they happened at the event before them.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from drlnb.records import common, round, seats
from drlnb.records.columns import batching, distribution, leasing, placement, swapping, warmup
from drlnb.records.journal import Journal
from drlnb.views.folds.clocks import Clock, Clocks
from drlnb.views.folds.fences import Fences
from drlnb.views.folds.pool import PoolFold
from drlnb.views.folds.reasons import Reasons
from drlnb.views.folds.task import TaskFold
from drlnb.views.folds.warmup import WarmupFold

__all__ = ["Delta", "Fold", "fold_of", "rows_of", "split_stream"]

#: A line of a journal can be read once the column that its record belongs to was imported.
COLUMNS = (batching, common, distribution, leasing, placement, round, seats, swapping, warmup)

_Made = TypeVar("_Made")
#: Kind of record -> what takes in such a row at a second, and says what it changed.
Handlers = Mapping[str, Callable[[Mapping[str, Any], float], tuple[str, ...]]]

#: What counts as the weaker origin when streams differ.
_ORIGINS = ("emulated", "simulated", "measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What a few rows changed."""

    n_rows: int
    #: Newest second of any stream, on the common line.
    now_s: float
    #: Of ``leases``, ``slots``, ``waits``, ``settings``, ``tasks``, ``rounds``, ``warmup``: what may look different.
    changed: frozenset[str]


def rows_of(journal: Journal) -> Iterator[dict[str, Any]]:
    """Yield the rows of a journal, stream by stream, as the runtime streams them."""
    for name, stream in journal.streams.items():
        yield {"s": name, **stream.header.to_row()}
        for record in stream.records:
            yield {"s": name, **record.to_row()}


def split_stream(stream: str) -> tuple[str, int] | None:
    """Return (task, attempt) of a task's stream name, None for another stream.

    Examples
    --------
    >>> split_stream("task-CartPole-v1-a2"), split_stream("broker-e5")
    (('CartPole-v1', 2), None)
    """
    name, mark, attempt = stream.removeprefix("task-").rpartition("-a")
    return (name, int(attempt)) if mark and attempt.isdigit() and stream.startswith("task-") else None


@dataclass(slots=True)
class _Line:
    """One stream: who takes in its rows, and the first and latest second of its own clock."""

    name: str
    handlers: Handlers
    timed: bool = False
    first: float = 0.0
    latest: float = 0.0

    def saw(self, t: float) -> None:
        """Note a row's second."""
        if not self.timed:
            self.timed, self.first, self.latest = True, float(t), float(t)
        elif t > self.latest:
            self.latest = float(t)


#: Rows that say something of their stream itself.
_OF_STREAMS = frozenset({"StreamOpened", "ClockRelated", "Defect", "JournalFailed", "SeatsPlanned"})


def _together(*all_handlers: Handlers) -> Handlers:
    """Return handlers that do what several do, one after the other."""
    found: dict[str, Callable[[Mapping[str, Any], float], tuple[str, ...]]] = {}
    for handlers in all_handlers:
        for kind, handler in handlers.items():
            found[kind] = _both(found[kind], handler) if kind in found else handler
    return found


def _both(
    first: Callable[[Mapping[str, Any], float], tuple[str, ...]],
    second: Callable[[Mapping[str, Any], float], tuple[str, ...]],
) -> Callable[[Mapping[str, Any], float], tuple[str, ...]]:
    return lambda row, t: (*first(row, t), *second(row, t))


class Fold:
    """Columns of one run, growing with its journal.

    Parameters
    ----------
    tasks
        Names of the run's tasks, if known: those that no row has named yet are shown, too.
    groups
        Task -> group, whose curves are drawn with a band.
    clocks
        Settled clocks, for a fold of a prefix.
    details
        Keep what only the pictures of warm-up and of reasons need, too; a third of the work.
    """

    def __init__(
        self,
        *,
        tasks: Iterable[str] = (),
        groups: Mapping[str, str] | None = None,
        clocks: Mapping[str, Clock] | None = None,
        details: bool = True,
    ) -> None:
        self._details = details
        self.named = tuple(tasks)
        self.groups = dict(groups or {})
        self.clocks = Clocks(fixed=dict(clocks or {}))
        self._fences = Fences()
        self.pool = PoolFold(self.clocks, self._fences)
        self.tasks: dict[str, TaskFold] = {}
        #: What became of the collectors of each task between two rounds, by task and attempt.
        self.warmups: dict[str, dict[int, WarmupFold]] = {}
        self.reasons = Reasons()
        #: Device -> work per second with 1, 2, ... executors at once, relative to one, where a probe has measured it.
        self.rates: dict[str, tuple[float, ...]] = {}
        self.n_rows = 0
        #: Lines of the journal that could not be read, as far as it says so.
        self.defects: list[str] = []
        self._origins: set[str] = set()
        self._lines: dict[str, _Line] = {}
        #: Clocks as of the latest row, once they have been asked for.
        self._clock_of: dict[str, Clock] | None = None
        self._zero_s: float | None = None
        #: What views worked out and may keep: key -> (what it was made of, result).
        self._kept: dict[Hashable, tuple[Hashable, Any]] = {}

    def feed(self, rows: Iterable[Mapping[str, Any]]) -> Delta:
        """Take in rows, and say what they changed."""
        n = self.n_rows
        changed: set[str] = set()
        self._clock_of = self._zero_s = None
        for row in rows:
            self.n_rows += 1
            line = self._lines.get(row.get("s", ""))
            if line is None:
                line = self._line(str(row.get("s", "")))
            kind, t = row.get("r", ""), row.get("t")
            if t is not None and line.handlers:
                line.saw(t)
            if kind in _OF_STREAMS:
                self._of_stream(line.name, kind, row)
            handler = line.handlers.get(kind)
            if handler is not None:
                changed.update(handler(row, line.latest))
        return Delta(n_rows=self.n_rows - n, now_s=self.now_s, changed=frozenset(changed))

    def _of_stream(self, stream: str, kind: str, row: Mapping[str, Any]) -> None:
        if kind == "StreamOpened":
            self._origins.add(str(row.get("origin", "measured")))
        elif kind == "ClockRelated":
            self.clocks.related(stream, str(row["clock"]), float(row["offset_s"]), float(row["error_s"]))
        elif kind == "SeatsPlanned":
            if row["rates"]:
                self.rates[str(row["device"])] = tuple(map(float, row["rates"]))
        else:
            self.defects.append(str(row.get("text", "")))

    def _line(self, stream: str) -> "_Line":
        named = split_stream(stream)
        handlers: Handlers
        if stream.startswith("seats-"):
            handlers = {}  # on the pool's clock; slots that come and go are told by the pool
        elif stream.startswith("warmup-"):  # a simulated task that has nothing but its warm-up
            self.clocks.pool(stream)
            handlers = self._warmup(stream.removeprefix("warmup-"), 1, stream)
        elif named is None:
            handlers = self.pool.stream(stream)
            if self._details:
                handlers = _together(handlers, self.reasons.pool())
        else:
            task = self.tasks.get(named[0])
            if task is None:
                task = self.tasks[named[0]] = TaskFold(named[0], self.clocks, self._fences)
            handlers = task.stream(stream, named[1])
            if self._details:
                handlers = _together(handlers, self._warmup(*named, stream), self.reasons.task(task.name))
        line = self._lines[stream] = _Line(name=stream, handlers=handlers)
        return line

    def _warmup(self, task: str, attempt: int, stream: str) -> Handlers:
        return self.warmups.setdefault(task, {}).setdefault(attempt, WarmupFold(stream)).handlers()

    @property
    def _timed(self) -> list["_Line"]:
        """The streams that have said when something was."""
        return [line for line in self._lines.values() if line.timed]

    # -- what all views ask ------------------------------------------------------------------------------------------
    @property
    def origin(self) -> str:
        """``measured``, ``simulated`` or ``emulated``: the weakest of what the streams say."""
        return next((one for one in _ORIGINS if one in self._origins), "measured")

    def clock_of(self) -> dict[str, Clock]:
        """Return the clock of each stream that has said something."""
        if self._clock_of is None:
            self._clock_of = self.clocks.all(sorted(line.name for line in self._timed))
        return self._clock_of

    @property
    def zero_s(self) -> float:
        """First second of any stream on the common line: zero of every time axis."""
        if self._zero_s is None:
            clocks = self.clock_of()
            self._zero_s = min((clocks[line.name].offset_s + line.first for line in self._timed), default=0.0)
        return self._zero_s

    @property
    def now_s(self) -> float:
        """Newest second of any stream, counted from :attr:`zero_s`."""
        clocks = self.clock_of()
        newest = max((clocks[line.name].offset_s + line.latest for line in self._timed), default=0.0)
        return newest - self.zero_s

    @property
    def error_s(self) -> float:
        """Largest known error of a task's clock; 0 if there is no task, infinite if one is not related at all."""
        return max((clock.error_s for clock in self.clock_of().values()), default=0.0)

    def latest(self, stream: str) -> float:
        """Return the newest second of a stream, on its own clock."""
        line = self._lines.get(stream)
        return line.latest if line is not None and line.timed else 0.0

    def keep(self, key: Hashable, of: Hashable, make: Callable[[], _Made]) -> _Made:
        """Return what `make` returns, anew only if `of` is not what it was when it was last asked for by `key`."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != of:
            kept = self._kept[key] = (of, make())
        made: _Made = kept[1]
        return made

    def task_names(self) -> tuple[str, ...]:
        """Return the names of all tasks, in the order that gives them colour and letter.

        First as the pool first heard of them, then as the run names them, then by name: the order of two streams in a
        file or on a wire does not matter.
        """
        spoken = [self.pool.short(name) for name in self.pool.tasks]
        return tuple(dict.fromkeys([*spoken, *self.named, *sorted({*self.tasks, *self.warmups})]))

    def clock_note(self) -> tuple[str, ...]:
        """Say how well the streams' clocks are known, if that matters."""
        if math.isinf(self.error_s):
            return ("a task's clock could not be related to the pool's: its marks may be shifted",)
        if self.error_s > 0:
            return (f"clocks of the streams agree within {self.error_s * 1000:.2g} ms",)
        return ()


def fold_of(source: Journal | Fold, until_s: float | None = None) -> Fold:
    """Return the columns of a journal, or of its part up to `until_s`.

    Parameters
    ----------
    source
        A journal, or columns that are there already.
    until_s
        Seconds from the run's first event; None: all of it.  Streams are cut on the clocks that the whole journal
        gives, so two rows that happened together stay together.

    Raises
    ------
    ValueError
        If `until_s` is asked of a Fold, which has forgotten its rows.
    """
    if isinstance(source, Fold):
        if until_s is not None:
            raise ValueError("until_s needs a Journal: a Fold has forgotten its rows")
        return source
    fold = Fold()
    fold.feed(rows_of(source))
    if until_s is None:
        return fold
    clocks = fold.clock_of()
    prefix = Fold(clocks=clocks, tasks=fold.task_names())
    prefix.feed(_until(source, clocks, fold.zero_s + until_s))
    return prefix


def _until(journal: Journal, clocks: Mapping[str, Clock], end_s: float) -> Iterator[dict[str, Any]]:
    for row in rows_of(journal):
        clock = clocks.get(row["s"])
        if clock is not None and "t" in row and row["t"] + clock.offset_s > end_s:
            # What follows in this stream happened later still, decisions included.
            clocks = {name: one for name, one in clocks.items() if name != row["s"]}
            continue
        if clock is not None or row["r"] == "StreamOpened":
            yield row
