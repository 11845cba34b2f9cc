"""Hold what is lent to whom and who waits: the state of a lease table, and its indices."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.leasing.life import Lease, Slot, TaskBook
from drlnb.planning.leasing.load import LoadBook
from drlnb.planning.leasing.queueing import Ranking, Waiting
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.base import Event, Record, shared
from drlnb.records.columns.leasing import SendGrant
from drlnb.records.errors import InvalidTransition
from drlnb.records.ids import Fence

__all__ = ["Ledger"]


@dataclass(slots=True)
class Ledger:
    """The state of one lease table; the indices are functions of its slots and requests, in no snapshot."""

    settings: LeasingSettings
    epoch: int
    #: (last token granted under it, epoch) of each epoch before, in their order.
    former: list[tuple[int, int]] = field(default_factory=list)
    #: Time of the last event, in seconds.
    t: float = 0.0
    #: Seconds that the owner's loop stood still so far: silence then is nobody's fault.
    lag_s: float = 0.0
    #: Token of the last grant.
    token: int = 0
    #: A ``reap`` deadline is on its way.
    reaping: bool = False
    #: Slots that the pool is made of, up or not; empty: nobody has told, or later workers may bring others.
    opened: tuple[str, ...] = ()
    slots: dict[str, Slot] = field(default_factory=dict)
    tasks: dict[str, TaskBook] = field(default_factory=dict)
    #: Requests and leases that have not ended, by request id, in the order of asking, which is the order in which a
    #: lost node's or a stopped task's are ended.
    open: dict[str, Lease] = field(default_factory=dict)
    #: Requests so far: the number of an arrival.
    n_asked: int = 0
    #: The gang that slots are reserved for.
    gang: str | None = None
    load: LoadBook = field(default_factory=LoadBook)

    queue: Waiting = field(default_factory=Waiting, metadata=TRANSIENT)
    #: Leases by token, so in the order of their grants.
    live: dict[int, Lease] = field(default_factory=dict, metadata=TRANSIENT)
    #: Those of them whose holders would give way and have not been asked to.
    unasked: dict[int, Lease] = field(default_factory=dict, metadata=TRANSIENT)
    #: The free slots by name.
    free: dict[str, Slot] = field(default_factory=dict, metadata=TRANSIENT)
    #: Slots that are kept for the gang.
    reserved: set[str] = field(default_factory=set, metadata=TRANSIENT)
    #: Slots that have not failed.
    n_live: int = field(default=0, metadata=TRANSIENT)
    #: Tokens by the second, on the clock less its lag, at which silence will have lasted too long.
    silent: Ranking[float, int] = field(default_factory=Ranking, metadata=TRANSIENT)
    #: Tokens by the second at which they will have been held for too long.
    longest: Ranking[float, int] = field(default_factory=Ranking, metadata=TRANSIENT)
    #: Waiting requests by the last poll of their requesters.
    polls: Ranking[float, str] = field(default_factory=Ranking, metadata=TRANSIENT)
    #: The event in hand, the open request or live lease that it names, and its task.
    event: Event | None = field(default=None, metadata=TRANSIENT)
    event_lease: Lease | None = field(default=None, metadata=TRANSIENT)
    event_task: str | None = field(default=None, metadata=TRANSIENT)

    def __post_init__(self) -> None:
        for slot in self.slots.values():
            self.index_slot(slot)
        for lease in self.open.values():
            self.tasks[lease.task].open[lease.request_id] = lease
            if lease.state == "pending":
                self.index_waiting(lease)
        for lease in sorted(self.open.values(), key=lambda lease: lease.token):
            if lease.state == "granted":
                self.index_lease(lease)

    # -------------------------------------------------------------- indices
    def index_slot(self, slot: Slot) -> None:
        """Enter a slot that was not known before."""
        self.n_live += slot.state != "failed"
        if slot.state == "free":
            self.free[slot.name] = slot
        elif slot.state == "reserved":
            self.reserved.add(slot.name)

    def index_waiting(self, lease: Lease) -> None:
        """Enter a request at its rank, or move it there."""
        self.queue.put(lease.request_id, lease.kind, lease.rank, lease.number)
        self.polls.put(lease.request_id, lease.polled_s)

    def index_lease(self, lease: Lease) -> None:
        """Enter a lease that has been granted."""
        self.live[lease.token] = lease
        self.silent.put(lease.token, lease.seen_s + lease.ttl_s)
        self.longest.put(lease.token, lease.granted_t + lease.max_hold_s)
        if lease.yields and not lease.asked:
            self.unasked[lease.token] = lease

    def unindex_waiting(self, lease: Lease) -> None:
        """Remove a request from the queue, if it is there."""
        self.queue.drop(lease.request_id)
        self.polls.drop(lease.request_id)
        if self.gang == lease.request_id:
            self.gang = None

    def unindex_lease(self, lease: Lease) -> None:
        """Remove a lease, if it was granted."""
        self.live.pop(lease.token, None)
        self.unasked.pop(lease.token, None)
        self.silent.drop(lease.token)
        self.longest.drop(lease.token)

    # -------------------------------------------------------------- the event in hand
    def begin(self, event: Event) -> None:
        """Begin with an event."""
        fence = getattr(event, "fence", None)
        lease = self.open.get(getattr(event, "request_id", "")) if fence is None else self.held(fence)
        task: str | None = getattr(event, "task", None)
        self.event, self.event_lease = event, lease
        self.event_task = lease.task if task is None and lease is not None else task

    def remember(self, *records: Record) -> None:
        """Add records to the stories of their tasks; those that name none belong to the task of the event in hand."""
        for record in records:
            book = self.tasks.get(getattr(record, "task", None) or self.event_task or "")
            if book is not None:
                book.story.append(record)

    def forbidden(self, state: str) -> InvalidTransition:
        """Return the error for the event in hand, with the story of its task."""
        book = self.tasks.get(self.event_task or "")
        return InvalidTransition("lease table", state, self.event, () if book is None else book.story)

    # -------------------------------------------------------------- looking
    @property
    def lendable(self) -> tuple[str, ...]:
        """Names of the slots that may be lent, now or once they are free, sorted."""
        return tuple(sorted(name for name, slot in self.slots.items() if slot.lendable))

    def fence_of(self, token: int) -> Fence:
        """Return the fence of a token, by the epoch under which it was granted."""
        return Fence(epoch=next((epoch for last, epoch in self.former if token <= last), self.epoch), token=token)

    def held(self, fence: Fence) -> Lease | None:
        """Return the live lease of a fence, if there is one."""
        return self.live.get(fence.token) if fence == self.fence_of(fence.token) else None

    def why_stale(self, fence: Fence) -> str:
        """Return why no live lease has a fence."""
        if fence.epoch not in {self.epoch, *(epoch for _, epoch in self.former)}:
            return f"is of epoch {fence.epoch}, this table of {self.epoch}"
        granted = 0 < fence.token <= self.token and fence == self.fence_of(fence.token)
        return "is over" if granted else "was never granted"

    def grant_command(self, lease: Lease) -> SendGrant:
        """Return the answer to the requester of a granted lease."""
        return SendGrant(fence=self.fence_of(lease.token), demand=lease.asked, **shared(lease, SendGrant))

    def usable(self, lease: Lease) -> Iterator[Slot]:
        """Yield the slots that exist and may serve a request."""
        for name in lease.allowed or self.slots:
            slot = self.slots.get(name)
            if slot is not None and slot.lendable:
                yield slot

    def why_never(self, task: str, n_slots: int, allowed: Iterable[str]) -> str:
        """Return why so many of some slots (none: of any) can never be lent together; empty if they can, or may."""
        n_known = len(set(self.opened).intersection(allowed or self.opened))
        if n_slots <= n_known or not self.opened:
            return ""
        return f"task {task} would wait for ever: it wants {n_slots} slots at once, and {n_known} may serve it"

    def holds_version(self, lease: Lease, slot: str) -> bool:
        """Return whether a slot holds the parameters that a request's round begins with."""
        version, epoch = self.tasks[lease.task].resident.get(slot, (-1, -1))
        return version == lease.round and epoch == self.slots[slot].executor_epoch
