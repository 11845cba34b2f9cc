"""Define the records of placement: the slots a task may use, the nodes of its collectors (the placement patent)."""

from drlnb.records.base import Command, Decision, Event


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
    """The home slot of the task, the slots that it may use, and the node of each collector.

    Where slots came or went no collector is placed: they stay where they are.
    """

    task: str
    attempt: int
    planner: str
    home: str | None
    allowed: tuple[str, ...]
    collector_nodes: tuple[str, ...]


class SendPlacement(Command):
    """Answer the master: where its collectors live, or why it cannot be placed."""

    task: str
    attempt: int
    collector_nodes: tuple[str, ...]
    #: Empty if it is placed.
    refusal: str = ""
