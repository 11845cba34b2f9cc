"""Define the records that every machine uses: deadlines, settings, clocks."""

from dataclasses import dataclass
from typing import Any, ClassVar

from drlnb.records.base import Command, Event, Record
from drlnb.records.effect import AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDeadline(Command):
    """Feed :class:`DeadlinePassed` after so many seconds; the same name again replaces the former deadline."""

    name: str
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed(Event):
    """A deadline that the machine commanded has passed."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLagged(Event):
    """The owner's loop stood still; silence during that time is nobody's fault."""

    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRelated(Event):
    """The stream's clock was held against another one's; for pictures alone, no machine decides by it."""

    #: The other stream: a pool's.
    clock: str
    #: What must be added to this stream's seconds to have the other's.
    offset_s: float
    #: Half of the round trip that it was measured by: the offset is no further off.
    error_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged(Event):
    """A user changed a setting of a running task (`task`) or of the pool (``None``)."""

    key: str
    value: Any
    task: str | None
    #: From when on it counts, in words that end a sentence: one of :mod:`drlnb.records.effect`.
    counts: str = AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect(Record):
    """Something went wrong beside the training; streamed to whoever watches, never written to a journal."""

    letter: ClassVar[str] = "n"

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFailed(Record):
    """A stream can be written no more; streamed to whoever watches."""

    letter: ClassVar[str] = "n"

    text: str
