"""Fold a run's journal into columns, record by record, in any cutting: in pieces is the same as at once.

Streams may come one after the other or interleaved; only the order within a stream counts.  Decisions and commands
have no time of their own: they happened at the event before them.  What is kept is the folded state, no record.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from drlnb.records.base import Event, Record
from drlnb.records.columns.batching import MemberSlowed
from drlnb.records.common import ClockRelated, Defect, JournalFailed
from drlnb.records.journal import Journal, StreamOpened
from drlnb.records.round import ENDS
from drlnb.views.folds.batching import BatchFold
from drlnb.views.folds.clocks import Clock, Clocks
from drlnb.views.folds.distribution import DistributionFold
from drlnb.views.folds.entries import Entry, Rules, entries_of, folds, handlers_of, split_stream
from drlnb.views.folds.placement import PlacementFold
from drlnb.views.folds.pool import PoolFold
from drlnb.views.folds.swapping import SwapFold
from drlnb.views.folds.task import TaskFold
from drlnb.views.folds.warmup import WarmupFold

__all__ = ["Fold", "acts", "fold_of"]

_Made = TypeVar("_Made")

#: What counts as the weaker origin when streams differ.
_ORIGINS = ("emulated", "simulated", "measured")


@dataclass(slots=True)
class _Line:
    """One stream: what takes in its records, and the first and latest second of its own clock."""

    name: str
    handlers: Mapping[type[Record], Sequence[Callable[..., object]]]
    #: NaN before its first event.
    first: float = math.nan
    latest: float = 0.0

    @property
    def timed(self) -> bool:
        """Whether it has had an event."""
        return not math.isnan(self.first)

    def saw(self, t: float) -> None:
        """Move the latest second."""
        self.latest = max(self.latest, float(t)) if self.timed else float(t)
        self.first = self.first if self.timed else float(t)


@folds("stream")
class Fold:
    """Columns of one run, growing with its journal.

    Parameters
    ----------
    tasks
        Names of the run's tasks, if known: those that no record has named yet are shown, too.
    groups
        Task -> group, whose curves are drawn with a band.
    details
        Keep what only the pictures of warm-up need, too; a third of the work.
    """

    def __init__(
        self,
        *,
        tasks: Iterable[str] = (),
        groups: Mapping[str, str] | None = None,
        details: bool = True,
    ) -> None:
        self._details = details
        self.named = tuple(tasks)
        self.groups = dict(groups or {})
        self.clocks = Clocks()
        self.pool = PoolFold()
        self.tasks: dict[str, TaskFold] = {}
        #: What became of the collectors of each task between two rounds, by task and attempt.
        self.warmups: dict[str, dict[int, WarmupFold]] = {}
        #: How versions reached hosts, by task; of a publisher alone under its stream's name.
        self.distributions: dict[str, DistributionFold] = {}
        #: Training steps under swap plans, likewise.
        self.swappings: dict[str, SwapFold] = {}
        #: Splits among learners and among collectors, likewise.
        self.batchings: dict[str, BatchFold] = {}
        #: Which slots gangs had, and why.
        self.placement = PlacementFold()
        self.n_rows = 0
        #: Lines of the journal that could not be read, as far as it says so.
        self.defects: list[str] = []
        self._origins: set[str] = set()
        self._lines: dict[str, _Line] = {}
        #: Clocks as of the latest record, once they have been asked for.
        self._clock_of: dict[str, Clock] | None = None
        self._zero_s: float | None = None
        #: What views worked out and may keep: key -> (what it was made of, result).
        self._kept: dict[Hashable, tuple[Hashable, object]] = {}

    def feed(self, entries: Iterable[Entry]) -> None:
        """Fold entries in."""
        self._clock_of = self._zero_s = None
        for stream, record in entries:
            self.n_rows += 1
            line = self._lines.get(stream) or self._opened(stream)
            if isinstance(record, Event):
                line.saw(record.t)
            for handler in line.handlers.get(type(record), ()):
                handler(record, line.latest)

    def _opened(self, stream: str) -> _Line:
        """Return a stream that is new, with the handlers of its kind."""
        named = split_stream(stream)
        rules = [*handlers_of(self, stream)]
        if stream.startswith("warmup-"):  # a simulated task that has nothing but its warm-up
            self.clocks.pool(stream)
            rules += self._warmup(stream.removeprefix("warmup-"), 1, stream)
        elif stream.startswith("distribution"):
            rules += handlers_of(self.distributions.setdefault(stream, DistributionFold()))
        elif stream.startswith("swapping"):  # one device alone, as the simulator pretends it
            rules += handlers_of(self.swappings.setdefault(stream, SwapFold()))
        elif stream.startswith("batching"):  # a gang alone, likewise
            rules += handlers_of(self.batchings.setdefault(stream, BatchFold()))
        elif named is not None:
            task = self.tasks.setdefault(named[0], TaskFold(named[0]))
            rules += task.stream(stream, named[1])
            rules += handlers_of(self.distributions.setdefault(task.name, DistributionFold()))
            rules += handlers_of(self.swappings.setdefault(task.name, SwapFold()))
            rules += handlers_of(self.batchings.setdefault(task.name, BatchFold()))
            if self._details:
                rules += self._warmup(*named, stream)
        else:
            self.clocks.pool(stream)
            rules += [*self.pool.stream(stream), *handlers_of(self.placement, stream)]
        handlers: dict[type[Record], list[Callable[..., object]]] = defaultdict(list)
        for kind, handler in rules:
            handlers[kind].append(handler)
        line = self._lines[stream] = _Line(name=stream, handlers=handlers)
        return line

    def _warmup(self, task: str, attempt: int, stream: str) -> Rules:
        return handlers_of(self.warmups.setdefault(task, {}).setdefault(attempt, WarmupFold(stream)))

    # -- records of any stream ---------------------------------------------------------------------------------------
    def _origin(self, stream: str, header: StreamOpened, t: float) -> None:
        self._origins.add(header.origin)

    def _slowed(self, stream: str, event: MemberSlowed, t: float) -> None:
        self._origins.add("emulated")

    def _related(self, stream: str, event: ClockRelated, t: float) -> None:
        self.clocks.related(stream, event.clock, event.offset_s, event.error_s)

    def _defect(self, stream: str, notice: Defect | JournalFailed, t: float) -> None:
        self.defects.append(notice.text)

    # -- what all views ask ------------------------------------------------------------------------------------------
    @property
    def origin(self) -> str:
        """``measured``, ``simulated`` or ``emulated``: the weakest of what the streams say."""
        return next((origin for origin in _ORIGINS if origin in self._origins), "measured")

    @property
    def _timed(self) -> list[_Line]:
        """The streams that have had an event."""
        return [line for line in self._lines.values() if line.timed]

    def clock_of(self) -> dict[str, Clock]:
        """Return the clock of each stream that has had an event."""
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
        if self.origin == "simulated":  # one virtual clock
            return 0.0
        return max((clock.error_s for clock in self.clock_of().values()), default=0.0)

    def offset_s(self, stream: str) -> float:
        """Return what must be added to a stream's seconds to have those since :attr:`zero_s`."""
        clock = self.clock_of().get(stream)
        return (clock.offset_s if clock else 0.0) - self.zero_s

    def latest(self, stream: str) -> float:
        """Return the newest second of a stream, on its own clock."""
        line = self._lines.get(stream)
        return line.latest if line is not None and line.timed else 0.0

    def keep(self, key: Hashable, of: Hashable, make: Callable[[], _Made]) -> _Made:
        """Return what `make` returns, anew only if `of` is not what it was when it was last asked for by `key`."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != of:
            kept = self._kept[key] = (of, make())
        return cast(_Made, kept[1])

    def numbers(self) -> Mapping[str, int]:
        """Return the numbers of the run's own tasks, as their streams or the run's list say."""
        configs = {name: task.latest.config for name, task in self.tasks.items()}
        said = {name: int(config["number"]) for name, config in configs.items() if "number" in config}
        return {**{name: i for i, name in enumerate(self.named)}, **said}

    def task_names(self) -> tuple[str, ...]:
        """Return the names of all tasks, in the order of their rows and columns of numbers.

        First as the pool named them, then as the run names them, then by name: the order of two streams in a file or
        on a wire does not matter.
        """
        pooled = [self.pool.short(name) for name in self.pool.tasks]
        return tuple(dict.fromkeys([*pooled, *self.named, *sorted({*self.tasks, *self.warmups})]))

    def states(self) -> dict[str, str]:
        """Return what each task does now, in one word, so that who computes and who waits is the same in every place.

        A task's own stream and the pool's tell of a lease at different moments: the pool's word counts for whether a
        slot is held or waited for, once it has said anything.
        """
        states = {name: task.state for name, task in self.tasks.items()}
        if not any(self._lines[name].timed for name in self.pool.streams):
            return states
        holding, asking = self.pool.engaged()
        for name, state in states.items():
            if state in {*ENDS, "paused"}:
                continue
            if name in asking - holding:
                states[name] = "waiting"
            elif state in {"waiting", "computing"}:
                without = "collecting" if self.tasks[name].acts else "waiting"
                states[name] = "computing" if name in holding else without
        return states

    def clock_note(self) -> tuple[str, ...]:
        """Return how well the streams' clocks are known, in words, if that matters."""
        if math.isinf(self.error_s):
            return ("a task's clock could not be related to the pool's: its marks may be shifted",)
        if self.error_s > 0:
            return (f"clocks of the streams agree within {self.error_s * 1000:.2g} ms",)
        return ()


def acts(fold: Fold) -> bool:
    """Whether any task of a run has environments, as far as is known."""
    return not fold.tasks or any(task.acts for task in fold.tasks.values())


def fold_of(source: Journal | Fold) -> Fold:
    """Return the columns of a journal, or those that are there already."""
    if isinstance(source, Fold):
        return source
    fold = Fold()
    fold.feed(entries_of(source))
    return fold
