"""Words of leasing: who holds which slot now (seed 000).  Spoken by the pool (lease table) and by each round (hold)."""

from dataclasses import dataclass

from drlnb.records.base import Command, Decision, Event
from drlnb.records.ids import Fence

__all__ = [
    "ExecutorIdled",
    "ExecutorStarted",
    "HoldPlanned",
    "LeaseExpired",
    "LeaseGranted",
    "LeaseReleased",
    "LeaseRenewed",
    "LeaseReturned",
    "RequestCancelled",
    "RequestRefused",
    "RevokeLease",
    "SendGrant",
    "SlotAdded",
    "SlotDrained",
    "SlotFailed",
    "SlotFreed",
    "SlotRequested",
]


# ------------------------------------------------------------------ events of the lease table (in the pool's stream)
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAdded(Event):
    """A slot can be leased: its executor is up (again)."""

    slot: str
    node: str
    #: ``cuda:<uuid>``, or ``cpu`` for a virtual slot.
    device: str
    executor_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFailed(Event):
    """A slot cannot be used until it is added again."""

    slot: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRequested(Event):
    """A task's master asks for a slot; a repeat of `request_id` gets the same grant."""

    request_id: str
    task: str
    attempt: int
    round: int
    #: Node of the master that asks; when it is lost, so are the request and the lease.
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelled(Event):
    """The requester no longer wants the slot, or stopped polling."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewed(Event):
    """The holder lives."""

    fence: Fence
    #: Units of work done under this lease so far (minibatches, staged batches).
    n_progress: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReturned(Event):
    """The holder gives its slot back; `clean` = nothing of it runs on the executor any more."""

    fence: Fence
    clean: bool
    #: Seconds that the executor computed under this lease.
    computed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorIdled(Event):
    """The executor of a draining slot has nothing running any more."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStarted(Event):
    """A new executor process serves the slot; work of the former one is gone."""

    slot: str
    executor_epoch: int


# ------------------------------------------------------------------ decisions and commands of the lease table
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGranted(Decision):
    """A slot was lent to a task."""

    fence: Fence
    request_id: str
    task: str
    attempt: int
    round: int
    slots: tuple[str, ...]
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased(Decision):
    """A lease ended in good order, or because its holder or executor is gone (`reason`)."""

    fence: Fence
    task: str
    slots: tuple[str, ...]
    held_s: float
    computed_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExpired(Decision):
    """The holder was silent for longer than the time to live; its slot drains."""

    fence: Fence
    task: str
    slots: tuple[str, ...]
    held_s: float
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDrained(Decision):
    """A slot left the pool until its executor says that nothing runs on it (or a new one starts)."""

    slot: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFreed(Decision):
    """A draining slot is free again."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefused(Decision):
    """A stale, unknown or foreign fence or request: nothing was changed."""

    #: The request id, or the fence as text.
    subject: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendGrant(Command):
    """Answer the requester."""

    request_id: str
    task: str
    fence: Fence
    slots: tuple[str, ...]
    ttl_s: float
    waited_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease(Command):
    """Tell the slot's node to stop the work of this fence at its next batch boundary and say when it is idle."""

    fence: Fence
    slot: str
    reason: str


# ------------------------------------------------------------------ hold planner (in a task's stream)
@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPlanned(Decision):
    """The hold planner's answer: ask for a slot, keep waiting, keep or return the lease."""

    round: int
    #: ``request``, ``wait``, ``keep`` or ``return``.
    action: str
    planner: str
    reason: str
