"""Apply what masters ask: requests of slots, polls, cancellations, renewals and returns of leases."""

from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.life import Lease, TaskBook
from drlnb.planning.leasing.slots import free_again, refuse
from drlnb.planning.leasing.steps import ask, drain, drop, end_all, end_hopeless, polled, release, renew
from drlnb.records.base import Record, shared
from drlnb.records.columns import leasing as records
from drlnb.records.columns.placement import TaskStopped
from drlnb.records.settings import count

_OfLease = records.RequestPolled | records.RequestCancelled | records.LeaseRenewed | records.LeaseReturned
#: Priorities that a task may have: some steps to both sides, each worth ``age_quantum_s`` of waiting.
PRIORITIES = count(-100, 100)


def slot_requested(ledger: Ledger, event: records.SlotRequested, out: list[Record]) -> None:
    """Enter a request, or answer one that is repeated."""
    book = ledger.tasks.setdefault(event.task, TaskBook())
    known = ledger.open.get(event.request_id)
    if known is not None and (known.task, known.attempt, known.round) == (event.task, event.attempt, event.round):
        _repeated(ledger, known, out)
    elif problem := _problem(event, book, known):
        refuse(out, event.request_id, problem)
    else:
        asked = shared(event, Lease) | {"asked_t": event.t, "allowed": tuple(sorted(set(event.allowed)))}
        lease = Lease(**asked)
        if never := ledger.why_never(lease.task, lease.kind):
            out.append(records.RequestRefused(subject=event.request_id, reason=never, final=True))
            return
        _raise_floor(ledger, book, event.attempt, f"superseded by attempt {event.attempt}", out)
        ask(ledger, lease)


def _problem(event: records.SlotRequested, book: TaskBook, known: Lease | None) -> str:
    """Return why a request is refused; empty if it is not."""
    if known is not None:
        return f"is taken by task {known.task}, round {known.round}"
    if event.attempt < book.floor:
        return f"attempt {event.attempt} is over: {book.floor} or later may ask"
    if event.request_id in book.ended:
        return "is over"
    if any((other.attempt, other.round) == (event.attempt, event.round) for other in book.open.values()):
        return f"another request of round {event.round} is open"
    if event.n_slots < 1:
        return f"n_slots must be >= 1, got {event.n_slots}"
    if not 0 <= event.n_least <= event.n_slots:
        return f"n_least must be in 0..n_slots = {event.n_slots}, got {event.n_least}"
    return PRIORITIES.problem("task.priority", event.priority)


def request_polled(ledger: Ledger, event: records.RequestPolled, out: list[Record]) -> None:
    """Keep the place of a request whose master still waits."""
    if lease := _meant(ledger, event, out):
        _repeated(ledger, lease, out)


def _meant(ledger: Ledger, event: _OfLease, out: list[Record]) -> Lease | None:
    """Return the request or lease that an event is about; refuse the event if there is none."""
    if isinstance(event, records.RequestPolled | records.RequestCancelled):
        lease, subject, why = ledger.open.get(event.request_id), event.request_id, "is not open"
    else:
        lease, subject, why = ledger.held(event.fence), str(event.fence), ledger.why_stale(event.fence)
    if lease is None:
        refuse(out, subject, why)
    return lease


def _repeated(ledger: Ledger, lease: Lease, out: list[Record]) -> None:
    """Answer a repeated request: nothing while it waits; while it is held the same grant, whose answer was lost."""
    if lease.state == "pending":
        polled(ledger, lease)
    else:
        renew(ledger, lease)
        out.append(ledger.grant_command(lease))


def request_cancelled(ledger: Ledger, event: records.RequestCancelled, out: list[Record]) -> None:
    """Remove a request; one that was granted meanwhile may have been used, so its slot must drain."""
    lease = _meant(ledger, event, out)
    if lease is not None and lease.state == "granted":
        end_all(ledger, [lease], "cancelled", out)
    elif lease is not None:
        drop(ledger, lease)


def lease_renewed(ledger: Ledger, event: records.LeaseRenewed, out: list[Record]) -> None:
    """Count a holder's sign of life."""
    if lease := _meant(ledger, event, out):
        renew(ledger, lease)


def lease_returned(ledger: Ledger, event: records.LeaseReturned, out: list[Record]) -> None:
    """End a lease; its slots are free at once, or drain where work is in flight."""
    lease = _meant(ledger, event, out)
    if lease is None:
        return
    if len(event.computed_s) != len(lease.slots):
        refuse(out, str(event.fence), f"computed_s has {len(event.computed_s)} numbers for {len(lease.slots)} slots")
        return
    release(ledger, lease, "yielded" if event.yielded else "returned", out, event.computed_s)
    if not event.clean:
        drain(ledger, lease, "returned with work in flight", out)
        return
    _remember_version(ledger, lease, event)
    for slot in (ledger.slots[name] for name in lease.slots):
        slot.deaths = ()
        free_again(ledger, slot, "return")


def _remember_version(ledger: Ledger, lease: Lease, event: records.LeaseReturned) -> None:
    """Remember which slots hold the parameters that the task goes on with: those that computed, the lead the newest."""
    book, lead = ledger.tasks[lease.task], lease.slots[0]
    used = [name for name, computed_s in zip(lease.slots, event.computed_s, strict=True) if computed_s > 0]
    held = {name: (lease.round, ledger.slots[name].executor_epoch) for name in used}
    if held and not event.yielded:
        book.resident = {}
        held[lead] = (lease.round + 1, ledger.slots[lead].executor_epoch)
    book.resident |= held


def task_moved(
    ledger: Ledger, task: str, home: tuple[str, ...], allowed: tuple[str, ...], refusal: str, out: list[Record]
) -> None:
    """Give what waits of a task other slots, at home and allowed; end it for a refusal, or if it can never be met."""
    book = ledger.tasks.get(task, TaskBook())
    for lease in [lease for lease in book.open.values() if lease.state == "pending"]:
        ledger.unindex_waiting(lease)
        lease.home, lease.allowed = home, allowed
        ledger.index_waiting(lease)
        end_hopeless(ledger, lease, out, refusal)


def task_stopped(ledger: Ledger, event: TaskStopped, out: list[Record]) -> None:
    """End whatever a task's attempts up to this one want or hold."""
    book = ledger.tasks.setdefault(event.task, TaskBook())
    ledger.load.gone(event.task)
    book.resident.clear()
    _raise_floor(ledger, book, event.attempt + 1, "task-stopped", out)


def _raise_floor(ledger: Ledger, book: TaskBook, floor: int, reason: str, out: list[Record]) -> None:
    """End whatever a task's attempts below `floor` want or hold."""
    book.floor = max(book.floor, floor)
    end_all(ledger, [lease for lease in book.open.values() if lease.attempt < book.floor], reason, out)
