"""Follow where collectors live, which of them are up, and the way of parameters to them; measure their starts."""

from drlnb.planning.warmup.state import WarmupState, start
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records.base import Record
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.columns.warmup import CollectorLost, CollectorReady, WarmupRegimeEnded
from drlnb.records.round import PlacementReceived


# -------------------------------------------------------------------- where collectors live
def placement_received(state: WarmupState, event: PlacementReceived, out: list[Record]) -> None:
    """Place collectors; those that move are started anew."""
    for i, (member, node) in enumerate(zip(state.members, event.collector_nodes, strict=True)):
        if member.node != node:
            _lose(state, i)
            member.node = node


def drop_node(state: WarmupState, node: str) -> None:
    """Forget a node's collectors: they are placed and started anew."""
    state.warm_t.pop(node, None)
    for i, member in enumerate(state.members):
        if member.node == node:
            _lose(state, i)
            member.node = ""


def collector_lost(state: WarmupState, event: CollectorLost, out: list[Record]) -> None:
    """Forget a process; whoever restarts the lost replaces a planned start, so none has to be revoked."""
    if state.at(event.collector, event.node) is not None:
        _lose(state, event.collector)


def _lose(state: WarmupState, i: int) -> None:
    member = state.members[i]
    if member.status != "absent" and state.trace is not None:
        state.trace.broken = True
    member.is_lost()


# -------------------------------------------------------------------- starts
def collector_ready(state: WarmupState, event: CollectorReady, out: list[Record]) -> None:
    """Count a process as up, and measure its start."""
    member = state.at(event.collector, event.node)
    if member is None:
        return
    guides = is_guide(state.warm_t, event)
    started = member.planned_t is not None and member.status in {"resting", "starting"}
    member.goes_up()
    member.due, member.mode = False, event.start_mode
    # Where rounds are short, others may have sent the next one.
    trace = state.trace_before(event.round) if event.round else state.trace
    if trace is None or not started or event.collector in trace.ready_t:
        if guides:
            state.starts.add(event.node, event.start_mode, event.n_starting, event.start_s)
        return
    trace.ready_t[event.collector], trace.start_s[event.collector] = event.t, event.start_s
    trace.place[event.collector] = event.node, event.start_mode
    trace.n_starting[event.node] = max(trace.n_starting.get(event.node, 0), event.n_starting)
    trace.broken |= not guides
    measure(state, trace, out)


def is_guide(warm_t: dict[str, float], event: CollectorReady) -> bool:
    """Return whether a start is a sample: those that waited for their node's zygote to be made are not.

    Parameters
    ----------
    warm_t
        Node -> event time at which its zygote's first child was ready; the event's is added.
    event
        The end of the start.
    """
    if event.start_mode != "zygote":
        return True
    return event.t - event.start_s >= warm_t.setdefault(event.node, event.t)


def measure(state: WarmupState, trace: RoundTrace, out: list[Record]) -> None:
    """Once every start after a round is in, record their outcome and keep them."""
    outcome = trace.outcome() if trace.closed and not trace.measured else None
    if outcome is None:
        return
    trace.measured = True
    out.append(outcome)
    row = state.history.rows[-1] if state.history.rows else None
    for i, start_s in trace.start_s.items():
        node, mode = trace.place[i]
        state.starts.add(node, mode, trace.n_starting[node], start_s)
        if row is not None and row.round == trace.round:
            row.start_s[i] = start_s


# -------------------------------------------------------------------- the way of parameters
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
    if state.resting and member.ended:
        trace.broken = True
    if not member.ended:
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
    return key
