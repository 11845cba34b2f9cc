"""What is lent to whom, who waits, and the elementary steps of that state.

The lease table decides which step follows from which event; each step here keeps the indices consistent with each
other, and refuses what the transition tables of :mod:`drlnb.planning.leasing.life` do not have.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Self

from drlnb.planning.leasing.life import LEASE_LIFE, SLOT_LIFE, Lease, Slot, TaskBook
from drlnb.planning.leasing.load import LoadBook
from drlnb.planning.leasing.queueing import FreeSlots, Kind, Ranking, Waiting
from drlnb.records.base import Event, Record
from drlnb.records.columns.leasing import (
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    RequestRefused,
    RevokeLease,
    SendGrant,
    SlotDrained,
)
from drlnb.records.errors import InvalidTransition
from drlnb.records.ids import Fence

__all__ = ["Ledger", "Records", "kind_of"]

#: What a machine answers, in its order.
Records = list[Record]


class Ledger:
    """The state of one lease table that begins with epoch `epoch`."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        #: (last token granted under it, epoch) of each epoch before, in their order.
        self.former: list[tuple[int, int]] = []
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
        self.queue = Waiting()
        #: Requests so far: the number of an arrival.
        self.n_asked = 0
        #: The gang that slots are reserved for, and those slots.
        self.gang: str | None = None
        self.reserved: set[str] = set()
        #: Live leases by token whose holders would give way and have not been asked to.
        self.deaf: dict[int, Lease] = {}
        self.load = LoadBook()
        #: Slots that have not failed, and how many slots serve each set that requests are restricted to.
        self.n_live = 0
        #: Leases by token, so in the order of their grants.
        self.live: OrderedDict[int, Lease] = OrderedDict()
        self.free = FreeSlots()
        #: Tokens by the second, on the clock less its lag, at which silence will have lasted too long.
        self.silent: Ranking[int] = Ranking()
        #: Tokens by the second at which they will have been held for too long.
        self.longest: Ranking[int] = Ranking()
        #: Numbers of waiting requests by the last word of their requesters.
        self.polls: Ranking[str] = Ranking()
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
        return self.fence_of(lease.token)

    def fence_of(self, token: int) -> Fence:
        """Return the fence of a token, by the epoch under which it was granted."""
        return Fence(epoch=next((epoch for last, epoch in self.former if token <= last), self.epoch), token=token)

    def held(self, fence: Fence) -> Lease | None:
        """Return the live lease of a fence, if there is one."""
        return self.live.get(fence.token) if fence == self.fence_of(fence.token) else None

    def stale(self, fence: Fence) -> RequestRefused:
        """Return the refusal of a fence that no live lease has."""
        if fence.epoch not in {self.epoch, *(epoch for _, epoch in self.former)}:
            reason = f"is of epoch {fence.epoch}, this table of {self.epoch}"
        else:
            granted = 0 < fence.token <= self.token and fence == self.fence_of(fence.token)
            reason = "is over" if granted else "was never granted"
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
            demand=lease.asked,
        )

    def usable(self, lease: Lease) -> Iterator[Slot]:
        """Yield the slots that exist and may serve a request."""
        for name in lease.allowed or self.slots:
            slot = self.slots.get(name)
            if slot is not None and slot.state != "failed" and not slot.closed:
                yield slot

    def raise_epoch(self, epoch: int) -> None:
        """Let coming grants be of a later epoch; leases that live keep their fences."""
        self.former.append((self.token, self.epoch))
        self.epoch = epoch

    # -------------------------------------------------------------- steps of a slot
    def add(self, slot: Slot) -> None:
        """Enter a new slot, free."""
        self.slots[slot.name] = slot
        self.n_live += 1
        self.free.put(slot.name, slot.node, slot.used_t)

    def move(self, slot: Slot, cause: str, token: int = 0) -> None:
        """Take a slot to its next state; `token` is that of its new holder."""
        after = SLOT_LIFE.get((slot.state, cause))
        if after is None:
            raise self.forbidden(f"slot {slot.name} {slot.state}, {cause}")
        if slot.state == "granted":
            slot.used_t = self.t
        slot.drains = slot.token if after == "draining" else 0
        self.n_live += (slot.state == "failed") - (after == "failed")
        slot.state, slot.token = after, token
        if after == "reserved":
            self.reserved.add(slot.name)
        else:
            self.reserved.discard(slot.name)
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
        """Enter a new request."""
        self.n_asked += 1
        lease.number = self.n_asked
        self.open[lease.request_id] = self.tasks[lease.task].open[lease.request_id] = lease
        self.load.asked(lease.task, self.tasks[lease.task], lease)
        self.hear(lease)

    def hear(self, lease: Lease) -> None:
        """Note that a requester still waits."""
        lease.polled_s = self.t - self.lag_s
        self.polls.put(lease.request_id, lease.polled_s)

    def line_up(self, lease: Lease, rank: float, turn: float) -> None:
        """Give a waiting request its place."""
        lease.rank, lease.turn = rank, turn
        self.free.watch(lease.allowed)
        self.queue.put(lease.request_id, kind_of(lease), rank, lease.number)

    def _step_out(self, lease: Lease) -> None:
        """Take a request out of the queue, if it is there."""
        self.queue.drop(lease.request_id)
        self.polls.drop(lease.request_id)
        if all(allowed != lease.allowed for allowed, _ in self.queue.kinds):
            self.free.forget(lease.allowed)
        if self.gang == lease.request_id:
            self.gang = None

    def grant(
        self, lease: Lease, slots: tuple[str, ...], *, ttl_s: float, max_hold_s: float, demand: bool, resident: bool
    ) -> Records:
        """Lend free or reserved slots to a request; `demand`: somebody else waits for one of them."""
        self._advance(lease, "grant")
        self._step_out(lease)
        self.token += 1
        lease.token, lease.slots, lease.granted_t = self.token, slots, self.t
        lease.ttl_s, lease.max_hold_s = ttl_s, max_hold_s
        lease.resident = resident
        self.load.turn = max(self.load.turn, lease.turn)
        self.live[lease.token] = lease
        for name in slots:
            self.move(self.slots[name], "grant", lease.token)
        self.see(lease)
        self.longest.put(lease.token, self.t + max_hold_s)
        lease.asked = demand and lease.yields
        if lease.yields and not demand:
            self.deaf[lease.token] = lease
        granted = LeaseGranted(
            fence=self.fence(lease),
            request_id=lease.request_id,
            task=lease.task,
            attempt=lease.attempt,
            round=lease.round,
            slots=lease.slots,
            waited_s=lease.granted_t - lease.asked_t,
            resident=lease.resident,
        )
        return [granted, self.grant_command(lease)]

    def holds_version(self, lease: Lease, slot: str) -> bool:
        """Return whether a slot holds the parameters that a request's round begins with."""
        version, epoch = self.tasks[lease.task].resident.get(slot, (-1, -1))
        return version == lease.round and epoch == self.slots[slot].executor_epoch

    def settle(self, lease: Lease, *, yielded: bool) -> None:
        """Note what the slots of a lease hold that ended in good order."""
        book = self.tasks[lease.task]
        kept = book.resident if yielded else {}
        version = lease.round if yielded else lease.round + 1
        book.resident = kept | {name: (version, self.slots[name].executor_epoch) for name in lease.slots}
        for name in lease.slots:
            self.slots[name].deaths = ()

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
        self.load.ended(self.tasks[lease.task], lease, self.t - lease.granted_t, computed_s)
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
        self.load.ended(self.tasks[lease.task], lease, self.t - lease.granted_t, 0.0)
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
        self._step_out(lease)
        self.live.pop(lease.token, None)
        self.deaf.pop(lease.token, None)
        self.silent.drop(lease.token)
        self.longest.drop(lease.token)

    # -------------------------------------------------------------- the whole
    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, fit for JSON."""
        return {
            "epoch": self.epoch,
            "former": [list(pair) for pair in self.former],
            "t": self.t,
            "lag_s": self.lag_s,
            "token": self.token,
            "n_asked": self.n_asked,
            "gang": self.gang,
            "slots": [asdict(slot) | {"deaths": list(slot.deaths)} for slot in self.slots.values()],
            # In the order of asking, which is the order in which a lost node's or a stopped task's are ended.
            "open": [
                asdict(lease) | {"slots": list(lease.slots), "allowed": list(lease.allowed)}
                for lease in self.open.values()
            ],
            "waiting": list(self.queue),
            "live": [lease.request_id for lease in self.live.values()],
            "tasks": {name: book.snapshot() for name, book in self.tasks.items()},
            "load": self.load.snapshot(),
        }

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any], max_hold_s: float) -> Self:
        """Rebuild the state of :meth:`snapshot`; `max_hold_s` is for leases of a version that did not keep theirs."""
        ledger = cls(snapshot["epoch"])
        ledger.former = [(last, epoch) for last, epoch in snapshot.get("former", ())]
        ledger.t, ledger.lag_s, ledger.token = snapshot["t"], snapshot["lag_s"], snapshot["token"]
        ledger.n_asked, ledger.gang = snapshot.get("n_asked", 0), snapshot.get("gang")
        ledger.tasks = {name: TaskBook.from_snapshot(plain) for name, plain in snapshot["tasks"].items()}
        if "load" in snapshot:
            ledger.load.restore(snapshot["load"])
        for plain in snapshot["slots"]:
            ledger._take_slot(
                Slot(**{"gone": plain["state"] == "failed", **plain, "deaths": tuple(plain.get("deaths", ()))})
            )
        for plain in snapshot["open"]:
            shape = {"slots": tuple(plain["slots"]), "allowed": tuple(plain.get("allowed", ()))}
            lease = Lease(**{**plain, **shape})
            ledger.open[lease.request_id] = ledger.tasks[lease.task].open[lease.request_id] = lease
        for request_id in snapshot["waiting"]:
            ledger._take_waiting(ledger.open[request_id])
        for lease in (ledger.open[request_id] for request_id in snapshot["live"]):
            lease.max_hold_s = lease.max_hold_s or max_hold_s
            ledger._take_live(lease)
        return ledger

    def _take_slot(self, slot: Slot) -> None:
        self.slots[slot.name] = slot
        self.n_live += slot.state != "failed"
        if slot.state == "free":
            self.free.put(slot.name, slot.node, slot.used_t)
        elif slot.state == "reserved":
            self.reserved.add(slot.name)

    def _take_waiting(self, lease: Lease) -> None:
        if lease.number == 0:  # of a version that kept no numbers: they are in their order
            self.n_asked += 1
            lease.number, lease.rank = self.n_asked, lease.asked_t
        self.line_up(lease, lease.rank, lease.turn)
        self.polls.put(lease.request_id, lease.polled_s)

    def _take_live(self, lease: Lease) -> None:
        self.live[lease.token] = lease
        self.silent.put(lease.token, lease.seen_s + lease.ttl_s)
        self.longest.put(lease.token, lease.granted_t + lease.max_hold_s)
        if lease.yields and not lease.asked:
            self.deaf[lease.token] = lease


def kind_of(lease: Lease) -> Kind:
    """Return the kind of a request: what may serve it, and how much of it."""
    return lease.allowed, lease.n_slots
