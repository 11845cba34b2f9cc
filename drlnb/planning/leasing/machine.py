"""Decide on the leases of a pool: the pure machine of the leasing patent, paragraphs 6 and 8.

A lease is a right to enqueue work on the executor of a slot.  Requests wait by rank (:mod:`.pump`); each grant carries
a higher fence (queue and fence are ours).  A holder that is silent for its time to live loses the lease, and its slot
*drains*: no timer ever frees a slot, only its executor (:class:`ExecutorIdled`) or a new executor does, because a
kernel that runs cannot be stopped.  An event about single slots costs O(log n) in the requests that wait; the loss of
a node looks at all slots and open requests, and so does a gang that slots are kept for.
"""

from dataclasses import replace

from drlnb.planning.leasing import requests, slots
from drlnb.planning.leasing.laws import laws
from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.life import TaskBook
from drlnb.planning.leasing.pump import PLACE_LOST, ask_holders, pump
from drlnb.planning.leasing.requests import PRIORITIES
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.leasing.slots import refuse
from drlnb.planning.leasing.steps import drop, expire, line_up
from drlnb.planning.machine import Impossible, Out, Rule, Rules
from drlnb.records.base import Event
from drlnb.records.columns import leasing as records
from drlnb.records.columns.placement import NodeLost, TaskStopped
from drlnb.records.common import DeadlinePassed, LoopLagged, SetDeadline, SettingChanged
from drlnb.records.errors import ConfigError

__all__ = ["PLACE_LOST", "RULES", "apply", "laws"]


def epoch_raised(ledger: Ledger, event: records.EpochRaised, out: Out) -> None:
    """Grant under a later epoch from now on; leases that live keep their fences."""
    if event.epoch <= ledger.epoch:
        refuse(out, "epoch", f"{event.epoch} is not above {ledger.epoch}")
    else:
        ledger.former.append((ledger.token, ledger.epoch))
        ledger.epoch = event.epoch


def deadline_passed(ledger: Ledger, event: DeadlinePassed, out: Out) -> None:
    """Expire leases that have been silent or held for too long, and drop requests that nobody polls for."""
    if event.name != "reap":
        raise Impossible("with no deadline but 'reap'")
    ledger.reaping = False
    now_s, live = ledger.t - ledger.lag_s, ledger.live.values()
    silent = [lease for lease in live if lease.seen_s + lease.ttl_s < now_s]
    for lease in sorted(silent, key=lambda lease: lease.seen_s + lease.ttl_s):
        expire(ledger, lease, "silent", out)
    overlong = [lease for lease in live if lease.granted_t + lease.max_hold_s < ledger.t]
    for lease in sorted(overlong, key=lambda lease: lease.granted_t + lease.max_hold_s):
        expire(ledger, lease, "max-hold", out)
    if ledger.settings.lost_polls:
        since_s = now_s - ledger.settings.lost_polls * ledger.settings.poll_s
        lost = [lease for lease in ledger.open.values() if lease.state == "pending" and lease.polled_s < since_s]
        for lease in sorted(lost, key=lambda lease: (lease.polled_s, lease.request_id)):
            drop(ledger, lease)
            refuse(out, lease.request_id, PLACE_LOST)


def loop_lagged(ledger: Ledger, event: LoopLagged, out: Out) -> None:
    """Excuse silence while the owner's loop stood still."""
    if not event.lag_s >= 0:
        raise Impossible(f"with a lag of {ledger.lag_s:g} s so far")
    ledger.lag_s += event.lag_s


def setting_changed(ledger: Ledger, event: SettingChanged, out: Out) -> None:
    """Change a setting of leasing, a task's priority, or whether a slot is lent."""
    room, _, name = event.key.partition(".")
    if event.key == "task.priority":
        _prioritise(ledger, event, out)
    elif event.key in {"slot.drain", "slot.undrain"}:
        slots.drain_by_hand(ledger, event, out)
    elif room != "leasing" or name not in LeasingSettings.declared():
        refuse(out, event.key, "cannot be changed while tasks run")
    else:
        try:
            ledger.settings = replace(ledger.settings, **{name: event.value})
        except ConfigError as error:
            refuse(out, event.key, str(error))
            return
        if name in {"queue", "age_quantum_s"}:
            for request_id in tuple(ledger.queue):
                line_up(ledger, ledger.open[request_id])


def _prioritise(ledger: Ledger, event: SettingChanged, out: Out) -> None:
    """Give a task the priority that a user wants; what waits of it changes its place."""
    problem = PRIORITIES.problem(event.key, event.value)
    if problem or not event.task:
        refuse(out, event.key, problem or "names no task")
        return
    book = ledger.tasks.setdefault(event.task, TaskBook())
    book.priority = event.value
    for lease in book.open.values():
        if lease.state == "pending":
            line_up(ledger, lease)


def _queued(ledger: Ledger, request_id: str, out: Out) -> None:
    """Answer a request that was not granted at once."""
    lease = ledger.open.get(request_id)
    if lease is None or lease.state != "pending" or lease.asked_t != ledger.t:
        return
    ask_holders(ledger, lease, out)
    if lease.n_slots > 1 or lease.allowed:
        n_allowed = ledger.n_usable(lease.kind)
        if n_allowed < lease.kind.n_least:
            unmet = records.RequestUnmet(
                request_id=request_id, task=lease.task, n_slots=lease.n_slots, n_allowed=n_allowed
            )
            out.append(unmet)


#: The rule for each kind of event.
RULES: Rules[Ledger] = {
    records.SlotsOpened: slots.slots_opened,
    records.SlotAdded: slots.slot_added,
    records.SlotFailed: slots.slot_failed,
    records.ExecutorIdled: slots.executor_idled,
    records.TenantLost: slots.tenant_lost,
    records.SlotRequested: requests.slot_requested,
    records.RequestPolled: requests.request_polled,
    records.RequestCancelled: requests.request_cancelled,
    records.LeaseRenewed: requests.lease_renewed,
    records.LeaseReturned: requests.lease_returned,
    NodeLost: slots.node_lost,
    TaskStopped: requests.task_stopped,
    records.EpochRaised: epoch_raised,
    DeadlinePassed: deadline_passed,
    LoopLagged: loop_lagged,
    SettingChanged: setting_changed,
}


def apply(ledger: Ledger, rule: Rule[Ledger], event: Event, out: Out) -> None:
    """Apply the rule of an event, then all that follows from any change."""
    rule(ledger, event, out)
    pump(ledger, out)
    if isinstance(event, records.SlotRequested):
        _queued(ledger, event.request_id, out)
    if ledger.settings.estimates and (load := ledger.load.estimate(ledger.t, ledger.n_live)) is not None:
        out.append(load)
    if ledger.live and not ledger.reaping:
        ledger.reaping = True
        out.append(SetDeadline(name="reap", after_s=ledger.settings.reap_s))
