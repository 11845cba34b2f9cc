"""Hold what is lent to whom and who waits: the state of a lease table, and its indices."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.leasing.life import Lease, Slot, TaskBook
from drlnb.planning.leasing.load import LoadBook
from drlnb.planning.leasing.queueing import RequestKind, Waiting
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.base import shared
from drlnb.records.columns.leasing import SendGrant
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
    #: The free slots by name.
    free: dict[str, Slot] = field(default_factory=dict, metadata=TRANSIENT)
    #: Slots that are kept for the gang.
    reserved: set[str] = field(default_factory=set, metadata=TRANSIENT)
    #: Slots that have not failed.
    n_live: int = field(default=0, metadata=TRANSIENT)

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

    def index_lease(self, lease: Lease) -> None:
        """Enter a lease that has been granted."""
        self.live[lease.token] = lease

    def unindex_waiting(self, lease: Lease) -> None:
        """Remove a request from the queue, if it is there."""
        self.queue.drop(lease.request_id)
        if self.gang == lease.request_id:
            self.gang = None

    def unindex_lease(self, lease: Lease) -> None:
        """Remove a lease, if it was granted."""
        self.live.pop(lease.token, None)

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

    def usable(self, kind: RequestKind) -> Iterator[Slot]:
        """Yield the slots that exist and may serve a kind of requests."""
        for name in kind.allowed or self.slots:
            slot = self.slots.get(name)
            if slot is not None and slot.lendable:
                yield slot

    def n_usable(self, kind: RequestKind) -> int:
        """Return how many slots exist and may serve a kind of requests."""
        return sum(1 for _ in self.usable(kind))

    def n_due(self, kind: RequestKind) -> int:
        """Return how many slots a request gets: all that it wants, or those that exist if they are fewer and do."""
        if kind.n_slots == kind.n_least:
            return kind.n_slots
        return max(kind.n_least, min(kind.n_slots, self.n_usable(kind)))

    def why_never(self, task: str, kind: RequestKind) -> str:
        """Return why a task's request of a kind can never be met; empty if it can, or may."""
        n_known = len(set(self.opened).intersection(kind.allowed or self.opened))
        if kind.n_least <= n_known or not self.opened:
            return ""
        return f"task {task} would wait for ever: it wants {kind.n_least} slots at once, and {n_known} may serve it"

    def holds_version(self, lease: Lease, slot: str) -> bool:
        """Return whether a slot holds the parameters that a request's round begins with."""
        version, epoch = self.tasks[lease.task].resident.get(slot, (-1, -1))
        return version == lease.round and epoch == self.slots[slot].executor_epoch
