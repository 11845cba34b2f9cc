"""Which states do leases and slots pass through?  The transition tables as data, and what a table remembers of each."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.records.base import Record

__all__ = ["LEASE_LIFE", "SLOT_LIFE", "SLOT_STATES", "Lease", "Slot", "TaskBook"]

#: (state, cause) -> next state of a lease; what is not here is forbidden.  A request is a pending lease.
LEASE_LIFE: Mapping[tuple[str, str], str] = {
    ("pending", "grant"): "granted",
    ("pending", "drop"): "dropped",
    ("granted", "release"): "released",
    ("granted", "expire"): "expired",
}

#: The states of a slot; reservations will add a fifth.
SLOT_STATES = ("free", "granted", "draining", "failed")

#: (state, cause) -> next state of a slot; what is not here is forbidden.  No cause is a timer: a kernel that runs
#: cannot be taken away, so only its executor's word (``idle``) or a new executor (``restart``) frees a slot.
SLOT_LIFE: Mapping[tuple[str, str], str] = {
    ("free", "grant"): "granted",
    ("granted", "return"): "free",
    ("granted", "drain"): "draining",
    ("granted", "restart"): "free",
    ("draining", "idle"): "free",
    ("draining", "restart"): "free",
    ("failed", "restart"): "free",
    ("free", "fail"): "failed",
    ("granted", "fail"): "failed",
    ("draining", "fail"): "failed",
}

#: Records kept per task for the message of a forbidden transition.
_STORY = 10

#: Ended request ids kept per task, so that a late repeat is not taken for a new request.
_ENDED = 16


@dataclass(slots=True, kw_only=True)
class Slot:
    """What the table knows of a slot."""

    name: str
    node: str
    device: str
    executor_epoch: int
    state: str = "free"
    #: Event time in seconds at which its last lease ended; -1 if it was never lent.
    used_t: float = -1.0
    #: Token of the live lease that holds it; 0 if none does.
    token: int = 0


@dataclass(slots=True, kw_only=True)
class Lease:
    """A request, and the lease that it becomes."""

    request_id: str
    task: str
    attempt: int
    round: int
    #: Node of the master that asked.
    node: str
    asked_t: float
    state: str = "pending"
    #: 0 until granted.
    token: int = 0
    slots: tuple[str, ...] = ()
    granted_t: float = 0.0
    #: Last sign of life, in seconds of event time less the lag known by then.
    seen_s: float = 0.0
    ttl_s: float = 0.0


@dataclass(slots=True)
class TaskBook:
    """What the table remembers of a task beyond its leases."""

    #: Lowest attempt that may still ask.
    floor: int = 0
    #: Open requests and leases, by request id.
    open: dict[str, Lease] = field(default_factory=dict)
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=_ENDED))
    story: deque[Record] = field(default_factory=lambda: deque(maxlen=_STORY))
