"""Place the tasks of a pool: keep where each one is, ask its planner, and answer its master."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from drlnb.planning.machine import Out
from drlnb.planning.placement.cpu_slots import AUTO, CPU_SLOTS
from drlnb.planning.placement.planner import PLACEMENT, Placement, PlacementView
from drlnb.planning.registry import PlannerFailed, Planners
from drlnb.records.columns import placement as records
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged

__all__ = ["PLANNER_KEY", "Placed", "Placements", "PlannersOf"]

#: Setting of a task that names its planner.
PLANNER_KEY = "placement.planner"
#: Failures that are remembered of each slot and node.
_FAILURES = 16
#: Returns the planners of a task: runs may have placement planners of their own.
PlannersOf = Callable[[str], Planners]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a task was placed."""

    attempt: int
    #: Node of its master.
    node: str
    #: Name of its planner.
    planner: str
    home: str | None
    collector_nodes: tuple[str, ...]
    #: Slots that may serve it; empty: any, those that come later too.
    allowed: tuple[str, ...] = ()
    #: Why it gets no slot any more: its planner has failed.
    refusal: str = ""


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
    #: Slot or node -> its latest failures, in seconds.
    failures: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def failed(self, name: str, t: float) -> None:
        """Remember when a slot failed or a node was lost."""
        self.failures[name] = (*self.failures.get(name, ()), t)[-_FAILURES:]

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
    state.failed(event.node, event.t)
    state.placed = {task: placed for task, placed in state.placed.items() if placed.node != event.node}
    state.asked = {task: asked for task, asked in state.asked.items() if asked.node != event.node}


def slots_changed(
    state: Placements, slots: tuple[str, ...], t: float, planners_of: PlannersOf, out: Out
) -> dict[str, Placed]:
    """Ask the planners that follow slots where their tasks may compute now; return what holds from now on, by task.

    Nobody is asked while there is no slot.  A task whose planner fails gets no slot any more, the others go on.
    """
    moved: dict[str, Placed] = {}
    if slots == state.slots:
        return moved
    state.slots = slots
    for task, placed in state.placed.items() if slots else ():
        if placed.refusal:
            continue
        try:
            planner = planners_of(task).make(PLACEMENT, placed.planner)
            if not PLACEMENT.trait(planner, "replans"):
                continue
            plan = PLACEMENT.ask(planner, _view(state, task, t, placed.node, placed))
        except (PlannerFailed, ValueError) as error:
            moved[task] = replace(placed, refusal=str(error))
            out.append(RequestRefused(subject=task, reason=str(error), final=True))
        else:
            moved[task] = replace(placed, home=plan.home, allowed=_allowed(state, plan))
            out.append(_planned(task, placed.attempt, planner.name, plan))
        state.placed[task] = moved[task]
    return moved


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


def planner_chosen(state: Placements, event: SettingChanged, planners_of: PlannersOf, out: Out) -> None:
    """Have another planner follow a task's slots; one that is not placed names its planner as it asks."""
    task, name = str(event.task), str(event.value)
    if task not in state.placed:
        return
    try:
        planners_of(task).make(PLACEMENT, name)
    except ValueError as error:
        out.append(RequestRefused(subject=event.key, reason=str(error)))
    else:
        state.placed[task] = replace(state.placed[task], planner=name)


def _place(state: Placements, asked: records.PlacementAsked, planners_of: PlannersOf, out: Out) -> None:
    """Answer a question of a task."""
    former, name = state.placed.pop(asked.task, None), asked.planner or PLACEMENT.default
    try:
        planner = planners_of(asked.task).make(PLACEMENT, name)
        plan = PLACEMENT.ask(planner, _view(state, asked.task, asked.t, asked.node, former, asked.n_collectors))
    except (PlannerFailed, ValueError) as error:  # this task fails, the others go on
        out.append(
            records.SendPlacement(task=asked.task, attempt=asked.attempt, collector_nodes=(), refusal=str(error))
        )
        return
    state.placed[asked.task] = Placed(
        attempt=asked.attempt,
        node=asked.node,
        planner=name,
        home=plan.home,
        collector_nodes=plan.collector_nodes,
        allowed=_allowed(state, plan),
    )
    out.append(_planned(asked.task, asked.attempt, planner.name, plan))
    out.append(records.SendPlacement(task=asked.task, attempt=asked.attempt, collector_nodes=plan.collector_nodes))


def _view(
    state: Placements, task: str, t: float, node: str, former: Placed | None, n_collectors: int = 0
) -> PlacementView:
    """Return the pool as it is for a task, whose master is on a node."""
    homes = dict.fromkeys(state.slots, 0)
    free = {name: state.cpu_slots or n for name, n in state.nodes.items()}
    for placed in (placed for other, placed in state.placed.items() if other != task):
        if placed.home in homes:
            homes[placed.home] += 1
        for name in placed.collector_nodes:
            if name in free:
                free[name] -= 1
    return PlacementView(
        homes=homes,
        free_collectors=free,
        node=node,
        n_collectors=n_collectors,
        t=t,
        failures=dict(state.failures),
        before=() if former is None else former.collector_nodes,
        home=None if former is None else former.home,
        task=task,
    )


def _allowed(state: Placements, plan: Placement) -> tuple[str, ...]:
    """Return the slots that a plan allows; empty if these are all there are."""
    return () if set(plan.allowed) >= set(state.slots) else tuple(sorted(set(plan.allowed)))


def _planned(task: str, attempt: int, planner: str, plan: Placement) -> records.PlacementPlanned:
    return records.PlacementPlanned(task=task, attempt=attempt, planner=planner, **asdict(plan))
