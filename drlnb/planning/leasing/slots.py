"""What follows for the leases when a slot comes, fails, drains, or its executor is a new one?"""

from drlnb.planning.leasing.ledger import Ledger, Records
from drlnb.planning.leasing.life import Slot
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.base import Record
from drlnb.records.columns.leasing import (
    ExecutorIdled,
    ExecutorStarted,
    RequestRefused,
    SlotAdded,
    SlotClosed,
    SlotFailed,
    SlotFreed,
    TenantLost,
)
from drlnb.records.common import SettingChanged

__all__ = ["SlotRules", "refused"]


class SlotRules:
    """The part of the lease table that hears of slots."""

    settings: LeasingSettings
    _ledger: Ledger

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
            refused(slot.name, f"is {slot.state} since executor epoch {slot.executor_epoch}: a later one is needed")
        ]

    def _on_executor_started(self, event: ExecutorStarted) -> Records:
        slot = self._ledger.slots.get(event.slot)
        if slot is None or slot.gone:
            return [refused(event.slot, "must be added first")]
        if event.executor_epoch <= slot.executor_epoch:
            return [refused(slot.name, f"executor epoch {event.executor_epoch} is not above {slot.executor_epoch}")]
        return self._restarted(slot, event.executor_epoch)

    def _on_tenant_lost(self, event: TenantLost) -> Records:
        """Note that one task's process is gone: what it held is, and its lease, if it worked under that; no other's."""
        ledger, slot = self._ledger, self._ledger.slots.get(event.slot)
        if slot is None:
            return [refused(event.slot, "is not in the pool")]
        if event.task in ledger.tasks:
            ledger.tasks[event.task].resident.pop(slot.name, None)
        lease = None if event.fence is None else ledger.held(event.fence)
        if lease is not None and slot.name in lease.slots:
            return self._restarted(slot, slot.executor_epoch)
        if event.fence is not None and event.fence == ledger.fence_of(slot.drains):
            self._note_death(slot, event.task)  # its holder has said so first; the slot drains until it is idle
            if self._struck_out(slot):
                return self._shut(slot, f"{len(slot.deaths)} executors in a row died on it")
        return []

    def _restarted(self, slot: Slot, executor_epoch: int) -> Records:
        """Note a new executor: the work of the former one is gone, and with it a lease that was held."""
        ledger, lease, out = self._ledger, self._ledger.live.get(slot.token), Records()
        if not slot.gone:
            self._note_death(slot, "" if lease is None else lease.task)
        slot.gone, slot.executor_epoch = False, executor_epoch
        if slot.state not in {"free", "reserved"} and not (slot.state == "failed" and slot.closed):
            ledger.move(slot, "restart")
            if lease is not None:
                out += ledger.release(lease, "executor-died") + ledger.drain(lease, "executor-died")
            elif not slot.closed:
                out.append(SlotFreed(slot=slot.name))
        if self._struck_out(slot):
            out += self._shut(slot, f"{len(slot.deaths)} executors in a row died on it")
        elif slot.closed and slot.state != "failed":
            ledger.move(slot, "fail")
        return out

    def _note_death(self, slot: Slot, task: str) -> None:
        """Note that an executor died, and under whose lease."""
        slot.deaths = (*slot.deaths, task)[-self.settings.strikes :]

    def _struck_out(self, slot: Slot) -> bool:
        """Return whether executors die on a slot whatever they compute, not under one and the same task."""
        blamed = len(set(slot.deaths)) > 1 or slot.deaths[:1] == ("",)
        return self.settings.quarantine and not slot.closed and blamed and len(slot.deaths) >= self.settings.strikes

    def _shut(self, slot: Slot, reason: str) -> Records:
        """Lend a slot no more; what is held or drains there goes on to its end."""
        slot.closed = reason
        if slot.state in {"free", "reserved"}:
            self._ledger.move(slot, "fail")
        return [SlotClosed(slot=slot.name, reason=reason)]

    def _on_slot_failed(self, event: SlotFailed) -> Records:
        slot = self._ledger.slots.get(event.slot)
        if slot is None:
            return [refused(event.slot, "is not in the pool")]
        if slot.gone:
            return []
        lease = self._ledger.live.get(slot.token)
        self._note_death(slot, "" if lease is None else lease.task)
        return self._fail(slot, "slot-failed")

    def _fail(self, slot: Slot, reason: str) -> Records:
        """Take a slot out whose executor is gone."""
        ledger, lease = self._ledger, self._ledger.live.get(slot.token)
        slot.gone = True
        if slot.state == "failed":
            return []
        ledger.move(slot, "fail")
        return [] if lease is None else ledger.release(lease, reason) + ledger.drain(lease, reason)

    def _on_executor_idled(self, event: ExecutorIdled) -> Records:
        slot = self._ledger.slots.get(event.slot)
        if slot is None or slot.state != "draining":
            return [refused(event.slot, "is not draining")]
        if event.fence is not None and event.fence != self._ledger.fence_of(slot.drains):
            return [refused(event.slot, f"drains from fence #{slot.drains}, not from {event.fence}")]
        return self._freed(slot, "idle", SlotFreed(slot=slot.name))

    def _freed(self, slot: Slot, cause: str, *said: Record) -> Records:
        """Put a slot back on offer, unless it was closed meanwhile."""
        self._ledger.move(slot, cause)
        if not slot.closed:
            return list(said)
        self._ledger.move(slot, "fail")
        return []

    def _drain_slot(self, event: SettingChanged) -> Records:
        """Take a slot out of the pool by a person's wish, or back in."""
        slot = self._ledger.slots.get(str(event.value))
        if slot is None:
            return [refused(event.key, f"slot {event.value!r} is not in the pool")]
        if event.key == "slot.drain":
            return [] if slot.closed else self._shut(slot, "drained by hand")
        if not slot.closed:
            return [refused(event.key, f"slot {slot.name} is not closed")]
        slot.closed, slot.deaths = "", ()
        if slot.state != "failed" or slot.gone:
            return []
        self._ledger.move(slot, "restart")
        return [SlotFreed(slot=slot.name)]


def refused(subject: str, reason: str) -> RequestRefused:
    """Return the refusal of something that changes nothing."""
    return RequestRefused(subject=subject, reason=reason)
