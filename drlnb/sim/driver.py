"""Host machines on a virtual clock.

A heap of (time, counter, call): ties are served in the order in which they were set, so a run is a function of its
seed.  A hosted machine's event is journalled, then handled; then each command goes to the table of effects.  Nothing
here, nor in the effects, decides: the machines of :mod:`drlnb.planning` do, as in a real run.
"""

import heapq
import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import drlnb
from drlnb.planning.machine import AnyMachine
from drlnb.records.base import Command, Event, Record
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.journal import Stream, StreamOpened

__all__ = ["Clock", "Effect", "Effects", "Hosted"]

#: What carries out a command of its kind.
Effect = Callable[[Any], None]
#: What carries out each kind.
Effects = Mapping[type[Command], Effect]

#: Digits of an event's time: microseconds.
_DIGITS = 6


class Clock:
    """Virtual time in seconds, and the calls that wait for theirs."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._order = count()

    def after(self, delay_s: float, call: Callable[..., object], *arguments: object) -> None:
        """Call something so many seconds from now."""
        heapq.heappush(self._heap, (self.now + delay_s, next(self._order), call, arguments))

    def run(self, until_s: float = math.inf) -> None:
        """Make the calls in order until none is left, or the next one is later than `until_s`."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now, _, call, arguments = heapq.heappop(self._heap)
            call(*arguments)


class Hosted:
    """One machine on the clock, with its journal.

    Parameters
    ----------
    machine
        The machine.
    kind
        ``round`` or ``pool``.
    config
        What a fresh machine needs to speak alike.
    stream
        Name of its journal.
    effects
        What carries out each kind of command.
    watch
        Called with every record as it is journalled.
    validate
        Check the machine's invariants after each event.
    """

    def __init__(
        self,
        clock: Clock,
        machine: AnyMachine,
        *,
        kind: str,
        config: Mapping[str, object],
        stream: str,
        effects: Effects,
        watch: Callable[[Record], None] | None = None,
        validate: bool = False,
    ) -> None:
        self.machine = machine
        self._watch = watch
        self.records: list[Record] = []
        self._clock = clock
        self._effects = effects
        self._validate = validate
        self._deadlines: dict[str, int] = {}
        self._closed = False
        #: The process stands still; what reaches it waits here, in its order: the kind of event, if it is one.
        self.frozen = False
        self._waiting: list[tuple[type[Event] | None, Callable[[], object]]] = []
        self._header = StreamOpened(
            stream=stream, machine=kind, config=config, origin="simulated", version=drlnb.__version__
        )

    @property
    def stream(self) -> Stream:
        """The journal so far."""
        header = self._header
        return Stream(header=header, records=tuple(self.records), torn=False, source=header.stream)

    def feed(self, kind: type[Event], **values: object) -> tuple[Record, ...]:
        """Journal an event at the present time, let the machine answer, start what it commands; return the answer.

        A dead process gets nothing; for one that stands still the event waits.
        """
        if self._closed:
            return ()
        if self.frozen:
            self._waiting.append((kind, partial(self.feed, kind, **values)))
            return ()
        event = kind(t=round(self._clock.now, _DIGITS), **values)
        self._journal(event)
        answer = self.machine.handle(event)
        for record in answer:
            self._journal(record)
        if self._validate:
            self.machine.check()
        for record in answer:
            if isinstance(record, SetDeadline):
                self._set_deadline(record)
            elif isinstance(record, Command):
                self._effects[type(record)](record)
        return answer

    def _journal(self, record: Record) -> None:
        self.records.append(record)
        if self._watch is not None:
            self._watch(record)

    def when_up(self, call: Callable[..., object], *arguments: object) -> None:
        """Call something in the process: now, when it goes on, or never."""
        if self.frozen:
            self._waiting.append((None, partial(call, *arguments)))
        elif not self._closed:
            call(*arguments)

    def close(self) -> None:
        """End the process."""
        self._closed, self.frozen = True, False
        self._waiting.clear()

    def has_waiting(self, kinds: tuple[type[Event], ...]) -> bool:
        """Whether an event of one of these kinds waits for a process that stands still."""
        return any(kind in kinds for kind, _ in self._waiting)

    def thaw(self, *first: tuple[type[Event], Mapping[str, object]]) -> None:
        """Resume the process: it gets some events, then what has waited, in its order."""
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        for kind, values in first:
            self.feed(kind, **values)
        for _, call in waiting:
            if not self._closed:
                call()

    def feed_after(self, delay_s: float, kind: type[Event], **values: object) -> None:
        """Feed an event so many seconds from now."""
        self._clock.after(delay_s, partial(self.feed, kind, **values))

    def _set_deadline(self, command: SetDeadline) -> None:
        number = self._deadlines[command.name] = self._deadlines.get(command.name, 0) + 1
        self._clock.after(command.after_s, self._pass, command.name, number)

    def _pass(self, name: str, number: int) -> None:
        if self._deadlines[name] == number:  # else it was replaced
            self.feed(DeadlinePassed, name=name)
