"""Define the records of placement: the slots a task may use, the nodes of its collectors (the placement patent)."""

from dataclasses import dataclass

from drlnb.records.base import Command, Decision, Event, tagged


@tagged("candidate")
@dataclass(frozen=True, slots=True)
class Candidate:
    """Slots that a gang could have, too."""

    #: The rule that chooses them.
    rule: str
    slots: tuple[str, ...]
    #: Seconds that a round is expected to take on them, failures included; as long as no round time is known, those
    #: that a second of work takes.
    expected_s: float
    n_nodes: int


@tagged("weighed")
@dataclass(frozen=True, slots=True)
class Weighed:
    """A slot that a gang could have had, or has, as its planner saw it."""

    slot: str
    #: Failures per second of work that were expected of it.
    rate_hz: float
    #: With which a network would have chosen it when it was last asked about it; None: no network was asked.
    chance: float | None


class NodeAdded(Event):
    """A node agent is up."""

    node: str
    host: str
    #: Collectors that may act on this node at the same time.
    n_collector_slots: int


class NodeLost(Event):
    """A node agent is gone, with all its slots, children and the masters that it hosted."""

    node: str
    reason: str


class PlacementAsked(Event):
    """The master of a task starts (`attempt` new), or lost a node, and asks for the task's placement."""

    task: str
    attempt: int
    #: Node of the master.
    node: str
    n_collectors: int
    #: Name of the planner that places it; empty: the default.
    planner: str = ""
    #: Slots of its gang.
    n_learners: int = 1


class TaskStopped(Event):
    """A task has ended or its attempt was given up: nothing may be held or wanted by it any more."""

    task: str
    attempt: int
    reason: str


class TaskRestarted(Event):
    """The user has a task that failed or was stopped begin again as `attempt`, from its newest checkpoint."""

    task: str
    attempt: int


class PlacementPlanned(Decision):
    """The slots of the task's gang, the slots that it may use, and the node of each collector.

    Where slots came or went no collector is placed: they stay where they are.
    """

    task: str
    attempt: int
    #: Number of the plan, over all attempts of the task.
    gang_version: int
    planner: str
    #: The slots that it should get if it can choose, the lead first.
    slots: tuple[str, ...]
    allowed: tuple[str, ...]
    #: The value of ``placement.allowed`` by which they are allowed; empty: the planner has named them itself.
    allowed_by: str
    collector_nodes: tuple[str, ...]
    #: As of :class:`Candidate`; None: the planner does not say.
    expected_s: float | None
    #: What could have been instead.
    candidates: tuple[Candidate, ...]
    #: Those of the gang and all that it could have had; empty: the planner does not say.
    weighed: tuple[Weighed, ...] = ()


class PlacementPostponed(Decision):
    """A task has fewer slots than its gang wants, or none: it goes on with these, or waits.

    Each of the two is said once until it has all.
    """

    task: str
    reason: str
    #: Slots that may be lent.
    n_alive: int

    @property
    def text(self) -> str:
        """What that means, in words for the user; empty where it goes on, of which the lease of its round tells."""
        return "" if self.n_alive else f"task {self.task} waits: it {self.reason}"


class SendPlacement(Command):
    """Answer the master: where its collectors live, or why it cannot be placed."""

    task: str
    attempt: int
    collector_nodes: tuple[str, ...]
    #: Empty if it is placed.
    refusal: str = ""


# ------------------------------------------------------------------ events of jobs that are placed alone
# They have a stream of their own; its slots come and go by the records of leasing.
class SlotTaken(Event):
    """Another placement has taken a slot; it has not failed, and may be given back."""

    slot: str
    by: str


class JobSubmitted(Event):
    """A job waits for its slots."""

    job: str
    #: Slots that it needs at once.
    n_slots: int
    #: Its work, in seconds on the fewest nodes and without a failure.
    work_s: float


class JobStopped(Event):
    """The user wants no more of a job."""

    job: str
    reason: str


class JobStarted(Event):
    """Members of a gang run; the others of its slots are to follow."""

    job: str
    gang_version: int
    slots: tuple[str, ...]


class CheckpointSaved(Event):
    """All members of a gang have saved a step from which the job can go on."""

    job: str
    gang_version: int
    #: Work of this gang that is kept, in seconds.
    kept_s: float


class GangMemberLost(Event):
    """A member of a gang has raised: the job's fault, not its slot's."""

    job: str
    gang_version: int
    slot: str
    reason: str


class GangSilent(Event):
    """Members of a gang have given no sign of life for as long as their job allows."""

    job: str
    gang_version: int
    #: Theirs, and those of them where the process does not answer either.
    slots: tuple[str, ...]
    stuck: tuple[str, ...]
    silent_s: float


class GangStopped(Event):
    """Nothing of a gang that was to stop runs any more."""

    job: str
    gang_version: int
    #: Seconds since its start, and work that is kept of them.
    ran_s: float
    kept_s: float


class JobFinished(Event):
    """All members of a gang have returned, and their results are here."""

    job: str
    gang_version: int
    #: Seconds since its start.
    ran_s: float


# ------------------------------------------------------------------ decisions and commands of jobs
class GangPlanned(Decision):
    """The slots of a job's next gang."""

    job: str
    #: Grows with every gang of the job; what comes of an older one counts no more.
    gang_version: int
    #: The first one leads.
    slots: tuple[str, ...]
    planner: str
    #: Seconds that the job is expected to take on these slots, failures included.
    expected_s: float
    #: What could have been instead; the job's seconds there.
    candidates: tuple[Candidate, ...]


class JobPostponed(Decision):
    """A job waits though it could be its turn: too few slots are alive, said once; or its planner has it wait."""

    job: str
    reason: str


class GangBroken(Decision):
    """A gang cannot go on: its members are stopped, and the job waits again or has failed."""

    job: str
    gang_version: int
    reason: str


class JobFailed(Decision):
    """A job is over without results."""

    job: str
    reason: str


class SlotMasked(Decision):
    """A slot is kept out of use until the user clears it."""

    slot: str
    reason: str


class StartGang(Command):
    """Start a job's members, one on each slot, all of them or none."""

    job: str
    gang_version: int
    #: Of each member, by its rank.
    slots: tuple[str, ...]
    #: What is left of the job's work, in seconds.
    work_s: float


class StopGang(Command):
    """Stop the members of a gang that still run; `kill`: they did not stop when they were told to."""

    job: str
    gang_version: int
    kill: bool = False
