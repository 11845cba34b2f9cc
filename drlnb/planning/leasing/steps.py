"""Move slots, requests and leases from state to state.

The rules of the lease table decide which step follows from which event; each step keeps the indices of the ledger
consistent with each other, and refuses what the transition tables of :mod:`drlnb.planning.leasing.life` do not have.
"""

from collections.abc import Iterable

from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.life import LEASE_LIFE, SLOT_LIFE, Lease, Slot
from drlnb.planning.machine import Impossible
from drlnb.records.base import Record, Row, shared
from drlnb.records.columns import leasing as records


# -------------------------------------------------------------------- slots
def move(ledger: Ledger, slot: Slot, cause: str, token: int = 0) -> None:
    """Bring a slot into its next state; `token` is that of its new holder."""
    after = SLOT_LIFE.get((slot.state, cause))
    if after is None:
        raise Impossible(f"slot {slot.name} {slot.state}, {cause}")
    if slot.state == "granted":
        slot.used_t, slot.lent_s = ledger.t, slot.under_work_s(ledger.t)
    slot.drains = slot.token if after == "draining" else 0
    ledger.n_live -= slot.state != "failed"
    ledger.reserved.discard(slot.name)
    ledger.free.pop(slot.name, None)
    slot.state, slot.token = after, token
    if after == "granted":
        slot.lent_t = ledger.t
    ledger.index_slot(slot)


def drain(ledger: Ledger, lease: Lease, reason: str, out: list[Record]) -> None:
    """Drain what an ended lease still holds."""
    for slot in (ledger.slots[name] for name in lease.slots):
        if slot.token == lease.token:
            move(ledger, slot, "drain")
            out.append(records.SlotDrained(slot=slot.name, reason=reason))
            out.append(records.RevokeLease(fence=ledger.fence_of(lease.token), slot=slot.name, reason=reason))


# -------------------------------------------------------------------- requests
def ask(ledger: Ledger, lease: Lease) -> None:
    """Enter a new request at its place in the queue."""
    ledger.n_asked += 1
    lease.number = ledger.n_asked
    book = ledger.tasks[lease.task]
    ledger.open[lease.request_id] = book.open[lease.request_id] = lease
    ledger.load.asked(lease.task, book, lease)
    lease.polled_s = ledger.t - ledger.lag_s
    line_up(ledger, lease)


def line_up(ledger: Ledger, lease: Lease) -> None:
    """Give a waiting request its place in the queue."""
    book = ledger.tasks[lease.task]
    priority = lease.priority if book.priority is None else book.priority
    if ledger.settings.queue == "drr":
        lease.turn = max(ledger.load.turn, book.turn)
        lease.rank = lease.turn - priority * ledger.load.quantum_s
    else:
        lease.turn = 0.0
        lease.rank = lease.asked_t - ledger.settings.age_quantum_s * priority
    ledger.index_waiting(lease)


def polled(ledger: Ledger, lease: Lease) -> None:
    """Count a requester as waiting still."""
    lease.polled_s = ledger.t - ledger.lag_s


def drop(ledger: Ledger, lease: Lease) -> None:
    """Remove a request from the queue for good."""
    _close(ledger, lease, "drop")


def end_hopeless(ledger: Ledger, lease: Lease, out: list[Record], never: str = "") -> None:
    """Refuse a waiting request for good if it can never be met, or for the reason that is given."""
    if never := never or ledger.why_never(lease.task, lease.kind):
        drop(ledger, lease)
        out.append(records.RequestRefused(subject=lease.request_id, reason=never, final=True))


# -------------------------------------------------------------------- leases
def grant(
    ledger: Ledger, lease: Lease, slots: tuple[str, ...], out: list[Record], *, demand: bool, resident: bool
) -> None:
    """Lend free or reserved slots to a request; `demand`: somebody else waits for one of them."""
    settings = ledger.settings
    _advance(ledger, lease, "grant")
    ledger.unindex_waiting(lease)
    ledger.token += 1
    lease.token, lease.slots, lease.granted_t = ledger.token, slots, ledger.t
    lease.ttl_s, lease.seen_s = settings.ttl_s, ledger.t - ledger.lag_s
    p95_s = ledger.tasks[lease.task].hold_p95_s or 0.0
    lease.max_hold_s = max(settings.max_hold_s, settings.max_hold_factor * p95_s)
    lease.asked, lease.resident = demand and lease.yields, resident
    ledger.load.turn = max(ledger.load.turn, lease.turn)
    for name in slots:
        move(ledger, ledger.slots[name], "grant", lease.token)
    ledger.index_lease(lease)
    granted = records.LeaseGranted(fence=ledger.fence_of(lease.token), **shared(lease, records.LeaseGranted))
    out += [granted, ledger.grant_command(lease)]


def renew(ledger: Ledger, lease: Lease) -> None:
    """Count a sign of life."""
    lease.seen_s = ledger.t - ledger.lag_s


def release(
    ledger: Ledger, lease: Lease, reason: str, out: list[Record], computed_s: tuple[float, ...] | None = None
) -> None:
    """End a lease, of which each slot has computed so many seconds; its slots are still to be moved."""
    computed_s = computed_s or (0.0,) * len(lease.slots)
    ended = _end(ledger, lease, "release", sum(computed_s))
    out.append(records.LeaseReleased(**ended, computed_s=computed_s, reason=reason))


def expire(ledger: Ledger, lease: Lease, reason: str, out: list[Record]) -> None:
    """End a lease whose holder is silent or too slow, and drain its slots."""
    ended = _end(ledger, lease, "expire")
    out.append(records.LeaseExpired(**ended, silent_s=max(0.0, ledger.t - ledger.lag_s - lease.seen_s)))
    drain(ledger, lease, reason, out)


def end_all(ledger: Ledger, leases: Iterable[Lease], reason: str, out: list[Record]) -> None:
    """End requests and leases whose owner is gone."""
    for lease in tuple(leases):
        if lease.state == "granted":
            release(ledger, lease, reason, out)
            drain(ledger, lease, reason, out)
        else:
            drop(ledger, lease)
            out.append(records.RequestRefused(subject=lease.request_id, reason=reason))


def _end(ledger: Ledger, lease: Lease, cause: str, computed_s: float = 0.0) -> Row:
    """End a lease and return what is recorded of every end."""
    _close(ledger, lease, cause)
    held_s = round(ledger.t - lease.granted_t, 6)
    ledger.load.ended(ledger.tasks[lease.task], lease, held_s, computed_s)
    return {"fence": ledger.fence_of(lease.token), "held_s": held_s, "task": lease.task, "slots": lease.slots}


def _advance(ledger: Ledger, lease: Lease, cause: str) -> None:
    after = LEASE_LIFE.get((lease.state, cause))
    if after is None:
        raise Impossible(f"request {lease.request_id} {lease.state}, {cause}")
    lease.state = after


def _close(ledger: Ledger, lease: Lease, cause: str) -> None:
    """End a request or lease and forget it, but for its id."""
    _advance(ledger, lease, cause)
    book = ledger.tasks[lease.task]
    del ledger.open[lease.request_id], book.open[lease.request_id]
    book.ended.append(lease.request_id)
    ledger.unindex_waiting(lease)
    ledger.unindex_lease(lease)
