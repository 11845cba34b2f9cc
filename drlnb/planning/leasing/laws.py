"""State what must be true of a lease table after each event, whatever came before (leasing: I1, I2, I5, I6, I7)."""

from collections.abc import Iterator

from drlnb.planning.leasing.ledger import Ledger, kind_of
from drlnb.planning.leasing.life import SLOT_STATES

__all__ = ["laws"]


def laws(ledger: Ledger) -> Iterator[tuple[bool, str]]:
    """Yield whether each law of the state holds, and the law in words."""
    yield from _of_slots(ledger)
    yield from _of_requests(ledger)
    yield from _of_indices(ledger)


def _of_slots(ledger: Ledger) -> Iterator[tuple[bool, str]]:
    live, slots = ledger.live, ledger.slots.values()
    yield all(slot.state in SLOT_STATES for slot in slots), "a slot is in one of the known states"
    held = [(name, token) for token, lease in live.items() for name in lease.slots]
    yield len({name for name, _ in held}) == len(held), "no slot has two live leases"
    granted = {(slot.name, slot.token) for slot in slots if slot.state == "granted"}
    yield granted == set(held), "the granted slots are those of the live leases"
    free = {slot.name for slot in slots if slot.state == "free"}
    yield len(free) == len(ledger.free) and all(name in ledger.free for name in free), "the free slots are on offer"
    reserved = {slot.name for slot in slots if slot.state == "reserved"}
    yield reserved == ledger.reserved, "the reserved slots are those that are kept"
    yield ledger.gang is not None or not reserved, "slots are reserved for a gang that waits"
    yield (
        all(not slot.closed or slot.state in {"granted", "draining", "failed"} for slot in slots),
        ("a closed slot is not on offer"),
    )
    yield ledger.n_live == sum(slot.state != "failed" for slot in slots), "the live slots are counted"


def _of_requests(ledger: Ledger) -> Iterator[tuple[bool, str]]:
    pending = {name: lease for name, lease in ledger.open.items() if lease.state == "pending"}
    fits = [
        lease
        for lease in pending.values()
        if sum(slot.state == "free" for slot in ledger.usable(lease)) >= lease.n_slots
    ]
    yield not fits, "nobody waits while a slot is free"
    yield pending.keys() == set(ledger.queue), "the pending requests are those in the queue"
    yield all(not lease.slots for lease in pending.values()), "a waiting request holds nothing"
    live = ledger.live.values()
    yield all(len(lease.slots) == lease.n_slots for lease in live), "a lease holds all of its slots"
    yield all(not lease.allowed or set(lease.slots) <= set(lease.allowed) for lease in live), "only allowed slots"
    order = [(lease.rank, lease.number) for lease in map(ledger.open.__getitem__, ledger.queue)]
    yield order == sorted(order), "the queue is in the order of ranks"
    yield ledger.gang is None or ledger.gang in pending, "the gang that slots are kept for waits"
    floors = {name: book.floor for name, book in ledger.tasks.items()}
    yield all(lease.attempt >= floors[lease.task] for lease in ledger.open.values()), "no attempt that is over is open"
    keys = {(lease.task, lease.attempt, lease.round) for lease in ledger.open.values()}
    yield len(keys) == len(ledger.open), "one open request per task, attempt and round"


def _of_indices(ledger: Ledger) -> Iterator[tuple[bool, str]]:
    live = ledger.live
    granted_ids = {name for name, lease in ledger.open.items() if lease.state == "granted"}
    yield granted_ids == {lease.request_id for lease in live.values()}, "the granted requests are the live leases"
    yield all(0 < token <= ledger.token for token in live), "no fence is above the last one granted"
    epochs = [epoch for _, epoch in ledger.former] + [ledger.epoch]
    yield epochs == sorted(set(epochs)), "epochs rise"
    yield list(live) == sorted(live), "leases are in the order of their fences"
    yield len(ledger.silent) == len(live) and all(token in ledger.silent for token in live), "each silence is watched"
    yield len(ledger.longest) == len(live) and all(token in ledger.longest for token in live), "each hold is watched"
    kinds = {kind_of(lease) for lease in ledger.open.values() if lease.state == "pending"}
    yield set(ledger.queue.kinds) == kinds, "the queue knows the kinds of those who wait"
    unasked = {token for token, lease in live.items() if lease.yields and not lease.asked}
    yield unasked == set(ledger.unasked), "who would give way and was not asked is known"
    yield ledger.reaping or not live, "a reap deadline is set while a lease is held"
