"""State what must be true of a lease table after each event, whatever came before (leasing: I1, I2, I5, I6, I7).

That the indices are functions of slots and requests is checked by the tests alone: tests/planning/lease_indices.py.
"""

from collections.abc import Iterator

from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.life import SLOT_STATES

__all__ = ["laws"]


def laws(ledger: Ledger) -> Iterator[tuple[bool, str]]:
    """Yield whether each law of the state holds, and the law in words."""
    live, slots = ledger.live, ledger.slots.values()
    yield all(slot.state in SLOT_STATES for slot in slots), "a slot is in one of the known states"
    held = [(name, token) for token, lease in live.items() for name in lease.slots]
    yield len({name for name, _ in held}) == len(held), "no slot has two live leases"
    granted = {(slot.name, slot.token) for slot in slots if slot.state == "granted"}
    yield granted == set(held), "the granted slots are those of the live leases"
    on_offer = [slot for slot in slots if slot.state in {"free", "reserved"}]
    yield not any(slot.closed for slot in on_offer), "a closed slot is not on offer"
    yield all(0 < token <= ledger.token for token in live), "no fence is above the last one granted"
    yield ledger.reaping or not live, "a reap deadline is set while a lease is held"
    epochs = [epoch for _, epoch in ledger.former] + [ledger.epoch]
    yield epochs == sorted(set(epochs)), "epochs rise"
    yield from _of_requests(ledger)


def _of_requests(ledger: Ledger) -> Iterator[tuple[bool, str]]:
    pending = [lease for lease in ledger.open.values() if lease.state == "pending"]
    n_free = [(lease.kind, sum(slot.state == "free" for slot in ledger.usable(lease.kind))) for lease in pending]
    yield all(n < ledger.n_due(kind) for kind, n in n_free), "nobody waits while a slot is free"
    never = [ledger.why_never(lease.task, lease.kind) for lease in pending]
    yield not any(never), "nobody waits for what can never be"
    yield all(not lease.slots for lease in pending), "a waiting request holds nothing"
    yield ledger.gang is None or ledger.open.get(ledger.gang) in pending, "the gang that slots are kept for waits"
    live = ledger.live.values()
    whole = [lease.kind.n_least <= len(lease.slots) <= lease.n_slots for lease in live]
    yield all(whole), "a lease holds all of its slots, or what does where no more are up"
    yield all(not lease.allowed or set(lease.slots) <= set(lease.allowed) for lease in live), "only allowed slots"
    floors = {name: book.floor for name, book in ledger.tasks.items()}
    yield all(lease.attempt >= floors[lease.task] for lease in ledger.open.values()), "no attempt that is over is open"
    keys = {(lease.task, lease.attempt, lease.round) for lease in ledger.open.values()}
    yield len(keys) == len(ledger.open), "one open request per task, attempt and round"
