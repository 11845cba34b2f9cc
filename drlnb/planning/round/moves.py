"""Make the small moves that rules of several phases share: enter a phase, pass an event to warm-up, end the task."""

from collections.abc import Iterable

from drlnb.planning.leasing.hold import Batch
from drlnb.planning.machine import Out
from drlnb.planning.round.state import RoundState
from drlnb.records import round as words
from drlnb.records.base import Event, Record
from drlnb.records.columns import swapping, warmup

__all__ = ["drop", "end", "enter", "follow_warmup", "leave", "release", "swap", "warm"]


def enter(state: RoundState, phase: str, out: Out) -> None:
    """Enter a phase, if it is another one."""
    if phase != state.phase:
        state.phase = phase
        out.append(words.PhaseEntered(phase=phase, round=state.round))


def drop(batch: Batch | words.ExperienceArrived, round_: int, reason: str, out: Out) -> None:
    """Free a fragment, if the batch is one."""
    if not batch.key:
        return
    out.append(words.DropExperience(key=batch.key, collector=batch.collector, round=round_, reason=reason))


def warm(state: RoundState, event: Event, out: Out) -> None:
    """Pass an event to the warm-up machine, and its answer to the crew."""
    follow_warmup(state, state.warmup.handle(event), out)


def swap(state: RoundState, event: Event, out: Out) -> None:
    """Pass an event to the machine that plans what is swapped; what it wants measured rides with the next gradient."""
    rides = swapping.TakeSwapProfile | swapping.MeasureSwapLink
    out.extend(record for record in state.swap.handle(event) if not isinstance(record, rides))


def follow_warmup(state: RoundState, records: Iterable[Record], out: Out) -> None:
    """Carry over to the crew what the warm-up machine decided about processes."""
    for record in records:
        if isinstance(record, warmup.StopCollector):
            state.crew.stopped(record.collector)
        elif isinstance(record, warmup.StartCollector):
            state.crew.starts(record.collector, record.round)
        elif isinstance(record, warmup.RevokeStart):
            state.crew.revoked(record.collector)
        elif isinstance(record, warmup.WarmupPlanned):
            state.progress.planned(record)
        elif isinstance(record, warmup.WarmupMeasured):
            state.progress.measured(record)
        out.append(record)


def end(state: RoundState, how: str, reason: str, out: Out) -> None:
    """End the task: ``done``, ``stopped`` or ``failed``."""
    leave(state, f"task {how}", out)
    out.append(words.EndTask(state=how, reason=reason))


def leave(state: RoundState, reason: str, out: Out) -> None:
    """Return what is held, free what is here, and end this attempt."""
    release(state, reason, out)
    enter(state, "ended", out)


def release(state: RoundState, reason: str, out: Out) -> None:
    """Return what is held, free what is here, and start nobody any more."""
    hold = state.hold
    if hold.held:
        fence, computed_s = hold.returned()
        out.append(words.ReturnLease(fence=fence, clean=False, computed_s=computed_s))
        state.progress.ended(state.t)
    hold.lost()
    follow_warmup(state, state.warmup.end(reason), out)
    batches = hold.next_round()
    for batch in batches or tuple(state.fragments.values()):  # drawn from, fragments have been freed
        drop(batch, state.version, reason, out)
    state.fragments.clear()
