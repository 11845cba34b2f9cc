"""Define the records of leasing: who holds which slot now, by the pool and by each round (the leasing patent)."""

from drlnb.records.base import Command, Decision, Event
from drlnb.records.common import GradientWork, SlotWork
from drlnb.records.ids import Fence


# ------------------------------------------------------------------ events of the lease table (in the pool's stream)
class SlotsOpened(Event):
    """The slots that the pool is made of and will be, up or not: what needs more of them need not wait."""

    slots: tuple[str, ...]


class SlotAdded(Event):
    """A slot can be leased: its executor is up (again)."""

    slot: str
    node: str
    #: ``cuda:<uuid>``, or ``cpu`` for a virtual slot; ``cpu:K`` where several seats share virtual device K of a node.
    device: str
    executor_epoch: int


class SlotFailed(Event):
    """A slot cannot be used until it is added again."""

    slot: str
    reason: str


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
    #: Slots that do where no more of them are up; 0: all.
    n_least: int = 0
    #: Steps ahead of the others; each is worth ``age_quantum_s`` of waiting.
    priority: int = 0
    #: Slots that may serve it; empty: any.
    allowed: tuple[str, ...] = ()
    #: The slots that placement gave to the task, the lead first.
    home: tuple[str, ...] = ()
    #: The holder gives way when somebody waits: tell it.
    yields: bool = False


class RequestPolled(Event):
    """The requester still waits for its answer."""

    request_id: str


class RequestCancelled(Event):
    """The requester no longer wants the slot, or stopped polling."""

    request_id: str
    reason: str


class LeaseRenewed(Event):
    """The holder lives."""

    fence: Fence


class LeaseReturned(Event):
    """The holder gives its slots back; `clean` = nothing of it runs on their executors any more."""

    fence: Fence
    clean: bool
    #: Seconds that the executor of each slot computed under this lease, in the lease's order of slots.
    computed_s: tuple[float, ...]
    #: The round is not done: its holder gave way to somebody who waits.
    yielded: bool = False


class ExecutorIdled(Event):
    """The executor of a draining slot has nothing running any more."""

    slot: str
    #: The lease whose work has ended there; None if the executor was not asked about one.
    fence: Fence | None = None


class TenantLost(Event):
    """The executor process of one task on a slot has ended; the slot serves on (isolation ``process``)."""

    slot: str
    task: str
    #: The latest lease that it worked under: if it is held still, its work is gone.  None: it worked under none.
    fence: Fence | None
    reason: str


class EpochRaised(Event):
    """A journal tells of a later epoch than the table's own (a clock was set back): grants from now on are above it."""

    #: First half of the fences of coming grants, in nanoseconds; those that were granted before keep theirs.
    epoch: int


# ------------------------------------------------------------------ decisions and commands of the lease table
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


class _LeaseEnded(Decision):
    """A lease ended."""

    fence: Fence
    task: str
    slots: tuple[str, ...]
    held_s: float


class LeaseReleased(_LeaseEnded):
    """A lease ended in good order, or because its holder or executor is gone (`reason`)."""

    #: Seconds computed on each of its slots, in their order, as its holder told; 0 where it told nothing.
    computed_s: tuple[float, ...]
    reason: str


class LeaseExpired(_LeaseEnded):
    """The holder was silent for longer than the time to live; its slot drains."""

    silent_s: float


class SlotDrained(Decision):
    """A slot left the pool until its executor says that nothing runs on it (or a new one starts)."""

    slot: str
    reason: str


class SlotFreed(Decision):
    """A draining slot is free again."""

    slot: str


class SlotsReserved(Decision):
    """Free slots are kept for a gang that has waited for too long; others use them only while it could not."""

    request_id: str
    task: str
    #: All slots that are kept for it now.
    slots: tuple[str, ...]
    #: Seconds from now at which the gang is expected to start; None if nothing can be said.
    starts_in_s: float | None


class SlotClosed(Decision):
    """A slot is lent no more, though its executor may live: the user drained it, or executors die on it."""

    slot: str
    reason: str


class RequestUnmet(Decision):
    """A request cannot be satisfied by the slots that exist now: it waits, or makes do with them."""

    request_id: str
    task: str
    n_slots: int
    #: Slots that exist and may serve it.
    n_allowed: int
    #: It waits; else it was lent those that exist.
    waits: bool = True

    @property
    def text(self) -> str:
        """What that means, in words for the user."""
        if not self.waits:
            lent = f"{self.n_allowed} of its {self.n_slots} slots"
            return f"task {self.task} computes on {lent} for now: no more can be lent"
        wants = "a slot" if self.n_slots == 1 else f"{self.n_slots} slots at once"
        return f"task {self.task} waits: it wants {wants}, and {self.n_allowed} may serve it now"


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


class RequestRefused(Decision):
    """A stale, unknown or foreign fence or request: nothing was changed."""

    #: The request id, or the fence as text.
    subject: str
    reason: str
    #: It can never be met: to ask once more is of no use.
    final: bool = False


class SendGrant(Command):
    """Answer the requester."""

    request_id: str
    task: str
    fence: Fence
    slots: tuple[str, ...]
    waited_s: float
    #: Somebody waits for such a slot already.
    demand: bool = False


class AskYield(Command):
    """Inform a holder that somebody waits for a slot like its own: it may give way at a batch boundary."""

    fence: Fence
    task: str
    #: Node of the holder's master.
    node: str


class RevokeLease(SlotWork):
    """Ask the slot's node to stop this fence's work at its next batch boundary and to report when it is idle."""

    reason: str


# ------------------------------------------------------------------ hold machine (in a task's stream)
class HoldPlanned(Decision):
    """The hold planner's answer: ask for a slot, keep waiting, keep or return the lease."""

    round: int
    #: ``request``, ``wait``, ``keep`` or ``return``.
    action: str
    planner: str
    reason: str


class YieldAsked(Event):
    """Somebody waits for a slot like the one that we hold."""

    fence: Fence


class GradientKept(Event):
    """A gradient that only the executor had lies at the master, too."""

    collector: int
    round: int
    fence: Fence
    key: str


class GradientsRestored(Event):
    """The executor has the gradients that were kept at the master."""

    round: int
    fence: Fence
    elapsed_s: float
    #: Bytes of training state and gradients that had to be brought to the slot.
    moved_bytes: int = 0


class KeepGradient(SlotWork):
    """Fetch a gradient of this round that only the executor of the lease's lead has: it must outlive the lease."""

    collector: int
    round: int


class RestoreGradients(GradientWork):
    """Give the executor of the lease's lead gradients of this round: from former leases, or from its other slots."""

    #: Collectors, in the order in which their gradients were computed, and the key of each one's.
    collectors: tuple[int, ...]
    keys: tuple[str, ...]
