"""Place the tasks of a pool: keep where each one is, ask its planner, and answer its master."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from drlnb.planning.machine import Out
from drlnb.planning.placement.cpu_slots import AUTO, CPU_SLOTS
from drlnb.planning.placement.planner import PLACEMENT, PlacementView
from drlnb.planning.registry import PlannerFailed, Planners
from drlnb.records.base import Row
from drlnb.records.columns import placement as records
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged

__all__ = [
    "Placed", "Placements", "PlannersOf", "node_added", "node_lost", "placement_asked", "setting_changed",
]  # fmt: skip

#: Returns the planners of a task: runs may have placement planners of their own.
PlannersOf = Callable[[str], Planners]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a task was placed."""

    attempt: int
    #: Node of its master.
    node: str
    home: str | None
    collector_nodes: tuple[str, ...]
    #: Slots that may serve it; empty: any, those that come later too.
    allowed: tuple[str, ...] = ()


@dataclass(slots=True)
class Placements:
    """Where the tasks of a pool are placed, and what there is to place them on."""

    #: Slots that may be lent, sorted.
    slots: tuple[str, ...] = ()
    #: Live node -> collectors that may act there at the same time, if nobody has chosen another number for all.
    nodes: dict[str, int] = field(default_factory=dict)
    #: CPU slots that each node lends to collectors; 0: each its share.
    cpu_slots: int = 0
    placed: dict[str, Placed] = field(default_factory=dict)
    #: Task -> lowest attempt that may still ask.
    floors: dict[str, int] = field(default_factory=dict)
    #: Questions that wait for a first node, by task.
    asked: dict[str, records.PlacementAsked] = field(default_factory=dict)
    #: Node -> how often it, or a slot of it, was lost.
    failures: dict[str, int] = field(default_factory=dict)

    def count_failure(self, node: str) -> None:
        """Count the loss of a node, or of a slot of it."""
        self.failures[node] = self.failures.get(node, 0) + 1

    def raise_floor(self, task: str, floor: int) -> None:
        """Refuse what attempts of a task below `floor` still ask, and forget where they were placed."""
        self.floors[task] = max(self.floors.get(task, 0), floor)
        for known in (self.placed, self.asked):
            if task in known and known[task].attempt < floor:
                del known[task]


# -------------------------------------------------------------------- nodes and slots
def node_added(state: Placements, event: records.NodeAdded, planners_of: PlannersOf, out: Out) -> None:
    """Count a node, and place who waited for one."""
    state.nodes[event.node] = event.n_collector_slots
    asked, state.asked = state.asked, {}
    for each in asked.values():
        _place(state, each, planners_of, out)


def node_lost(state: Placements, event: records.NodeLost) -> None:
    """Forget a node and what its masters have asked: each comes back as another attempt, with collectors of its own."""
    state.nodes.pop(event.node, None)
    state.count_failure(event.node)
    state.placed = {task: placed for task, placed in state.placed.items() if placed.node != event.node}
    state.asked = {task: asked for task, asked in state.asked.items() if asked.node != event.node}


# -------------------------------------------------------------------- tasks
def placement_asked(state: Placements, event: records.PlacementAsked, planners_of: PlannersOf, out: Out) -> None:
    """Place a task, now or once a node is up; an attempt that is over is refused."""
    floor = state.floors.get(event.task, event.attempt)
    if event.attempt < floor:
        reason = f"attempt {event.attempt} is over: {floor} or later may ask"
        out.append(RequestRefused(subject=event.task, reason=reason))
        return
    state.raise_floor(event.task, event.attempt)
    if state.nodes:
        _place(state, event, planners_of, out)
    else:
        state.asked[event.task] = event


def setting_changed(state: Placements, event: SettingChanged, out: Out) -> None:
    """Change the CPU slots that each node lends to collectors."""
    if problem := CPU_SLOTS.problem(event.key, event.value):
        out.append(RequestRefused(subject=event.key, reason=problem))
    else:
        state.cpu_slots = 0 if event.value == AUTO else event.value


def _place(state: Placements, asked: records.PlacementAsked, planners_of: PlannersOf, out: Out) -> None:
    """Answer a question of a task."""
    former = state.placed.pop(asked.task, None)
    homes = dict.fromkeys(state.slots, 0)
    free = {node: state.cpu_slots or n for node, n in state.nodes.items()}
    for placed in state.placed.values():
        if placed.home in homes:
            homes[placed.home] += 1
        for node in placed.collector_nodes:
            if node in free:
                free[node] -= 1
    view = PlacementView(
        homes=homes,
        free_collectors=free,
        node=asked.node,
        n_collectors=asked.n_collectors,
        failures={node: state.failures.get(node, 0) for node in free},
        before=former.collector_nodes if former is not None and former.attempt == asked.attempt else (),
    )
    try:
        planner = planners_of(asked.task).make(PLACEMENT, asked.planner or PLACEMENT.default)
        plan = PLACEMENT.ask(planner, view)
    except (PlannerFailed, ValueError) as error:  # this task fails, the others go on
        out.append(
            records.SendPlacement(task=asked.task, attempt=asked.attempt, collector_nodes=(), refusal=str(error))
        )
        return
    state.placed[asked.task] = Placed(
        attempt=asked.attempt,
        node=asked.node,
        home=plan.home,
        collector_nodes=plan.collector_nodes,
        allowed=() if set(plan.allowed) >= set(state.slots) else plan.allowed,
    )
    of: Row = {"task": asked.task, "attempt": asked.attempt}
    out.append(records.PlacementPlanned(**of, planner=planner.name, **asdict(plan)))
    out.append(records.SendPlacement(**of, collector_nodes=plan.collector_nodes))
