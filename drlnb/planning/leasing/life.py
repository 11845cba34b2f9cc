"""Define the lives of leases and slots: transition tables as data, and what a lease table remembers of each."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.leasing.queueing import RequestKind

__all__ = ["LEASE_LIFE", "SLOT_LIFE", "SLOT_STATES", "Lease", "Slot", "TaskBook"]

#: (state, cause) -> next state of a lease; what is not here is forbidden.  A request is a pending lease.
LEASE_LIFE: Mapping[tuple[str, str], str] = {
    ("pending", "grant"): "granted",
    ("pending", "drop"): "dropped",
    ("granted", "release"): "released",
    ("granted", "expire"): "expired",
}

#: The states of a slot.
SLOT_STATES = ("free", "reserved", "granted", "draining", "failed")

#: (state, cause) -> next state of a slot; what is not here is forbidden.  No cause is a timer: a kernel that runs
#: cannot be taken away, so only its executor's word (``idle``) or a new executor (``restart``) frees a slot.
SLOT_LIFE: Mapping[tuple[str, str], str] = {
    ("free", "grant"): "granted",
    ("free", "reserve"): "reserved",
    ("reserved", "unreserve"): "free",
    ("reserved", "grant"): "granted",
    ("granted", "return"): "free",
    ("granted", "drain"): "draining",
    ("granted", "restart"): "free",
    ("draining", "idle"): "free",
    ("draining", "restart"): "free",
    ("failed", "restart"): "free",
    **{(state, "fail"): "failed" for state in ("free", "reserved", "granted", "draining")},
}

#: Ended request ids kept per task, so that a late repeat is not taken for a new request.
_ENDED = 16

#: Holds and rounds kept per task, for what is expected of its next one.
_HOLDS, _DUTIES = 32, 8


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
    #: Event time in seconds at which it was lent last, and seconds that it was lent in leases that have ended.
    lent_t: float = 0.0
    lent_s: float = 0.0
    #: Deaths of its executor, and losses of its node, so far.
    n_failures: int = 0
    #: Token of the live lease that holds it; 0 if none does.
    token: int = 0
    #: Token of the lease that drains from it; 0 if none does.
    drains: int = 0
    #: Holders under which its executors died in a row ("" for none), since its last lease that ended well.
    deaths: tuple[str, ...] = ()
    #: Why it is lent no more; empty if it may be.
    closed: str = ""
    #: Its executor is gone: only a new one brings the slot back.
    gone: bool = False

    def under_work_s(self, t: float) -> float:
        """Return for how many seconds it was lent up to now."""
        return self.lent_s + (t - self.lent_t if self.state == "granted" else 0.0)

    @property
    def lendable(self) -> bool:
        """Whether it may be lent, now or once it is free."""
        return self.state != "failed" and not self.closed


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
    n_slots: int = 1
    #: Slots that do where no more of them are up; 0: all.
    n_least: int = 0
    #: Priority that the request names; one that a user gave to the task goes before it.
    priority: int = 0
    #: Slots that may serve it; empty: any.
    allowed: tuple[str, ...] = ()
    #: Slots that placement gave to its task, the lead first.
    home: tuple[str, ...] = ()
    #: Its holder gives way when asked to.
    yields: bool = False
    #: Number of its arrival.
    number: int = 0
    #: Its place in the queue: smallest first, equal ones by arrival.
    rank: float = 0.0
    #: Turn of the round robin in which it is served (queue ``drr``), in slot seconds.
    turn: float = 0.0
    #: Last poll of the requester while it waits, in seconds of event time less the lag known by then.
    polled_s: float = 0.0
    state: str = "pending"
    #: 0 until granted.
    token: int = 0
    slots: tuple[str, ...] = ()
    granted_t: float = 0.0
    #: Last sign of life, in seconds of event time less the lag known by then.
    seen_s: float = 0.0
    ttl_s: float = 0.0
    #: Longest hold in seconds.
    max_hold_s: float = 0.0
    #: Its holder knows that somebody waits.
    asked: bool = False
    resident: bool = False

    @property
    def waited_s(self) -> float:
        """Seconds from the request to the grant."""
        return self.granted_t - self.asked_t

    @property
    def kind(self) -> RequestKind:
        """What may serve the request, and how much of it."""
        return RequestKind(self.allowed, self.n_slots, self.n_least or self.n_slots)


@dataclass(slots=True)
class TaskBook:
    """What the table remembers of a task beyond its leases."""

    #: Lowest attempt that may still ask.
    floor: int = 0
    #: Open requests and leases, by request id.
    open: dict[str, Lease] = field(default_factory=dict, metadata=TRANSIENT)
    #: Priority that a user gave to the task; None: that of its requests.
    priority: int | None = None
    #: Slot -> (version of the parameters that it holds, its executor epoch).
    resident: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Slots that its latest lease lacked, because no more were up.
    n_lacking: int = 0
    #: Latest holds, in slot seconds per slot.
    holds: deque[float] = field(default_factory=lambda: deque(maxlen=_HOLDS))
    #: Their 95th percentile, None before the first.
    hold_p95_s: float | None = None
    #: Turn at which the slot seconds of its latest lease are paid off (queue ``drr``).
    turn: float = 0.0
    #: Round of its latest request, the event time of the round's first one, and seconds from that of the round before
    #: to it; 0: not known.
    round: int = -1
    round_t: float = 0.0
    round_s: float = 0.0
    #: Seconds computed in it, and waited for slots.
    computed_s: float = 0.0
    waited_s: float = 0.0
    #: Slot compute / (round time - waiting) of the latest rounds.
    duties: deque[float] = field(default_factory=lambda: deque(maxlen=_DUTIES))
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=_ENDED))
