"""What follows from each event for the leases?  The pure machine of seed 000, paragraphs 6 and 8.

A lease is a right to enqueue work on the executor of a slot.  Requests wait by rank (:mod:`.pump`); each grant carries
a higher fence (queue and fence are ours).  A holder that is silent for its time to live loses the lease, and its slot
*drains*: no timer ever frees a slot, only the word of its executor (:class:`ExecutorIdled`) or a new executor does,
because a kernel that runs cannot be taken away.  An event about single slots costs O(log n) in the requests that wait;
the loss of a node looks at all slots and open requests, and so does a gang that slots are kept for.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from drlnb.planning.leasing.laws import laws
from drlnb.planning.leasing.ledger import Ledger, Records
from drlnb.planning.leasing.life import Lease, TaskBook
from drlnb.planning.leasing.pump import PLACE_LOST, ask_holders, line_up, pump
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.leasing.slots import SlotRules, refused
from drlnb.records.base import Event, Record
from drlnb.records.columns.leasing import (
    EpochRaised,
    ExecutorIdled,
    ExecutorStarted,
    LeaseRenewed,
    LeaseReturned,
    RequestCancelled,
    RequestPolled,
    RequestUnmet,
    SlotAdded,
    SlotFailed,
    SlotRequested,
    TenantLost,
)
from drlnb.records.columns.placement import NodeLost, TaskStopped
from drlnb.records.common import DeadlinePassed, LoopLagged, SetDeadline, SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence

__all__ = ["PLACE_LOST", "LeaseTable", "priority_problem"]

#: Priorities that a task may have: some steps to both sides, each worth ``age_quantum_s`` of waiting.
_PRIORITIES = range(-100, 101)
#: Name of the deadline after which a gang is due for a reservation; the request's id follows.
_RESERVE = "reserve/"


class LeaseTable(SlotRules):
    """The leases of one pool.

    Parameters
    ----------
    settings
        Times and limits of leasing.
    epoch
        First half of every fence: grows from table to table of one pool, so that fences do
        (:class:`~drlnb.records.columns.leasing.EpochRaised`, where that was seen late).
    """

    def __init__(self, settings: LeasingSettings, epoch: int) -> None:
        self.settings = settings
        self._ledger = Ledger(epoch)
        #: A ``reap`` deadline is on its way.
        self._reaping = False

    @property
    def epoch(self) -> int:
        """First half of the fences of coming grants."""
        return self._ledger.epoch

    def is_resident(self, fence: Fence) -> bool:
        """Whether every slot of a live lease held the parameters of its round when it was granted."""
        lease = self._ledger.held(fence)
        return lease is not None and lease.resident

    @property
    def live_slots(self) -> tuple[str, ...]:
        """Names of the slots that have not failed, sorted."""
        return tuple(sorted(name for name, slot in self._ledger.slots.items() if slot.state != "failed"))

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of all slots, the failed ones too, sorted."""
        return tuple(sorted(self._ledger.slots))

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
        out += pump(ledger, self.settings)
        if isinstance(event, SlotRequested):
            out += self._waits(event.request_id)
        if self.settings.estimates and (load := ledger.load.estimate(ledger.t, ledger.n_live)) is not None:
            out.append(load)
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
        broken = [law for holds, law in laws(self._ledger) if not holds]
        if not (self._reaping or not self._ledger.live):
            broken.append("a reap deadline is set while a lease is held")
        if broken:
            raise AssertionError("lease table: not true: " + "; ".join(broken))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, fit for JSON."""
        return {**self._ledger.snapshot(), "settings": asdict(self.settings), "reaping": self._reaping}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take on the state of :meth:`snapshot`.  A driver that starts anew must set the deadline ``reap`` again.

        Raises
        ------
        ValueError
            If the snapshot is of a table of another epoch: its fences would not be ours.
        """
        if snapshot["epoch"] != self.epoch:
            raise ValueError(f"snapshot must be of epoch {self.epoch}, got {snapshot['epoch']}")
        self.settings = replace(self.settings, **snapshot["settings"])
        self._ledger = Ledger.from_snapshot(snapshot, self.settings.max_hold_s)
        self._reaping = snapshot["reaping"]

    def _on_epoch_raised(self, event: EpochRaised) -> Records:
        if event.epoch <= self.epoch:
            return [refused("epoch", f"{event.epoch} is not above {self.epoch}")]
        self._ledger.raise_epoch(event.epoch)
        return []

    def _waits(self, request_id: str) -> Records:
        """Say what follows from a request that was not granted at once."""
        ledger = self._ledger
        lease = ledger.open.get(request_id)
        if lease is None or lease.state != "pending" or lease.asked_t != ledger.t:
            return []
        out = ask_holders(ledger, lease)
        if lease.n_slots > 1 or lease.allowed:
            n_allowed = sum(1 for _ in ledger.usable(lease))
            if n_allowed < lease.n_slots:
                out.append(
                    RequestUnmet(request_id=request_id, task=lease.task, n_slots=lease.n_slots, n_allowed=n_allowed)
                )
        if lease.n_slots > 1:
            out.append(SetDeadline(name=_RESERVE + request_id, after_s=self.settings.reserve_after_s))
        return out

    # -------------------------------------------------------------- requests and leases
    def _on_slot_requested(self, event: SlotRequested) -> Records:
        ledger = self._ledger
        book = ledger.tasks.setdefault(event.task, TaskBook())
        wanted = (event.task, event.attempt, event.round)
        known = ledger.open.get(event.request_id)
        if known is not None and (known.task, known.attempt, known.round) == wanted:
            return self._repeated(known)
        if known is not None:
            return [refused(event.request_id, f"is taken by task {known.task}, round {known.round}")]
        if event.attempt < book.floor:
            return [refused(event.request_id, f"attempt {event.attempt} is over: {book.floor} or later may ask")]
        if event.request_id in book.ended:
            return [refused(event.request_id, "is over")]
        if any((other.task, other.attempt, other.round) == wanted for other in book.open.values()):
            return [refused(event.request_id, f"another request of round {event.round} is open")]
        problem = _unfit(event)
        if problem:
            return [refused(event.request_id, problem)]
        out = self._raise_floor(book, event.attempt, f"superseded by attempt {event.attempt}")
        lease = Lease(
            request_id=event.request_id,
            task=event.task,
            attempt=event.attempt,
            round=event.round,
            node=event.node,
            asked_t=event.t,
            n_slots=event.n_slots,
            priority=event.priority,
            allowed=tuple(sorted(set(event.allowed))),
            home=event.home,
            yields=event.yields,
        )
        ledger.ask(lease)
        line_up(ledger, lease, self.settings)
        return out

    def _on_request_polled(self, event: RequestPolled) -> Records:
        lease = self._ledger.open.get(event.request_id)
        if lease is None:
            return [refused(event.request_id, "is not open")]
        if lease.state == "pending":
            self._ledger.hear(lease)
            return []
        return self._repeated(lease)

    def _repeated(self, lease: Lease) -> Records:
        """Answer a repeated request: nothing while it waits; while it is held the same grant, whose answer was lost."""
        if lease.state == "pending":
            self._ledger.hear(lease)
            return []
        self._ledger.see(lease)
        return [self._ledger.grant_command(lease)]

    def _on_request_cancelled(self, event: RequestCancelled) -> Records:
        lease = self._ledger.open.get(event.request_id)
        if lease is None:
            return [refused(event.request_id, "is not open")]
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
        out = ledger.release(lease, "yielded" if event.yielded else "returned", event.computed_s)
        if not event.clean:
            return out + ledger.drain(lease, "returned with work in flight")
        ledger.settle(lease, yielded=event.yielded)
        for name in lease.slots:
            out += self._freed(ledger.slots[name], "return")
        return out

    def _on_node_lost(self, event: NodeLost) -> Records:
        ledger, out = self._ledger, Records()
        for slot in ledger.slots.values():
            if slot.node == event.node:
                out += self._fail(slot, "node-lost")
                # The node's next agent counts its executors anew: whichever it adds is later than this one.
                slot.executor_epoch, slot.deaths = -1, ()
        return out + ledger.end([lease for lease in ledger.open.values() if lease.node == event.node], "node-lost")

    def _on_task_stopped(self, event: TaskStopped) -> Records:
        book = self._ledger.tasks.setdefault(event.task, TaskBook())
        self._ledger.load.gone(event.task)
        book.resident.clear()
        return self._raise_floor(book, event.attempt + 1, "task-stopped")

    def _raise_floor(self, book: TaskBook, floor: int, reason: str) -> Records:
        """End whatever a task's attempts below `floor` want or hold."""
        book.floor = max(book.floor, floor)
        return self._ledger.end([lease for lease in book.open.values() if lease.attempt < book.floor], reason)

    # -------------------------------------------------------------- time and settings
    def _on_deadline_passed(self, event: DeadlinePassed) -> Records:
        ledger, out = self._ledger, Records()
        if event.name.startswith(_RESERVE):
            return out  # the pump that follows sees which gang is due
        if event.name != "reap":
            raise ledger.forbidden("with no deadline but 'reap'")
        self._reaping = False
        while (first := ledger.silent.first()) is not None and first[0] < ledger.t - ledger.lag_s:
            out += ledger.expire(ledger.live[first[1]], "silent")
        while (first := ledger.longest.first()) is not None and first[0] < ledger.t:
            out += ledger.expire(ledger.live[first[1]], "max-hold")
        if self.settings.lost_polls:
            patience_s = self.settings.lost_polls * self.settings.poll_s
            while (asked := ledger.polls.first()) is not None and asked[0] < ledger.t - ledger.lag_s - patience_s:
                ledger.drop(ledger.open[asked[1]])
                out.append(refused(asked[1], PLACE_LOST))
        return out

    def _on_loop_lagged(self, event: LoopLagged) -> Records:
        if not event.lag_s >= 0:
            raise self._ledger.forbidden(f"with a lag of {self._ledger.lag_s:g} s so far")
        self._ledger.lag_s += event.lag_s
        return []

    def _on_setting_changed(self, event: SettingChanged) -> Records:
        head, _, key = event.key.partition(".")
        if event.key == "task.priority":
            return self._prioritise(event)
        if event.key in {"slot.drain", "slot.undrain"}:
            return self._drain_slot(event)
        if head != "leasing" or key not in {field.name for field in fields(LeasingSettings)}:
            return [refused(event.key, "cannot be changed while tasks run")]
        try:
            self.settings = replace(self.settings, **{key: event.value})
        except ConfigError as error:
            return [refused(event.key, str(error))]
        if key in {"queue", "age_quantum_s"}:
            for request_id in tuple(self._ledger.queue):
                line_up(self._ledger, self._ledger.open[request_id], self.settings)
        return []

    def _prioritise(self, event: SettingChanged) -> Records:
        """Take a person's word on how urgent a task is; what waits of it changes its place."""
        problem = priority_problem(event.value)
        if problem or not event.task:
            return [refused(event.key, problem or "names no task")]
        book = self._ledger.tasks.setdefault(event.task, TaskBook())
        book.priority = event.value
        for lease in book.open.values():
            if lease.state == "pending":
                line_up(self._ledger, lease, self.settings)
        return []


def priority_problem(value: Any) -> str:
    """Return what is wrong with a priority; empty if nothing is."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value in _PRIORITIES
    limits = f"{_PRIORITIES[0]}..{_PRIORITIES[-1]}"
    return "" if fits else f"task.priority must be a whole number in {limits}, got {value!r}"


def _unfit(event: SlotRequested) -> str:
    """Return what is wrong with a request; empty if nothing is."""
    if event.n_slots < 1:
        return f"n_slots must be >= 1, got {event.n_slots}"
    return priority_problem(event.priority)


#: The rule for each kind of event.
_HANDLERS: Mapping[type[Event], Callable[[LeaseTable, Any], Records]] = {
    SlotAdded: LeaseTable._on_slot_added,
    SlotFailed: LeaseTable._on_slot_failed,
    ExecutorIdled: LeaseTable._on_executor_idled,
    ExecutorStarted: LeaseTable._on_executor_started,
    TenantLost: LeaseTable._on_tenant_lost,
    EpochRaised: LeaseTable._on_epoch_raised,
    SlotRequested: LeaseTable._on_slot_requested,
    RequestPolled: LeaseTable._on_request_polled,
    RequestCancelled: LeaseTable._on_request_cancelled,
    LeaseRenewed: LeaseTable._on_lease_renewed,
    LeaseReturned: LeaseTable._on_lease_returned,
    NodeLost: LeaseTable._on_node_lost,
    TaskStopped: LeaseTable._on_task_stopped,
    DeadlinePassed: LeaseTable._on_deadline_passed,
    LoopLagged: LeaseTable._on_loop_lagged,
    SettingChanged: LeaseTable._on_setting_changed,
}
