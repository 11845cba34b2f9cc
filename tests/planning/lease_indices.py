"""Host the rules of leasing alone, and check its indices: functions of slots and requests, which no law looks at."""

from drlnb.planning.leasing import machine as leasing
from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.machine import Machine
from drlnb.planning.pool import PoolMachine


class LeaseTable(Machine):
    """The leases of a pool without its placement."""

    def __init__(self, settings, epoch):
        super().__init__("lease table", Ledger(settings, epoch), leasing.RULES)

    def _apply(self, rule, event, out):
        leasing.apply(self.state, rule, event, out)

    def laws(self):
        return leasing.laws(self.state)


def index_laws(ledger):
    """Yield whether each index is what slots and requests say, and the law in words."""
    slots = {
        state: {slot.name for slot in ledger.slots.values() if slot.state == state} for state in ("free", "reserved")
    }
    yield slots["free"] == ledger.free.keys(), "the free slots are on offer"
    yield all(ledger.slots[name] is slot for name, slot in ledger.free.items()), "a slot on offer is that of its name"
    yield slots["reserved"] == ledger.reserved, "the reserved slots are those that are kept"
    yield ledger.gang is not None or not ledger.reserved, "slots are reserved for a gang that waits"
    n_live = sum(slot.state != "failed" for slot in ledger.slots.values())
    yield ledger.n_live == n_live, "the live slots are counted"
    pending = {name: lease for name, lease in ledger.open.items() if lease.state == "pending"}
    yield pending.keys() == set(ledger.queue), "the pending requests are those in the queue"
    yield {lease.kind for lease in pending.values()} == set(ledger.queue.kinds), "the queue knows the kinds that wait"
    order = [(ledger.open[name].rank, ledger.open[name].number) for name in ledger.queue]
    yield order == sorted(order), "the queue is in the order of ranks"
    live = ledger.live
    granted = {name for name, lease in ledger.open.items() if lease.state == "granted"}
    yield granted == {lease.request_id for lease in live.values()}, "the granted requests are the live leases"
    yield list(live) == sorted(live), "leases are in the order of their fences"
    for name, book in ledger.tasks.items():
        mine = {lease.request_id for lease in ledger.open.values() if lease.task == name}
        yield mine == book.open.keys(), "each task knows its open requests"


class _Checked:
    """Checks itself, its indices too, after each event."""

    @property
    def ledger(self):
        return getattr(self.state, "leases", self.state)

    def handle(self, event):
        out = super().handle(event)
        self.check()
        return out

    def laws(self):
        yield from super().laws()
        yield from index_laws(self.ledger)


class CheckedTable(_Checked, LeaseTable):
    """A lease table that checks itself after each event."""


class CheckedPool(_Checked, PoolMachine):
    """A pool that checks itself after each event."""
