"""Define the records that every machine uses: deadlines, settings, clocks."""

from dataclasses import field
from typing import Any, ClassVar

from drlnb.records.base import Command, Event, Facts, Record
from drlnb.records.effect import AT_ONCE
from drlnb.records.ids import Fence


class SetDeadline(Command):
    """Feed :class:`DeadlinePassed` after so many seconds; the same name again replaces the former deadline."""

    name: str
    after_s: float


class DeadlinePassed(Event):
    """A deadline that the machine commanded has passed."""

    name: str


class LoopLagged(Event):
    """The owner's loop stood still; silence during that time is nobody's fault."""

    lag_s: float


class ClockRelated(Event):
    """The stream's clock was held against another one's; for pictures alone, no machine decides by it."""

    #: The other stream: a pool's.
    clock: str
    #: What must be added to this stream's seconds to have the other's.
    offset_s: float
    #: Half of the round trip that it was measured by: the offset is no further off.
    error_s: float


class SlotWork(Command):
    """Work under a lease, for the executor of a slot of it; the root of such commands."""

    fence: Fence
    slot: str


class GradientWork(SlotWork):
    """Work on the gradient of a round; the root of such commands."""

    round: int
    #: Version that the executor must start from; it loads the training state if it does not hold it.
    version: int
    #: Environment steps of the task after this round: schedules are read there.
    after_timesteps: int
    #: Settings of the algorithm that the user changed, as this round has them: ``rl.NAME`` -> value.
    settings: Facts = field(default_factory=dict)
    #: So many times as long as it takes shall its computing take: an emulated slow member.
    slowed: float = 1.0


class SettingChanged(Event):
    """A user changed a setting of a running task (`task`) or of the pool (``None``)."""

    key: str
    value: Any
    task: str | None
    #: From when on it counts, in words that end a sentence: one of :mod:`drlnb.records.effect`.
    counts: str = AT_ONCE


class Defect(Record):
    """Something went wrong beside the training; streamed to whoever watches, never written to a journal."""

    letter: ClassVar[str] = "n"

    text: str


class JournalFailed(Record):
    """A stream can be written no more; streamed to whoever watches."""

    letter: ClassVar[str] = "n"

    text: str
