"""Replay a journal: feed its events to fresh machines, which must decide the same again."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import tee, zip_longest

from drlnb.planning.distribution import DistributionMachine
from drlnb.planning.leasing import LeasingSettings
from drlnb.planning.machine import AnyMachine
from drlnb.planning.placement.jobs.machine import PlacementMachine
from drlnb.planning.pool import PoolMachine
from drlnb.planning.recorded import RecordedPlanners
from drlnb.planning.registry import Answer, Planners
from drlnb.planning.round.machine import RoundMachine
from drlnb.planning.swapping.machine import SwapMachine
from drlnb.records.base import Event, Record
from drlnb.records.errors import InvalidTransition, JournalError
from drlnb.records.journal import Stream, StreamOpened

__all__ = ["ReplayResult", "fresh_machine", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What a replay found."""

    stream: str
    n_events: int
    n_records: int
    #: Records by class name.
    counts: Mapping[str, int] = field(default_factory=dict)
    #: The first difference in words; ``None`` if everything was decided again exactly.
    difference: str | None = None


def fresh_machine(header: StreamOpened, planners: Planners | None = None) -> AnyMachine:
    """Build the machine that a stream's header describes, with its planners.

    Raises
    ------
    JournalError
        If the machine is unknown, or its configuration is not one of this version.
    """
    try:
        if header.machine == "round":
            machine: AnyMachine = RoundMachine(header.config, planners)
        elif header.machine == "pool":
            settings = LeasingSettings.from_mapping(header.config["settings"])
            machine = PoolMachine(settings, header.config["epoch"], lambda task: planners or Planners())
        elif header.machine == "distribution":
            machine = DistributionMachine(header.config, planners)
        elif header.machine == "placement":
            machine = PlacementMachine(header.config, planners)
        elif header.machine == "swapping":
            machine = SwapMachine(header.config)
        else:
            raise JournalError(f"{header.stream}: unknown machine {header.machine!r}")
        if header.snapshot is not None:
            machine.restore(header.snapshot)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, JournalError):
            raise
        raise JournalError(f"{header.stream}: cannot build its machine: {error!r}") from None
    return machine


def replay(stream: Stream) -> ReplayResult:
    """Feed a stream's events to a fresh machine and compare what it answers, record by record.

    The answer to the last event may lack its end, for the process may have been killed while it wrote; what is there
    must agree.
    """
    planners = RecordedPlanners()
    machine = fresh_machine(stream.header, planners)
    counts: Counter[str] = Counter()
    n_events = 0
    difference: str | None = None
    answers, later = tee(stream.answers())
    next(later, None)
    for n_events, ((event, journalled), following) in enumerate(zip_longest(answers, later), 1):
        counts.update(type(record).__name__ for record in (event, *journalled))
        planners.answer = Answer(journalled)
        difference = _difference(machine, event, journalled, may_be_short=following is None)
        if difference:
            difference = f"{stream.source}: event {n_events} ({type(event).__name__}, t={event.t:.6f}): {difference}"
            break
    return ReplayResult(
        stream=stream.header.stream,
        n_events=n_events,
        n_records=counts.total(),
        counts=dict(sorted(counts.items())),
        difference=difference,
    )


def _difference(machine: AnyMachine, event: Event, journalled: tuple[Record, ...], *, may_be_short: bool) -> str | None:
    try:
        decided = machine.handle(event)
        machine.check()
    except (InvalidTransition, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"the fresh machine refused it: {error!r}"
    # Through plain rows: JSON turns integer keys into text and tuples into lists.
    ours = [record.to_row() for record in decided]
    theirs = [record.to_row() for record in journalled]
    if may_be_short:
        ours = ours[: len(theirs)]
    for i, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if repr(mine) != repr(other):
            return f"answer {i + 1} is {mine}, journalled was {other}"
    if len(ours) != len(theirs):
        return f"{len(ours)} answers, journalled were {len(theirs)}"
    return None
