"""Hold the slots that jobs are placed on, and the jobs that are not over."""

from dataclasses import dataclass, field
from typing import Literal

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.machine import Out
from drlnb.planning.placement.cluster import JobView, SlotState, Terms
from drlnb.planning.registry import Planners
from drlnb.records.columns.placement import JobFailed
from drlnb.records.common import SetDeadline

__all__ = ["BLAME", "HOLD", "INSTANT", "START", "STOP", "Job", "Placing", "Slot"]

#: Name of the deadline that ends an instant; what those of others begin with, before a colon and a slot or job.
INSTANT, BLAME, HOLD, START, STOP = "instant", "blame", "hold", "start", "stop"


@dataclass(slots=True, kw_only=True)
class Slot:
    """A slot, whose state follows from what is known of it."""

    node: int
    #: Job whose gang it is of; empty: of none.
    job: str = ""
    up: bool = True
    #: It failed, and is kept out of use for a while even if it is up.
    held: bool = False
    #: Why it is out of use until the user clears it; empty: it is not.
    mask: str = ""
    #: When it failed, when it was added last, and how long it had been up before, in seconds.
    failed_t: list[float] = field(default_factory=list)
    added_t: float = 0.0
    up_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Job:
    """A job that is not over."""

    n_slots: int
    #: Its work, and what is left of it, in seconds.
    work_s: float
    left_s: float
    phase: Literal["waiting", "running", "stopping"] = "waiting"
    version: int = 0
    #: Numbers of its gang's slots, those where it runs, and when it is over if nothing fails.
    slots: tuple[int, ...] = ()
    started: set[int] = field(default_factory=set)
    ends_t: float = 0.0
    #: Work of this gang that is kept, in seconds.
    kept_s: float = 0.0
    #: Why its gang cannot go on, and why the job itself is over with it; empty: it can, it is not.
    broken: str = ""
    failed: str = ""
    #: What a member raised, as long as it is open whether a lost slot made it do so; a slot was lost; all has stopped.
    raised: str = ""
    lost: bool = False
    stopped: bool = False
    #: Its members did not stop: what becomes of their slots now is not their fault.
    killed: bool = False
    #: Gangs in a row that were lost and kept nothing.
    n_in_vain: int = 0
    #: It was said that too few slots are alive.
    postponed: bool = False


@dataclass(slots=True, kw_only=True)
class Placing:
    """Slots and jobs."""

    planners: Planners = field(metadata=TRANSIENT)
    planner: str
    order: str
    backfill: str
    terms: Terms
    #: Seconds that a slot stays out of use when it has failed once; 0: until it is back, however often it fails.
    hold_s: float
    #: Seconds after which one that failed is expected back.
    downtime_s: float
    #: Failures per second of each slot; None: they are estimated.
    rate_hz: list[float] | None
    #: By name, in the order of their coming: it numbers them.
    slots: dict[str, Slot] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    #: In the order of their submission.
    jobs: dict[str, Job] = field(default_factory=dict)
    #: The end of this instant is to come.
    waking: bool = False
    t: float = 0.0

    def state_of(self, slot: Slot) -> SlotState:
        """Return the state of a slot."""
        if not slot.up or slot.held:
            return "failed"
        if slot.job:
            return "stopping" if self.jobs[slot.job].phase == "stopping" else "busy"
        return "masked" if slot.mask else "free"

    def count(self, state: SlotState) -> int:
        """Return how many slots are in a state."""
        return sum(self.state_of(slot) == state for slot in self.slots.values())

    def view(self, name: str) -> JobView:
        """Return a job as a planner sees it."""
        job = self.jobs[name]
        return JobView(job=name, n_slots=job.n_slots, work_s=job.left_s, started=job.version > 0)

    def wake(self, out: Out) -> None:
        """See what has to be done once the instant is over."""
        if not self.waking:
            self.waking = True
            out.append(SetDeadline(name=INSTANT, after_s=0.0))

    def over(self, name: str, out: Out) -> None:
        """End a job without results."""
        out.append(JobFailed(job=name, reason=self.jobs.pop(name).failed))
