"""Decide the starts of a run's collectors again under another setting of warm-up, on its own events: open loop.

The machine gets what it got in the run, at the same times, with another setting from the beginning on.  Only its
starts are pretended: each takes what it took in the run, or what a start of its kind (node, start mode, as many at
once) took there.  What a start comes to is then plain: a collector that is started u seconds after sending and takes S
is late by ``(u + S - X)+`` and idle for ``(X - u - S)+``, X being the recorded gap until the parameters came.

The gaps stay as they were, whatever the starts do to the rounds after them: that is what "open loop" leaves out.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean

from drlnb.planning.replay import fresh_machine
from drlnb.planning.round.machine import RoundMachine
from drlnb.planning.warmup import WarmupMachine
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records.base import Event, Record, shared
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.columns.warmup import (
    CollectorReady,
    RevokeStart,
    StartCollector,
    WarmupMeasured,
    WarmupPlanned,
)
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Stream
from drlnb.records.round import ExperienceArrived
from drlnb.sim.recorded.start_durations import StartDurations
from drlnb.sim.recorded.task import MOST

__all__ = ["PlannedRound", "RecordedStarts"]

#: Keys that ask for starts of another kind.
_MODES = ("warmup.collector_mode", "warmup.start_mode")
#: Methods by which the round machine changes a warm-up machine.
_CHANGES = ("handle", "drop", "last", "end")
_DIGITS = 6
#: Newest events of a task that are decided again; older ones make the state that they begin with.
_EVENTS = 50_000
#: Two times that differ by less are one: each is rounded to microseconds.
_SAME_S = 2e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRound:
    """What was planned for the collectors that had sent a round, and what that comes to; times in seconds."""

    round: int
    #: Of the collector that had sent first: ``cold``, ``start``, ``keep`` or ``end``, by which rule, and why.
    action: str
    planner: str
    reason: str
    #: Planned start after sending and lead before the arrival that was expected, means over the collectors that have
    #: them; None: no time was planned.
    start_after_s: float | None
    lead_s: float | None
    #: From the parameters' arrival until the last collector is ready, and mean time that one is ready before; None: the
    #: round was disturbed, or the journal ends before it does.
    wait_s: float | None
    idle_s: float | None


def _record(machine: WarmupMachine, name: str, calls: list[tuple[str, object]]) -> None:
    """Keep the calls of a machine's method from now on: the method's name, and the argument."""
    method = getattr(machine, name)

    def call(argument: object) -> object:
        calls.append((name, argument))
        return method(argument)

    setattr(machine, name, call)


class RecordedStarts:
    """The calls of one task's warm-up machine, to be decided again.

    Parameters
    ----------
    stream
        The journal of one attempt at a task, or of a warm-up machine alone.

    Raises
    ------
    JournalError
        If its machine cannot be built.
    """

    def __init__(self, stream: Stream) -> None:
        self._config = stream.header.config
        self.task = str(self._config["task"])
        self._snapshot = stream.header.snapshot
        self._calls: list[tuple[str, object]] = []
        #: What the user changed about warm-up in the run, in its order.
        self.changes: list[SettingChanged] = []
        if stream.header.machine == "round":
            self._repeat(stream)
        else:
            self._calls = [("handle", event) for event, _ in stream.answers()]
        self.changes += _changes(self._calls)
        measured = deque(stream.each(WarmupMeasured), MOST)
        self.measured: dict[int, WarmupMeasured] = {each.round - 1: each for each in measured}
        self._durations = StartDurations(self._events)

    def _repeat(self, stream: Stream) -> None:
        """Feed the round machine its events again: it calls the warm-up machine as it did in the run.

        Of a long run the newest calls are kept, and what the machine was before them: it may be larger than memory.
        """
        machine = fresh_machine(stream.header)
        assert isinstance(machine, RoundMachine)
        warmup = machine.state.warmup
        for name in _CHANGES:
            _record(warmup, name, self._calls)
        n_older = sum(1 for _ in stream.answers()) - _EVENTS
        events = (event for event, _ in stream.answers())
        for event in islice(events, max(0, n_older)):
            machine.handle(event)
            self.changes += _changes(self._calls)
            self._calls.clear()
        self._config, self._snapshot = warmup.config, warmup.snapshot()
        for event in events:
            machine.handle(event)

    @property
    def _events(self) -> list[Event]:
        return [event for name, event in self._calls if name == "handle" and isinstance(event, Event)]

    def decided(self, key: str = "", value: object = None, *, settled: bool = False) -> tuple[PlannedRound, ...]:
        """Decide again, with one setting as it is given; what the user changed about it in the run is passed over.

        Parameters
        ----------
        key
            ``warmup.NAME``; empty: as it was.
        value
            Its value, from the first round on.
        settled
            Whatever the user changed in the run counts from the first round on, too: what is in force at its end.

        Raises
        ------
        ValueError
            If the task cannot have the value, or asks for starts of a kind of which the journal holds none.
        """
        machine = WarmupMachine(self._config)
        if self._snapshot is not None:
            machine.restore(self._snapshot)
        passed = [change for change in self.changes if settled or change.key == key]
        early = [(change.key, change.value) for change in passed if settled]
        # A start of the mode that holds anyway is what the run had there, however that names it.
        others = {change.key for change in passed}
        wanted = [*early, (key, value)] if key else early
        strict = any(
            name in _MODES and (name in others or getattr(machine.state.settings, name.partition(".")[2], None) != mode)
            for name, mode in wanted
        )
        again = _Again(machine, self._durations, strict=strict)
        first = next((event.t for event in self._events), 0.0)
        for k, (name, changed) in enumerate(wanted if self._calls else ()):
            change = SettingChanged(t=first, key=name, value=changed, task=self.task)
            again.change(change, refused_again=k < len(early))
        for name, argument in self._calls:
            if argument not in passed:
                again.repeat(name, argument)
        return again.end()


def _changes(calls: Iterable[tuple[str, object]]) -> list[SettingChanged]:
    changes = [argument for _, argument in calls if isinstance(argument, SettingChanged)]
    return [change for change in changes if change.key.startswith("warmup.")]


@dataclass(slots=True, kw_only=True)
class _Start:
    """A start that was commanded: when it happens, and when it is done."""

    command: StartCollector
    begins_t: float
    #: Nothing before it has begun.
    event: CollectorReady | None = None


class _Again:
    """A machine that is fed a recorded run, with starts of its own."""

    def __init__(self, machine: WarmupMachine, durations: StartDurations, *, strict: bool) -> None:
        self.machine = machine
        self._durations = durations
        self._strict = strict
        #: Collector -> its start; (round, collector) -> when it was ready.
        self._starts: dict[int, _Start] = {}
        self._ready_t: dict[tuple[int, int], float] = {}
        self._plans: dict[int, dict[int, WarmupPlanned]] = {}
        self._outcomes: dict[int, tuple[float, float] | None] = {}
        self._trace: RoundTrace | None = None

    def change(self, event: SettingChanged, *, refused_again: bool = False) -> None:
        """Change a setting before anything else happens; with `refused_again`, what is refused was so in the run.

        Raises
        ------
        ValueError
            If the machine refuses it.
        """
        for record in self.machine.handle(event):
            if isinstance(record, RequestRefused) and not refused_again:
                raise ValueError(record.reason)

    def repeat(self, name: str, argument: object) -> None:
        """Repeat a call of the run, after what the machine's own starts have come to until then."""
        if name != "handle":
            self._apply(getattr(self.machine, name)(argument) or (), self.machine.state.t)
            self._forget()
            return
        event = argument
        assert isinstance(event, Event)
        if isinstance(event, CollectorReady) and event.round:
            return  # a start of the run; ours are pretended
        self._until(event.t)
        if isinstance(event, ExperienceArrived) and (self._trace is None or event.round > self._trace.round):
            self._close(event.t)
        self._feed(event)
        self._forget()
        self._trace = self.machine.state.trace

    def end(self) -> tuple[PlannedRound, ...]:
        """Return what was planned in each round."""
        self._close(self.machine.state.t)
        return tuple(self._planned(round_) for round_ in sorted(self._plans))

    # ------------------------------------------------------------------ the machine and its starts
    def _forget(self) -> None:
        """Forget starts of collectors that were lost: they are started anew, as they were in the run."""
        members = self.machine.state.members
        self._starts = {i: start for i, start in self._starts.items() if members[i].status != "absent"}

    def _feed(self, event: Event) -> None:
        self._apply(self.machine.handle(event), event.t)

    def _apply(self, records: Sequence[Record], t: float) -> None:
        for record in records:
            if isinstance(record, WarmupPlanned):
                self._plans.setdefault(record.round, {}).setdefault(record.collector, record)
            elif isinstance(record, StartCollector):
                former = self._starts.get(record.collector)
                if former is None or former.event is None or former.command.round != record.round:
                    self._starts[record.collector] = _Start(command=record, begins_t=t + record.after_s)
            elif isinstance(record, RevokeStart):
                self._starts.pop(record.collector, None)

    def _until(self, t: float) -> None:
        """Begin and end starts up to a time; what follows from a start in the run has that start's time."""
        by_t = t + _SAME_S
        while True:
            begins = [(s.begins_t, 0, i) for i, s in self._starts.items() if s.event is None and s.begins_t <= by_t]
            done = [(s.event.t, 1, i) for i, s in self._starts.items() if s.event is not None and s.event.t <= by_t]
            if not begins and not done:
                return
            _, is_done, i = min(begins + done)
            self._done(i, t) if is_done else self._begin(i)

    def _begin(self, i: int) -> None:
        start = self._starts[i]
        mode = self.machine.state.settings.start_mode
        node = start.command.node
        at_once = sum(member.node == node for member in self.machine.state.members)
        took_s, n_starting, kind = self._durations.of(start.command, mode, at_once, strict=self._strict)
        running = 1 + sum(s.event is not None and s.command.node == node for s in self._starts.values())
        start.event = CollectorReady(
            t=round(start.begins_t + took_s, _DIGITS),
            collector=i,
            node=node,
            start_s=took_s,
            n_starting=n_starting or running,
            start_mode=kind,
            round=start.command.round,
        )

    def _done(self, i: int, t: float) -> None:
        """Feed the machine that a collector is ready, at the latest at `t`."""
        event = self._starts.pop(i).event
        assert event is not None
        self._ready_t[event.round, i] = event.t
        at = max(self.machine.state.t, min(t, event.t))
        self._feed(replace(event, t=at))

    # ------------------------------------------------------------------ a round
    def _close(self, t: float) -> None:
        """End a round: in the run the next one has begun, so whoever is still starting is ready now."""
        while self._starts:
            i = min(self._starts, key=lambda collector: self._starts[collector].begins_t)
            if self._starts[i].event is None:
                self._begin(i)
            self._done(i, t)
        trace = self._trace
        if trace is not None:
            self._outcomes[trace.round] = self._outcome(trace)

    def _outcome(self, trace: RoundTrace) -> tuple[float, float] | None:
        """Return wait and idle time of a whole round; who was not stopped, and does not keep its slot, is neither."""
        if trace.broken or not trace.complete:
            return None
        out = [i for i in range(trace.n_workers) if i not in trace.kept and (trace.round + 1, i) not in self._ready_t]
        if out and self.machine.state.starts_needed:
            return None  # taken back, or the task ended
        early, late = [], [0.0]
        for i in range(trace.n_workers):
            ready_t = trace.sent_t[i] if i in trace.kept else self._ready_t.get((trace.round + 1, i))
            ahead_s = 0.0 if ready_t is None else trace.arrival_t[i] - ready_t
            early.append(max(0.0, ahead_s))
            late.append(max(0.0, -ahead_s))
        return round(max(late), _DIGITS), round(fmean(early), _DIGITS)

    def _planned(self, round_: int) -> PlannedRound:
        plans = list(self._plans[round_].values())
        means = {name: _mean([getattr(plan, name) for plan in plans]) for name in ("start_after_s", "lead_s")}
        wait_s, idle_s = self._outcomes.get(round_) or (None, None)
        return PlannedRound(**shared(plans[0], PlannedRound) | means, wait_s=wait_s, idle_s=idle_s)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known; None of none."""
    known = [value for value in values if value is not None]
    return round(fmean(known), _DIGITS) if known else None
