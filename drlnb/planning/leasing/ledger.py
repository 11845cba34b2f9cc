"""What is lent to whom, who waits, and the elementary steps of that state.

The lease table decides which step follows from which event; each step here keeps the indices consistent with each
other, and refuses what the transition tables of :mod:`drlnb.planning.leasing.life` do not have.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Self

from drlnb.planning.leasing.life import LEASE_LIFE, SLOT_LIFE, SLOT_STATES, Lease, Slot, TaskBook
from drlnb.planning.leasing.queueing import FifoQueue, FreeSlots, Ranking
from drlnb.records.base import Event, Record
from drlnb.records.errors import InvalidTransition
from drlnb.records.ids import Fence
from drlnb.records.leasing import (
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    RequestRefused,
    RevokeLease,
    SendGrant,
    SlotDrained,
)

__all__ = ["Ledger", "Records"]

#: What a machine answers, in its order.
Records = list[Record]


class Ledger:
    """The state of one lease table of epoch `epoch`."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        #: Time of the last event, in seconds.
        self.t = 0.0
        #: Seconds that the owner's loop stood still so far: silence then is nobody's fault.
        self.lag_s = 0.0
        #: Token of the last grant.
        self.token = 0
        self.slots: dict[str, Slot] = {}
        self.tasks: dict[str, TaskBook] = {}
        #: Requests and leases that have not ended, by request id.
        self.open: dict[str, Lease] = {}
        self.queue = FifoQueue()
        #: Leases by token, so in the order of their grants.
        self.live: OrderedDict[int, Lease] = OrderedDict()
        self.free = FreeSlots()
        #: Tokens by the second, on the clock less its lag, at which silence will have lasted too long.
        self.silent: Ranking[int] = Ranking()
        self._event: Event | None = None
        self._task: str | None = None

    # -------------------------------------------------------------- the event in hand
    def begin(self, event: Event) -> None:
        """Note the event that the next steps belong to.

        Raises
        ------
        InvalidTransition
            If it is older than the last one, or its time is not a number.
        """
        self._event, self._task = event, self._task_of(event)
        if not event.t >= self.t:  # "not >=" also catches nan
            raise self.forbidden(f"at t={self.t:g} s")
        self.t = event.t

    def tell(self, records: Iterable[Record]) -> None:
        """Add records to the stories of their tasks; those that name none belong to the task of the event in hand."""
        for record in records:
            book = self.tasks.get(getattr(record, "task", None) or self._task or "")
            if book is not None:
                book.story.append(record)

    def _task_of(self, event: Event) -> str | None:
        fence = getattr(event, "fence", None)
        lease = self.open.get(getattr(event, "request_id", "")) if fence is None else self.held(fence)
        task: str | None = getattr(event, "task", None)
        return lease.task if task is None and lease is not None else task

    def forbidden(self, state: str) -> InvalidTransition:
        """Return the error for the event in hand, with the story of its task."""
        book = self.tasks.get(self._task or "")
        return InvalidTransition("lease table", state, self._event, () if book is None else book.story)

    # -------------------------------------------------------------- looking
    def fence(self, lease: Lease) -> Fence:
        """Return the fence of a lease."""
        return Fence(epoch=self.epoch, token=lease.token)

    def held(self, fence: Fence) -> Lease | None:
        """Return the live lease of a fence, if there is one."""
        return self.live.get(fence.token) if fence.epoch == self.epoch else None

    def stale(self, fence: Fence) -> RequestRefused:
        """Return the refusal of a fence that no live lease has."""
        if fence.epoch != self.epoch:
            reason = f"is of epoch {fence.epoch}, this table of {self.epoch}"
        else:
            reason = "is over" if 0 < fence.token <= self.token else "was never granted"
        return RequestRefused(subject=str(fence), reason=reason)

    def grant_command(self, lease: Lease) -> SendGrant:
        """Return the answer to the requester of a granted lease."""
        return SendGrant(
            request_id=lease.request_id,
            task=lease.task,
            fence=self.fence(lease),
            slots=lease.slots,
            ttl_s=lease.ttl_s,
            waited_s=lease.granted_t - lease.asked_t,
        )

    # -------------------------------------------------------------- steps of a slot
    def add(self, slot: Slot) -> None:
        """Enter a new slot, free."""
        self.slots[slot.name] = slot
        self.free.put(slot.name, slot.node, slot.used_t)

    def move(self, slot: Slot, cause: str, token: int = 0) -> None:
        """Take a slot to its next state; `token` is that of its new holder."""
        after = SLOT_LIFE.get((slot.state, cause))
        if after is None:
            raise self.forbidden(f"slot {slot.name} {slot.state}, {cause}")
        if slot.state == "granted":
            slot.used_t = self.t
        slot.state, slot.token = after, token
        if after == "free":
            self.free.put(slot.name, slot.node, slot.used_t)
        else:
            self.free.drop(slot.name, slot.node)

    def drain(self, lease: Lease, reason: str) -> Records:
        """Drain what an ended lease still holds."""
        out: Records = []
        for slot in (self.slots[name] for name in lease.slots):
            if slot.token == lease.token:
                self.move(slot, "drain")
                out.append(SlotDrained(slot=slot.name, reason=reason))
                out.append(RevokeLease(fence=self.fence(lease), slot=slot.name, reason=reason))
        return out

    # -------------------------------------------------------------- steps of a request and its lease
    def ask(self, lease: Lease) -> None:
        """Enter a new request at the end of the queue."""
        self.open[lease.request_id] = self.tasks[lease.task].open[lease.request_id] = lease
        self.queue.put(lease.request_id)

    def grant(self, lease: Lease, slot: str, ttl_s: float) -> Records:
        """Lend a free slot to a request."""
        self._advance(lease, "grant")
        self.queue.drop(lease.request_id)
        self.token += 1
        lease.token, lease.slots, lease.granted_t, lease.ttl_s = self.token, (slot,), self.t, ttl_s
        self.live[lease.token] = lease
        self.move(self.slots[slot], "grant", lease.token)
        self.see(lease)
        granted = LeaseGranted(
            fence=self.fence(lease),
            request_id=lease.request_id,
            task=lease.task,
            attempt=lease.attempt,
            round=lease.round,
            slots=lease.slots,
            waited_s=lease.granted_t - lease.asked_t,
        )
        return [granted, self.grant_command(lease)]

    def see(self, lease: Lease) -> None:
        """Note a sign of life."""
        lease.seen_s = self.t - self.lag_s
        self.silent.put(lease.token, lease.seen_s + lease.ttl_s)

    def drop(self, lease: Lease) -> None:
        """Take a request out of the queue for good."""
        self._close(lease, "drop")

    def release(self, lease: Lease, reason: str, computed_s: float = 0.0) -> Records:
        """End a lease; its slots are still to be moved."""
        self._close(lease, "release")
        released = LeaseReleased(
            fence=self.fence(lease),
            task=lease.task,
            slots=lease.slots,
            held_s=self.t - lease.granted_t,
            computed_s=computed_s,
            reason=reason,
        )
        return [released]

    def expire(self, lease: Lease, reason: str) -> Records:
        """Take a lease away and drain its slots."""
        self._close(lease, "expire")
        expired = LeaseExpired(
            fence=self.fence(lease),
            task=lease.task,
            slots=lease.slots,
            held_s=self.t - lease.granted_t,
            silent_s=max(0.0, self.t - self.lag_s - lease.seen_s),
        )
        return [expired, *self.drain(lease, reason)]

    def end(self, leases: Iterable[Lease], reason: str) -> Records:
        """End requests and leases whose owner is gone."""
        out: Records = []
        for lease in tuple(leases):
            if lease.state == "granted":
                out += self.release(lease, reason) + self.drain(lease, reason)
            else:
                self.drop(lease)
                out.append(RequestRefused(subject=lease.request_id, reason=reason))
        return out

    def _advance(self, lease: Lease, cause: str) -> None:
        after = LEASE_LIFE.get((lease.state, cause))
        if after is None:
            raise self.forbidden(f"request {lease.request_id} {lease.state}, {cause}")
        lease.state = after

    def _close(self, lease: Lease, cause: str) -> None:
        """End a request or lease and forget it, but for its id."""
        self._advance(lease, cause)
        book = self.tasks[lease.task]
        del self.open[lease.request_id], book.open[lease.request_id]
        book.ended.append(lease.request_id)
        self.queue.drop(lease.request_id)
        self.live.pop(lease.token, None)
        self.silent.drop(lease.token)

    # -------------------------------------------------------------- the whole
    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        live, slots = self.live, self.slots.values()
        yield all(slot.state in SLOT_STATES for slot in slots), "a slot is in one of the known states"
        held = [(name, token) for token, lease in live.items() for name in lease.slots]
        yield len({name for name, _ in held}) == len(held), "no slot has two live leases"
        granted = {(slot.name, slot.token) for slot in slots if slot.state == "granted"}
        yield granted == set(held), "the granted slots are those of the live leases"
        free = {slot.name for slot in slots if slot.state == "free"}
        yield len(free) == len(self.free) and all(name in self.free for name in free), "the free slots are on offer"
        yield not (self.free and self.queue), "nobody waits while a slot is free"
        pending = {name for name, lease in self.open.items() if lease.state == "pending"}
        yield pending == set(self.queue), "the pending requests are those in the queue"
        yield all(not self.open[name].slots for name in pending), "a waiting request holds nothing"
        granted_ids = {name for name, lease in self.open.items() if lease.state == "granted"}
        yield granted_ids == {lease.request_id for lease in live.values()}, "the granted requests are the live leases"
        yield all(0 < token <= self.token for token in live), "no fence is above the last one granted"
        yield list(live) == sorted(live), "leases are in the order of their fences"
        yield len(self.silent) == len(live) and all(token in self.silent for token in live), "each silence is watched"
        floors = {name: book.floor for name, book in self.tasks.items()}
        yield all(one.attempt >= floors[one.task] for one in self.open.values()), "no attempt that is over is open"
        keys = {(one.task, one.attempt, one.round) for one in self.open.values()}
        yield len(keys) == len(self.open), "one open request per task, attempt and round"

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, fit for JSON."""
        return {
            "epoch": self.epoch,
            "t": self.t,
            "lag_s": self.lag_s,
            "token": self.token,
            "slots": [asdict(slot) for slot in self.slots.values()],
            # In the order of asking, which is the order in which a lost node's or a stopped task's are ended.
            "open": [asdict(lease) | {"slots": list(lease.slots)} for lease in self.open.values()],
            "waiting": list(self.queue),
            "live": [lease.request_id for lease in self.live.values()],
            "tasks": {
                name: {
                    "floor": book.floor,
                    "ended": list(book.ended),
                    "story": [record.to_row() for record in book.story],
                }
                for name, book in self.tasks.items()
            },
        }

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any]) -> Self:
        """Rebuild the state of :meth:`snapshot`."""
        ledger = cls(snapshot["epoch"])
        ledger.t, ledger.lag_s, ledger.token = snapshot["t"], snapshot["lag_s"], snapshot["token"]
        for name, plain in snapshot["tasks"].items():
            book = ledger.tasks[name] = TaskBook(floor=plain["floor"])
            book.ended.extend(plain["ended"])
            book.story.extend(Record.from_row(row) for row in plain["story"])
        for plain in snapshot["slots"]:
            slot = ledger.slots[plain["name"]] = Slot(**plain)
            if slot.state == "free":
                ledger.free.put(slot.name, slot.node, slot.used_t)
        for plain in snapshot["open"]:
            lease = Lease(**{**plain, "slots": tuple(plain["slots"])})
            ledger.open[lease.request_id] = ledger.tasks[lease.task].open[lease.request_id] = lease
        for request_id in snapshot["waiting"]:
            ledger.queue.put(request_id)
        for lease in (ledger.open[request_id] for request_id in snapshot["live"]):
            ledger.live[lease.token] = lease
            ledger.silent.put(lease.token, lease.seen_s + lease.ttl_s)
        return ledger
