"""Define the records of leasing: who holds which slot now, by the pool and by each round (seed 000)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drlnb.records.base import Command, Decision, Event
from drlnb.records.ids import Fence


# ------------------------------------------------------------------ events of the lease table (in the pool's stream)
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAdded(Event):
    """A slot can be leased: its executor is up (again)."""

    slot: str
    node: str
    #: ``cuda:<uuid>``, or ``cpu`` for a virtual slot; ``cpu:K`` where several seats share virtual device K of a node.
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
    #: Slots wanted: all of them or none.
    n_slots: int = 1
    #: Steps ahead of the others; each is worth ``age_quantum_s`` of waiting.
    priority: int = 0
    #: Slots that may serve it; empty: any.
    allowed: tuple[str, ...] = ()
    #: The slot that placement gave to the task.
    home: str | None = None
    #: The holder gives way when somebody waits: tell it.
    yields: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolled(Event):
    """The requester still waits for its answer."""

    request_id: str


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
    #: The round is not done: its holder gave way to somebody who waits.
    yielded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorIdled(Event):
    """The executor of a draining slot has nothing running any more."""

    slot: str
    #: The lease whose work has ended there; None if the executor was not asked about one.
    fence: Fence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorStarted(Event):
    """A new executor process serves the slot; work of the former one is gone."""

    slot: str
    executor_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLost(Event):
    """The executor process of one task on a slot has ended; the slot serves on (isolation ``process``)."""

    slot: str
    task: str
    #: The latest lease that it worked under: if it is held still, its work is gone.  None: it worked under none.
    fence: Fence | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRaised(Event):
    """A journal tells of a later epoch than the table's own (a clock was set back): grants from now on are above it."""

    #: First half of the fences of coming grants, in nanoseconds; those that were granted before keep theirs.
    epoch: int


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
    #: Every slot of it holds the parameters that the round begins with.
    resident: bool = False


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
class SlotsReserved(Decision):
    """Free slots are kept for a gang that has waited for too long; others use them only while it could not."""

    request_id: str
    task: str
    #: All slots that are kept for it now.
    slots: tuple[str, ...]
    #: Seconds from now at which the gang is expected to start; None if nothing can be said.
    starts_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotClosed(Decision):
    """A slot is lent no more, though its executor may live: the user drained it, or executors die on it."""

    slot: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUnmet(Decision):
    """A request cannot be satisfied by the slots that exist now; it waits."""

    request_id: str
    task: str
    n_slots: int
    #: Slots that exist and may serve it.
    n_allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEstimated(Decision):
    """What queueing theory expects of the load as it is now: the "expected" beside every measured value."""

    n_tasks: int
    n_slots: int
    #: Mean over the tasks of slot compute / (round time - waiting for slots), dimensionless.
    d_mean: float
    #: The most that utilisation can be, dimensionless.
    bound_frac: float
    expected_utilisation_frac: float
    #: Round time relative to that of a task alone, dimensionless.
    expected_inflation: float


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
    #: Somebody waits for such a slot already.
    demand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskYield(Command):
    """Inform a holder that somebody waits for a slot like its own: it may give way at a batch boundary."""

    fence: Fence
    task: str
    #: Node of the holder's master.
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease(Command):
    """Ask the slot's node to stop this fence's work at its next batch boundary and to report when it is idle."""

    fence: Fence
    slot: str
    reason: str


# ------------------------------------------------------------------ hold machine (in a task's stream)
@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPlanned(Decision):
    """The hold planner's answer: ask for a slot, keep waiting, keep or return the lease."""

    round: int
    #: ``request``, ``wait``, ``keep`` or ``return``.
    action: str
    planner: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class YieldAsked(Event):
    """Somebody waits for a slot like the one that we hold."""

    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsRestored(Event):
    """The executor has the gradients that were kept at the master."""

    round: int
    fence: Fence
    elapsed_s: float
    #: Bytes of training state and gradients that had to be brought to the slot.
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreGradients(Command):
    """Give the executor of the leased slot the gradients of this round that were computed under former leases."""

    round: int
    fence: Fence
    slot: str
    #: Version that the executor must start from; it loads the training state if it does not hold it.
    version: int
    #: Environment steps of the task after this round: schedules are read there.
    after_timesteps: int
    #: Collectors, in the order in which their gradients were computed, and the key of each one's.
    collectors: tuple[int, ...]
    keys: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
