"""Who is up, when did the parameters come, and what did each start take?"""

from typing import Any

from drlnb.planning.warmup.state import WarmupState
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted, HostUnreachable
from drlnb.records.columns.placement import NodeLost
from drlnb.records.columns.warmup import CollectorLost, CollectorReady, WarmupRegimeEnded
from drlnb.records.round import ExperienceArrived

__all__ = ["PARK", "Measuring"]

#: How a parked collector is started: it is given a CPU slot.
PARK = "park"


class Measuring(WarmupState):
    """The part of the warm-up machine that hears processes and hosts."""

    # ------------------------------------------------------------------ where collectors live
    def _task_opened(self, event: words.TaskOpened) -> None:
        """Note when the attempt begins: rounds are counted by the events that follow."""

    def _placement_received(self, event: words.PlacementReceived) -> None:
        for i, (member, node) in enumerate(zip(self.members, event.collector_nodes, strict=True)):
            self._unsee()
            if member.node != node:
                self._gone(i)
                member.node = node

    def _node_lost(self, event: NodeLost) -> None:
        self._drop(event.node)

    def _host_unreachable(self, event: HostUnreachable) -> None:
        if self.trace is not None and event.version == self.trace.round + 1 > self.version:
            self._drop(event.host)

    def _drop(self, node: str) -> None:
        self.warm_t.pop(node, None)
        self._unsee()
        for i, member in enumerate(self.members):
            if member.node == node:
                self._gone(i)
                member.node = ""

    def _gone(self, i: int) -> None:
        member = self.members[i]
        if member.status != "absent" and self.trace is not None:
            self.trace.broken = True
        member.status, member.planned_t, member.due, member.ended = "absent", None, False, False
        member.parked = False

    def _collector_lost(self, event: CollectorLost) -> None:
        """Leave it to who restarts the lost: that start replaces a planned one, so none has to be taken back."""
        if 0 <= event.collector < len(self.members) and self.members[event.collector].node == event.node:
            self._gone(event.collector)

    # ------------------------------------------------------------------ starts
    def _collector_ready(self, event: CollectorReady) -> None:
        if not 0 <= event.collector < len(self.members):
            return
        member = self.members[event.collector]
        if member.node != event.node:
            return
        if event.start_mode == PARK:
            self._has_slot(event)
            return
        is_guide = self._is_guide(event)
        self._unsee()
        started = member.planned_t is not None and member.status in {"resting", "starting"}
        member.status, member.planned_t, member.due, member.mode = "up", None, False, event.start_mode
        member.ended = member.parked = False
        trace = self._trace_of(event)
        if trace is None or not started or event.collector in trace.ready_t:
            if is_guide:
                self.starts.add(event.node, event.start_mode, event.n_starting, event.start_s)
            return
        trace.ready_t[event.collector], trace.start_s[event.collector] = event.t, event.start_s
        trace.place[event.collector] = event.node, event.start_mode
        trace.n_starting[event.node] = max(trace.n_starting.get(event.node, 0), event.n_starting)
        trace.broken |= not is_guide
        self._measure(trace)

    def _trace_of(self, event: CollectorReady) -> RoundTrace | None:
        """Return the trace of the round that a start follows: where rounds are short, others may have sent the next."""
        return self._trace_before(event.round) if event.round else self.trace

    def _is_guide(self, event: CollectorReady) -> bool:
        """Return whether a start is a sample: those that waited for their node's zygote to be made are not."""
        if event.start_mode != "zygote":
            return True
        return event.t - event.start_s >= self.warm_t.setdefault(event.node, event.t)

    # ------------------------------------------------------------------ CPU slots
    def _has_slot(self, event: CollectorReady) -> None:
        """Note that a parked collector has the CPU slot that was asked for ahead of its parameters."""
        trace, i = self._trace_before(event.round), event.collector
        if trace is None or i not in trace.parked or i in trace.ready_t or i in trace.told:
            return
        trace.ready_t[i], trace.start_s[i] = event.t, event.start_s
        member = self.members[i]
        if trace is self.trace and member.parked:
            member.status, member.planned_t, member.ended, member.parked = "up", None, False, False

    def _queue_told(self, event: ExperienceArrived) -> None:
        """Take in what a parked collector waited for its CPU slot after its wake: it says so when it has acted."""
        trace, i = self._trace_before(event.round), event.collector
        if trace is None or i not in trace.parked or i not in trace.arrival_t or i in trace.told:
            return
        trace.told.append(i)
        if i not in trace.ready_t:
            trace.ready_t[i], trace.start_s[i] = trace.arrival_t[i] + event.queued_s, event.queued_s
        elif event.queued_s > 0.0 and trace.ready_t[i] < trace.arrival_t[i]:
            # It had a slot ahead, and lost it to somebody who could act.
            trace.ready_t[i] = trace.arrival_t[i] + event.queued_s
            trace.start_s[i] += event.queued_s
        self._measure(trace)

    def _trace_before(self, round_: int) -> RoundTrace | None:
        """Return the trace of the round after which collectors rested for this one."""
        return next((one for one in (self.trace, self.former) if one is not None and one.round + 1 == round_), None)

    def _measure(self, trace: RoundTrace) -> None:
        """Once every start after a round is in, tell what they came to and keep them."""
        if trace.measured or not trace.closed:
            return
        outcome = trace.outcome()
        if outcome is None:
            return
        trace.measured = True
        self._unsee()
        self._out.append(outcome)
        row = self.history.rows[-1] if self.history.rows else None
        for i, start_s in trace.start_s.items():
            member = self.members[i]
            if i in trace.parked:
                n_starting = sum(self.members[other].node == member.node for other in trace.parked)
                self.starts.add(member.node, PARK, n_starting, start_s)
            else:
                node, mode = trace.place[i]
                self.starts.add(node, mode, trace.n_starting[node], start_s)
            if row is not None and row.round == trace.round:
                row.start_s[i] = start_s

    # ------------------------------------------------------------------ parameters
    def _host_completed(self, event: HostCompleted) -> None:
        if event.version >= self.version:
            self.version, self.version_t = event.version, event.t
        trace = self.trace
        if trace is None:
            return
        if event.version == trace.round:
            self._late_host(trace, event)
        if event.version != trace.round + 1:
            return
        for i, member in enumerate(self.members):
            if member.node == event.host and i in trace.sent_t and i not in trace.arrival_t:
                trace.arrival_t[i] = event.t
                self._arrived(i, event.t)
        if trace.complete and not trace.closed:
            self._close()

    def _late_host(self, trace: RoundTrace, event: HostCompleted) -> None:
        """Start whom a slow host has kept from a round in which others have acted already."""
        for i, member in enumerate(self.members):
            if member.node == event.host and i not in trace.sent_t:
                trace.broken = True
                self._arrived(i, event.t, round_=event.version)

    def _arrived(self, i: int, t: float, *, round_: int | None = None) -> None:
        """Start a collector whose parameters are here, whatever was planned."""
        member = self.members[i]
        if member.status != "resting" or self.ended:
            return
        if member.parked and self.resting:
            assert self.trace is not None
            self.trace.broken = True
        if member.parked or not member.ended:  # the wake itself asks for a CPU slot
            member.status, member.planned_t, member.ended, member.parked = "up", None, False, False
        elif self.resting:
            member.due = True
            assert self.trace is not None
            self.trace.broken = True
        else:
            self._start(i, 0.0, t, round_=round_)

    def _close(self) -> None:
        """Take the round into the history, unless something has disturbed it."""
        trace = self.trace
        assert trace is not None
        trace.closed = True
        row = None if trace.broken else trace.row(self._key())
        if row is not None:
            reason = self.history.append(row)
            if reason and self.plans_starts:
                n_kept = len(self.history.rows)
                self._out.append(WarmupRegimeEnded(round=trace.round, n_kept=n_kept, reason=reason))
        self._measure(trace)

    def _key(self) -> dict[str, Any]:
        key: dict[str, Any] = {
            "nodes": tuple(member.node for member in self.members),
            "hold": self.hold,
            "collector_mode": self.settings.collector_mode,
            "start_mode": self.settings.start_mode,
        }
        if self.n_slots:
            key["slots"] = self.n_slots
        if self.queued and self.cpu:
            key["cpu_slots"] = tuple(self.cpu.get(member.node, (0, 0))[0] for member in self.members)
        return key
