"""Grant free slots to waiting requests by rank, and reserve slots for gangs.

**Rank.**  ``fifo``: effective priority grows linearly with waiting, so the order is a constant number, the time of
asking less ``age_quantum_s`` x priority, smallest first.  ``drr``: deficit round robin, whose virtual time counts slot
seconds: each task's next turn comes after its latest lease has been paid off; a priority step is worth a median hold.

**Gangs** get all of their slots or none, and hold nothing while they wait.  One that is first in the order has free
slots kept for it, else requests of one slot would pass it for ever; somebody behind it may use one only if, by the 95th
percentile of its holds, it is back before the gang could start.  One gang at a time, so that no two wait for each
other's slots.
"""

from collections.abc import Collection

from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.life import Lease
from drlnb.planning.leasing.queueing import RequestKind
from drlnb.planning.leasing.steps import drop, grant, move
from drlnb.records.base import Record
from drlnb.records.columns.leasing import AskYield, RequestRefused, RequestUnmet, SlotsReserved

__all__ = ["PLACE_LOST", "ask_holders", "pump"]

#: Why a waiting request is refused whose requester has stopped polling; it may ask again, under another id.
PLACE_LOST = "place lost: its requester is silent"


def pump(ledger: Ledger, out: list[Record]) -> None:
    """Grant free slots to those who wait, in their order."""
    if not ledger.queue and not ledger.reserved:
        return
    while True:
        _reserve(ledger, out)
        request_id = ledger.queue.first(lambda kind: _fits(ledger, kind))
        if request_id is None:
            break
        _grant(ledger, ledger.open[request_id], out)
    if ledger.reserved:
        _back_fill(ledger, out)


def ask_holders(ledger: Ledger, lease: Lease, out: list[Record]) -> None:
    """Ask the holders that would give way, and have not been asked, to do so for a request of a slot like theirs."""
    for holder in ledger.live.values():
        gives_way = holder.yields and not holder.asked and holder.task != lease.task
        if gives_way and (not lease.allowed or set(holder.slots) & set(lease.allowed)):
            holder.asked = True
            out.append(AskYield(fence=ledger.fence_of(holder.token), task=holder.task, node=holder.node))


# -------------------------------------------------------------------- grants
def _fits(ledger: Ledger, kind: RequestKind) -> bool:
    n_free = sum(name in ledger.free for name in kind.allowed) if kind.allowed else len(ledger.free)
    return n_free >= kind.n_least and n_free >= ledger.n_due(kind)


def _grant(ledger: Ledger, lease: Lease, out: list[Record], slots: tuple[str, ...] = ()) -> None:
    """Lend `slots`, or the best free ones, to a request; refuse it if nobody polls for it any more."""
    settings = ledger.settings
    if settings.lost_polls and ledger.t - ledger.lag_s - lease.polled_s > settings.lost_polls * settings.poll_s:
        drop(ledger, lease)
        out.append(RequestRefused(subject=lease.request_id, reason=PLACE_LOST))
        return
    slots = slots or _choose(ledger, lease, ledger.free)
    demand = any(
        not kind.allowed or not set(kind.allowed).isdisjoint(slots)
        for kind in ledger.queue.kinds
        if ledger.queue.n(kind) > (lease.kind == kind)
    )
    _count_lacking(ledger, lease, len(slots), out)
    resident = settings.residency and all(ledger.holds_version(lease, name) for name in slots)
    grant(ledger, lease, slots, out, demand=demand, resident=resident)


def _count_lacking(ledger: Ledger, lease: Lease, n_lent: int, out: list[Record]) -> None:
    """Remember how many slots a lease lacks, and say so if it is not as many as the one before lacked."""
    book, n_lacking = ledger.tasks[lease.task], lease.n_slots - n_lent
    if n_lacking and n_lacking != book.n_lacking:
        which = {"request_id": lease.request_id, "task": lease.task}
        out.append(RequestUnmet(**which, n_slots=lease.n_slots, n_allowed=n_lent, waits=False))
    book.n_lacking = n_lacking


def _choose(ledger: Ledger, lease: Lease, among: Collection[str]) -> tuple[str, ...]:
    """Return slots for a request, of some: holding its version, its task's own, on its node, longest unused."""
    preferred: list[str] = []
    if ledger.settings.residency:
        preferred = [slot for slot in ledger.tasks[lease.task].resident if slot in among]
        preferred = [slot for slot in preferred if ledger.holds_version(lease, slot)]
        preferred += [slot for slot in lease.home if slot in among and slot not in preferred]

    def rank(name: str) -> tuple[int, bool, float, str]:
        """Preferred ones in their order, then the own node, then the longest rest."""
        place = preferred.index(name) if name in preferred else len(preferred)
        return place, ledger.slots[name].node != lease.node, ledger.slots[name].used_t, name

    usable = [name for name in lease.allowed or among if name in among]
    return tuple(sorted(usable, key=rank)[: ledger.n_due(lease.kind)])


# -------------------------------------------------------------------- reservations
def _reserve(ledger: Ledger, out: list[Record]) -> None:
    """Keep free slots for the gang whose turn it is; grant it when it has all."""
    while True:
        gang = _gang(ledger)
        if gang is None or ledger.gang != gang.request_id:
            ledger.gang = None if gang is None else gang.request_id
            for name in sorted(ledger.reserved):
                move(ledger, ledger.slots[name], "unreserve")
        if gang is None:
            return
        free = sorted((slot for slot in ledger.usable(gang.kind) if slot.state == "free"), key=lambda slot: slot.name)
        there = {*ledger.reserved, *[slot.name for slot in free]}
        if len(there) < ledger.n_due(gang.kind):
            for slot in free:
                move(ledger, slot, "reserve")
            if free:
                out.append(_reserved(ledger, gang))
            return
        _grant(ledger, gang, out, _choose(ledger, gang, there))


def _reserved(ledger: Ledger, gang: Lease) -> SlotsReserved:
    start_t = _start(ledger, gang)
    return SlotsReserved(
        request_id=gang.request_id,
        task=gang.task,
        slots=tuple(sorted(ledger.reserved)),
        starts_in_s=None if start_t is None else max(0.0, start_t - ledger.t),
    )


def _gang(ledger: Ledger) -> Lease | None:
    """Return the gang that slots are kept for: the one so far while it can be served, else one that is next.

    Nobody before it in the order that can be served wants any of its slots.
    """
    known = ledger.open.get(ledger.gang or "")
    if known is not None and ledger.n_usable(known.kind) >= known.kind.n_least:
        return known
    if all(kind.n_slots == 1 for kind in ledger.queue.kinds):
        return None
    wanted = set[str]()
    for request_id in ledger.queue.heads(lambda kind: ledger.n_usable(kind) >= kind.n_least):
        lease = ledger.open[request_id]
        slots = {slot.name for slot in ledger.usable(lease.kind)}
        if lease.n_slots > 1 and not slots & wanted:
            return lease
        wanted |= slots
    return None


def _start(ledger: Ledger, gang: Lease) -> float | None:
    """Return when the gang is expected to have its slots, by the 95th percentile of the holds; None if unknown."""
    ends = sorted(_free_at(ledger, slot.token) for slot in ledger.usable(gang.kind) if slot.state == "granted")
    missing = ledger.n_due(gang.kind) - len(ledger.reserved)
    if len(ends) < missing or ends[missing - 1] == float("inf"):
        return None
    return ends[missing - 1]


def _free_at(ledger: Ledger, token: int) -> float:
    lease = ledger.live[token]
    p95_s = ledger.tasks[lease.task].hold_p95_s
    return float("inf") if p95_s is None else max(ledger.t, lease.granted_t + p95_s)


def _back_fill(ledger: Ledger, out: list[Record]) -> None:
    """Lend reserved slots to single requests that will be back before the gang could start."""
    start_t = _start(ledger, ledger.open[ledger.gang or ""])
    if start_t is None:
        return
    for request_id in tuple(ledger.queue):
        lease = ledger.open[request_id]
        p95_s = ledger.tasks[lease.task].hold_p95_s
        names = sorted(name for name in ledger.reserved if not lease.allowed or name in lease.allowed)
        if lease.n_slots == 1 and names and p95_s is not None and ledger.t + p95_s <= start_t:
            _grant(ledger, lease, out, (names[0],))
