"""What follows from each event for the leases?  The pure machine of seed 000, paragraphs 6 and 8.

A lease is a right to enqueue work on the executor of a slot.  Requests wait in order of arrival; each grant carries a
higher fence (queue and fence are ours).  A holder that is silent for its time to live loses the lease, and its slot
*drains*: no timer ever frees a slot, only the word of its executor (:class:`ExecutorIdled`) or a new executor does,
because a kernel that runs cannot be taken away.  Every event costs O(log n), except the loss of a node, which looks at
all slots and open requests.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from drlnb.planning.leasing.ledger import Ledger, Records
from drlnb.planning.leasing.life import Lease, Slot, TaskBook
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.base import Event, Record
from drlnb.records.common import DeadlinePassed, LoopLagged, SetDeadline, SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.records.leasing import (
    ExecutorIdled,
    ExecutorStarted,
    LeaseRenewed,
    LeaseReturned,
    RequestCancelled,
    RequestRefused,
    SlotAdded,
    SlotFailed,
    SlotFreed,
    SlotRequested,
)
from drlnb.records.placement import NodeLost, TaskStopped

__all__ = ["LeaseTable"]


class LeaseTable:
    """The leases of one pool.

    Parameters
    ----------
    settings
        Times and limits of leasing.
    epoch
        First half of every fence: grows from table to table of one pool, so that fences do.
    """

    def __init__(self, settings: LeasingSettings, epoch: int) -> None:
        self.settings = settings
        self._ledger = Ledger(epoch)
        #: A ``reap`` deadline is on its way.
        self._reaping = False

    @property
    def epoch(self) -> int:
        """First half of every fence."""
        return self._ledger.epoch

    @property
    def live_slots(self) -> tuple[str, ...]:
        """Names of the slots that have not failed, sorted."""
        return tuple(sorted(name for name, slot in self._ledger.slots.items() if slot.state != "failed"))

    @staticmethod
    def takes(event: Event) -> bool:
        """Return whether this machine knows this kind of event."""
        return type(event) in _HANDLERS

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Take in an event and return what follows from it, in its order.

        Raises
        ------
        InvalidTransition
            If the event is older than the last one, or the state forbids it: a defect of ours.
        """
        ledger = self._ledger
        ledger.begin(event)
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise ledger.forbidden("without a rule for it")
        out = handler(self, event)
        out += self._pump()
        if ledger.live and not self._reaping:
            self._reaping = True
            out.append(SetDeadline(name="reap", after_s=self.settings.reap_s))
        ledger.tell((event, *out))
        return tuple(out)

    def check(self) -> None:
        """Check what must hold after each event.

        Raises
        ------
        AssertionError
            If something does not; the message lists all of it.
        """
        broken = [law for holds, law in self._ledger.laws() if not holds]
        if not (self._reaping or not self._ledger.live):
            broken.append("a reap deadline is set while a lease is held")
        if broken:
            raise AssertionError("lease table: not true: " + "; ".join(broken))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, fit for JSON."""
        return {**self._ledger.snapshot(), "ttl_s": self.settings.ttl_s, "reaping": self._reaping}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take on the state of :meth:`snapshot`.  A driver that starts anew must set the deadline ``reap`` again.

        Raises
        ------
        ValueError
            If the snapshot is of a table of another epoch: its fences would not be ours.
        """
        if snapshot["epoch"] != self.epoch:
            raise ValueError(f"snapshot must be of epoch {self.epoch}, got {snapshot['epoch']}")
        self._ledger = Ledger.from_snapshot(snapshot)
        self.settings = replace(self.settings, ttl_s=snapshot["ttl_s"])
        self._reaping = snapshot["reaping"]

    def _pump(self) -> Records:
        """Grant free slots to those who wait, in their order."""
        ledger, out = self._ledger, Records()
        while (request_id := ledger.queue.first()) is not None:
            lease = ledger.open[request_id]
            slot = ledger.free.best(lease.node)
            if slot is None:
                break
            out += ledger.grant(lease, slot, self.settings.ttl_s)
        return out

    # -------------------------------------------------------------- slots
    def _on_slot_added(self, event: SlotAdded) -> Records:
        slot = self._ledger.slots.get(event.slot)
        if slot is None:
            self._ledger.add(
                Slot(name=event.slot, node=event.node, device=event.device, executor_epoch=event.executor_epoch)
            )
            return []
        if slot.node != event.node:
            raise self._ledger.forbidden(f"slot {slot.name} on node {slot.node}")
        if event.executor_epoch > slot.executor_epoch:
            slot.device = event.device
            return self._restarted(slot, event.executor_epoch)
        if event.executor_epoch == slot.executor_epoch and slot.state != "failed":
            return []
        return [
            _refused(slot.name, f"is {slot.state} since executor epoch {slot.executor_epoch}: a later one is needed")
        ]

    def _on_executor_started(self, event: ExecutorStarted) -> Records:
        slot = self._ledger.slots.get(event.slot)
        if slot is None or slot.state == "failed":
            return [_refused(event.slot, "must be added first")]
        if event.executor_epoch <= slot.executor_epoch:
            return [_refused(slot.name, f"executor epoch {event.executor_epoch} is not above {slot.executor_epoch}")]
        return self._restarted(slot, event.executor_epoch)

    def _restarted(self, slot: Slot, executor_epoch: int) -> Records:
        """Note a new executor: the work of the former one is gone, and with it a lease that was held."""
        ledger, lease = self._ledger, self._ledger.live.get(slot.token)
        slot.executor_epoch = executor_epoch
        if slot.state == "free":
            return []
        ledger.move(slot, "restart")
        if lease is None:
            return [SlotFreed(slot=slot.name)]
        return ledger.release(lease, "executor-died") + ledger.drain(lease, "executor-died")

    def _on_slot_failed(self, event: SlotFailed) -> Records:
        slot = self._ledger.slots.get(event.slot)
        return [_refused(event.slot, "is not in the pool")] if slot is None else self._fail(slot, "slot-failed")

    def _fail(self, slot: Slot, reason: str) -> Records:
        ledger, lease = self._ledger, self._ledger.live.get(slot.token)
        if slot.state == "failed":
            return []
        ledger.move(slot, "fail")
        return [] if lease is None else ledger.release(lease, reason) + ledger.drain(lease, reason)

    def _on_executor_idled(self, event: ExecutorIdled) -> Records:
        slot = self._ledger.slots.get(event.slot)
        if slot is None or slot.state != "draining":
            return [_refused(event.slot, "is not draining")]
        self._ledger.move(slot, "idle")
        return [SlotFreed(slot=slot.name)]

    # -------------------------------------------------------------- requests and leases
    def _on_slot_requested(self, event: SlotRequested) -> Records:
        ledger = self._ledger
        book = ledger.tasks.setdefault(event.task, TaskBook())
        wanted = (event.task, event.attempt, event.round)
        known = ledger.open.get(event.request_id)
        if known is not None and (known.task, known.attempt, known.round) == wanted:
            return self._repeated(known)
        if known is not None:
            return [_refused(event.request_id, f"is taken by task {known.task}, round {known.round}")]
        if event.attempt < book.floor:
            return [_refused(event.request_id, f"attempt {event.attempt} is over: {book.floor} or later may ask")]
        if event.request_id in book.ended:
            return [_refused(event.request_id, "is over")]
        if any((other.task, other.attempt, other.round) == wanted for other in book.open.values()):
            return [_refused(event.request_id, f"another request of round {event.round} is open")]
        out = self._raise_floor(book, event.attempt, f"superseded by attempt {event.attempt}")
        ledger.ask(
            Lease(
                request_id=event.request_id,
                task=event.task,
                attempt=event.attempt,
                round=event.round,
                node=event.node,
                asked_t=event.t,
            )
        )
        return out

    def _repeated(self, lease: Lease) -> Records:
        """Answer a repeated request: nothing while it waits; while it is held the same grant, whose answer was lost."""
        if lease.state == "pending":
            return []
        self._ledger.see(lease)
        return [self._ledger.grant_command(lease)]

    def _on_request_cancelled(self, event: RequestCancelled) -> Records:
        lease = self._ledger.open.get(event.request_id)
        if lease is None:
            return [_refused(event.request_id, "is not open")]
        if lease.state == "granted":
            # The grant crossed the cancellation: the requester may have used it, so the slot must drain.
            return self._ledger.end([lease], "cancelled")
        self._ledger.drop(lease)
        return []

    def _on_lease_renewed(self, event: LeaseRenewed) -> Records:
        lease = self._ledger.held(event.fence)
        if lease is None:
            return [self._ledger.stale(event.fence)]
        self._ledger.see(lease)
        return []

    def _on_lease_returned(self, event: LeaseReturned) -> Records:
        ledger, lease = self._ledger, self._ledger.held(event.fence)
        if lease is None:
            return [ledger.stale(event.fence)]
        out = ledger.release(lease, "returned", event.computed_s)
        if not event.clean:
            return out + ledger.drain(lease, "returned with work in flight")
        for name in lease.slots:
            ledger.move(ledger.slots[name], "return")
        return out

    def _on_node_lost(self, event: NodeLost) -> Records:
        ledger, out = self._ledger, Records()
        for slot in ledger.slots.values():
            if slot.node == event.node:
                out += self._fail(slot, "node-lost")
                # The node's next agent counts its executors anew: whichever it adds is later than this one.
                slot.executor_epoch = -1
        return out + ledger.end([lease for lease in ledger.open.values() if lease.node == event.node], "node-lost")

    def _on_task_stopped(self, event: TaskStopped) -> Records:
        book = self._ledger.tasks.setdefault(event.task, TaskBook())
        return self._raise_floor(book, event.attempt + 1, "task-stopped")

    def _raise_floor(self, book: TaskBook, floor: int, reason: str) -> Records:
        """End whatever a task's attempts below `floor` want or hold."""
        book.floor = max(book.floor, floor)
        return self._ledger.end([lease for lease in book.open.values() if lease.attempt < book.floor], reason)

    # -------------------------------------------------------------- time and settings
    def _on_deadline_passed(self, event: DeadlinePassed) -> Records:
        ledger, out = self._ledger, Records()
        if event.name != "reap":
            raise ledger.forbidden("with no deadline but 'reap'")
        self._reaping = False
        while (first := ledger.silent.first()) is not None and first[0] < ledger.t - ledger.lag_s:
            out += ledger.expire(ledger.live[first[1]], "silent")
        while ledger.live:
            longest = next(iter(ledger.live.values()))
            if ledger.t - longest.granted_t <= self.settings.max_hold_s:
                break
            out += ledger.expire(longest, "max-hold")
        return out

    def _on_loop_lagged(self, event: LoopLagged) -> Records:
        if not event.lag_s >= 0:
            raise self._ledger.forbidden(f"with a lag of {self._ledger.lag_s:g} s so far")
        self._ledger.lag_s += event.lag_s
        return []

    def _on_setting_changed(self, event: SettingChanged) -> Records:
        if event.key != "leasing.ttl_s":
            return [_refused(event.key, "cannot be changed while tasks run")]
        try:
            self.settings = replace(self.settings, ttl_s=event.value)
        except ConfigError as error:
            return [_refused(event.key, str(error))]
        return []


def _refused(subject: str, reason: str) -> RequestRefused:
    return RequestRefused(subject=subject, reason=reason)


#: The rule for each kind of event.
_HANDLERS: Mapping[type[Event], Callable[[LeaseTable, Any], Records]] = {
    SlotAdded: LeaseTable._on_slot_added,
    SlotFailed: LeaseTable._on_slot_failed,
    ExecutorIdled: LeaseTable._on_executor_idled,
    ExecutorStarted: LeaseTable._on_executor_started,
    SlotRequested: LeaseTable._on_slot_requested,
    RequestCancelled: LeaseTable._on_request_cancelled,
    LeaseRenewed: LeaseTable._on_lease_renewed,
    LeaseReturned: LeaseTable._on_lease_returned,
    NodeLost: LeaseTable._on_node_lost,
    TaskStopped: LeaseTable._on_task_stopped,
    DeadlinePassed: LeaseTable._on_deadline_passed,
    LoopLagged: LeaseTable._on_loop_lagged,
    SettingChanged: LeaseTable._on_setting_changed,
}
