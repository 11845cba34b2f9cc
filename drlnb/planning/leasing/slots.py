"""Apply what happens to slots: one is added, fails, drains, or gets a new executor."""

from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.life import Slot
from drlnb.planning.leasing.steps import end_all, end_hopeless, move
from drlnb.planning.machine import Impossible
from drlnb.records.base import Record
from drlnb.records.columns import leasing as records
from drlnb.records.columns.placement import NodeLost
from drlnb.records.common import SettingChanged


def refuse(out: list[Record], subject: str, reason: str) -> None:
    """Refuse something; nothing changes."""
    out.append(records.RequestRefused(subject=subject, reason=reason))


def slots_opened(ledger: Ledger, event: records.SlotsOpened, out: list[Record]) -> None:
    """Learn what the pool is made of; end what waits for more."""
    ledger.opened = event.slots
    for lease in [lease for lease in ledger.open.values() if lease.state == "pending"]:
        end_hopeless(ledger, lease, out)


def slot_added(ledger: Ledger, event: records.SlotAdded, out: list[Record]) -> None:
    """Enter a new slot, or one that is back with a new executor."""
    slot = ledger.slots.get(event.slot)
    if slot is None:
        slot = Slot(name=event.slot, node=event.node, device=event.device, executor_epoch=event.executor_epoch)
        ledger.slots[slot.name] = slot
        ledger.index_slot(slot)
    elif slot.node != event.node:
        raise Impossible(f"slot {slot.name} on node {slot.node}")
    elif event.executor_epoch > slot.executor_epoch:
        slot.device = event.device
        _restarted(ledger, slot, event.executor_epoch, out)
    elif event.executor_epoch < slot.executor_epoch or slot.state == "failed":
        refuse(out, slot.name, f"is {slot.state} since executor epoch {slot.executor_epoch}: a later one is needed")


def tenant_lost(ledger: Ledger, event: records.TenantLost, out: list[Record]) -> None:
    """End what one task's process held, and its lease, if it worked under that; no other's."""
    slot = ledger.slots.get(event.slot)
    if slot is None:
        refuse(out, event.slot, "is not in the pool")
        return
    if event.task in ledger.tasks:
        ledger.tasks[event.task].resident.pop(slot.name, None)
    lease = None if event.fence is None else ledger.held(event.fence)
    if lease is not None and slot.name in lease.slots:
        _restarted(ledger, slot, slot.executor_epoch, out)
    elif event.fence is not None and event.fence == ledger.fence_of(slot.drains):
        _count_death(ledger, slot, event.task)  # its holder has reported it first; the slot drains until it is idle
        _strike_out(ledger, slot, out)


def _restarted(ledger: Ledger, slot: Slot, executor_epoch: int, out: list[Record]) -> None:
    """Count a new executor: the work of the former one is gone, and with it a lease that was held."""
    lease = ledger.live.get(slot.token)
    if not slot.gone:
        _count_death(ledger, slot, "" if lease is None else lease.task)
    slot.gone, slot.executor_epoch = False, executor_epoch
    if slot.state not in {"free", "reserved"} and not (slot.state == "failed" and slot.closed):
        move(ledger, slot, "restart")
        if lease is not None:
            end_all(ledger, [lease], "executor-died", out)
        elif not slot.closed:
            out.append(records.SlotFreed(slot=slot.name))
    if not _strike_out(ledger, slot, out) and slot.closed and slot.state != "failed":
        move(ledger, slot, "fail")


def _count_death(ledger: Ledger, slot: Slot, task: str) -> None:
    """Remember that an executor died, and under whose lease; of one task's, in a row, the task may be the cause."""
    slot.n_failures += not task or task not in slot.deaths
    slot.deaths = (*slot.deaths, task)[-ledger.settings.strikes :]


def _strike_out(ledger: Ledger, slot: Slot, out: list[Record]) -> bool:
    """Close a slot on which executors die whatever they compute, not under one and the same task; return whether."""
    blamed = len(set(slot.deaths)) > 1 or slot.deaths[:1] == ("",)
    settings = ledger.settings
    struck_out = settings.quarantine and not slot.closed and blamed and len(slot.deaths) >= settings.strikes
    if struck_out:
        _close(ledger, slot, f"{len(slot.deaths)} executors in a row died on it", out)
    return struck_out


def _close(ledger: Ledger, slot: Slot, reason: str, out: list[Record]) -> None:
    """Lend a slot no more; what is held or drains there goes on to its end."""
    slot.closed = reason
    if slot.state in {"free", "reserved"}:
        move(ledger, slot, "fail")
    out.append(records.SlotClosed(slot=slot.name, reason=reason))


def slot_failed(ledger: Ledger, event: records.SlotFailed, out: list[Record]) -> None:
    """Count a slot as failed whose executor is gone."""
    slot = ledger.slots.get(event.slot)
    if slot is None:
        refuse(out, event.slot, "is not in the pool")
    elif not slot.gone:
        lease = ledger.live.get(slot.token)
        _count_death(ledger, slot, "" if lease is None else lease.task)
        _fail(ledger, slot, "slot-failed", out)


def node_lost(ledger: Ledger, event: NodeLost, out: list[Record]) -> None:
    """Count every slot of a node as failed, and end what its masters wanted or held."""
    for slot in ledger.slots.values():
        if slot.node == event.node:
            slot.n_failures += not slot.gone
            _fail(ledger, slot, "node-lost", out)
            # The node's next agent counts its executors anew: whichever it adds is later than this one.
            slot.executor_epoch, slot.deaths = -1, ()
    end_all(ledger, [lease for lease in ledger.open.values() if lease.node == event.node], "node-lost", out)


def _fail(ledger: Ledger, slot: Slot, reason: str, out: list[Record]) -> None:
    lease = ledger.live.get(slot.token)
    slot.gone = True
    if slot.state == "failed":
        return
    move(ledger, slot, "fail")
    end_all(ledger, [] if lease is None else [lease], reason, out)


def executor_idled(ledger: Ledger, event: records.ExecutorIdled, out: list[Record]) -> None:
    """Free a slot that drains: its executor works no more under the ended lease."""
    slot = ledger.slots.get(event.slot)
    if slot is None or slot.state != "draining":
        refuse(out, event.slot, "is not draining")
    elif event.fence is not None and event.fence != ledger.fence_of(slot.drains):
        refuse(out, event.slot, f"drains from fence #{slot.drains}, not from {event.fence}")
    elif free_again(ledger, slot, "idle"):
        out.append(records.SlotFreed(slot=slot.name))


def free_again(ledger: Ledger, slot: Slot, cause: str) -> bool:
    """Put a slot back on offer, unless it was closed meanwhile; return whether it is."""
    move(ledger, slot, cause)
    if slot.closed:
        move(ledger, slot, "fail")
    return not slot.closed


def drain_by_hand(ledger: Ledger, event: SettingChanged, out: list[Record]) -> None:
    """Remove a slot from the pool as a user wishes, or bring it back."""
    slot = ledger.slots.get(str(event.value))
    if slot is None:
        refuse(out, event.key, f"slot {event.value!r} is not in the pool")
    elif event.key == "slot.drain":
        if not slot.closed:
            _close(ledger, slot, "drained by hand", out)
    elif not slot.closed:
        refuse(out, event.key, f"slot {slot.name} is not closed")
    else:
        slot.closed, slot.deaths = "", ()
        if slot.state == "failed" and not slot.gone:
            move(ledger, slot, "restart")
            out.append(records.SlotFreed(slot=slot.name))
