"""Follow the way of parameters: who may act now, and which round is a guide to the next one."""

from drlnb.planning.warmup.processes import measure
from drlnb.planning.warmup.state import WarmupState, start
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records.base import Record
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.columns.warmup import WarmupRegimeEnded

__all__ = ["go_on", "host_completed"]


def host_completed(state: WarmupState, event: HostCompleted, out: list[Record]) -> None:
    """Start whom nobody has started yet on a host that has new parameters; close the round with the last host."""
    if event.version >= state.version:
        state.version, state.version_t = event.version, event.t
    trace = state.trace
    if trace is None or event.version not in {trace.round, trace.round + 1}:
        return
    late = event.version == trace.round  # a slow host kept its collectors from a round in which others have acted
    for i, member in enumerate(state.members):
        if member.node != event.host or (i in trace.sent_t) == late or i in trace.arrival_t:
            continue
        if late:
            trace.broken = True
        else:
            trace.arrival_t[i] = event.t
        _arrived(state, trace, i, event, out)
    if trace.complete and not trace.closed:
        _close(state, trace, out)


def _arrived(state: WarmupState, trace: RoundTrace, i: int, event: HostCompleted, out: list[Record]) -> None:
    """Start a collector whose parameters are here, whatever was planned."""
    member = state.members[i]
    if member.status != "resting" or state.ended:
        return
    if state.resting and (member.parked or member.ended):
        trace.broken = True
    if member.parked or not member.ended:  # the wake itself asks for a CPU slot
        member.goes_up()
    elif state.resting:
        member.due = True
    else:
        start(state, i, 0.0, event.t, event.version, out)


def go_on(state: WarmupState, t: float, out: list[Record]) -> None:
    """End the rest that the user has asked for, and start whose parameters came meanwhile."""
    state.resting = False
    for i, member in enumerate(state.members):
        if member.due:
            member.due = False
            start(state, i, 0.0, t, state.version, out)


def _close(state: WarmupState, trace: RoundTrace, out: list[Record]) -> None:
    """Add the round to the history, unless something has disturbed it."""
    trace.closed = True
    row = None if trace.broken else trace.row(_key(state))
    if row is not None:
        reason = state.history.append(row)
        if reason and state.plans_starts:
            n_kept = len(state.history.rows)
            out.append(WarmupRegimeEnded(round=trace.round, n_kept=n_kept, reason=reason))
    measure(state, trace, out)


def _key(state: WarmupState) -> dict[str, object]:
    """Return what must not change within a regime."""
    key: dict[str, object] = {
        "nodes": tuple(member.node for member in state.members),
        "hold": state.hold,
        "collector_mode": state.settings.collector_mode,
        "start_mode": state.settings.start_mode,
    }
    if state.n_slots:
        key["slots"] = state.n_slots
    if state.queued and state.cpu:
        key["cpu_slots"] = tuple(state.cpu.get(member.node, (0, 0))[0] for member in state.members)
    return key
