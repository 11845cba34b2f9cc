"""Place the tasks of a pool: keep where each one is, ask its planner, and answer its master.

A task's slots are its *gang*.  They are planned as an attempt starts, and anew when one of them fails or there are too
few: those that live stay.  Each plan of a task has a higher version.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from drlnb.planning.machine import Out
from drlnb.planning.placement.cpu_slots import AUTO, CPU_SLOTS, CPU_SLOTS_KEY
from drlnb.planning.placement.planner import PLACEMENT, Placement, PlacementView, node_of
from drlnb.planning.registry import Planner, PlannerFailed, Planners
from drlnb.records.base import shared
from drlnb.records.columns import placement as records
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged
from drlnb.records.effect import NEXT_PLACEMENT
from drlnb.records.errors import ConfigError
from drlnb.records.settings import SHARE, Declared, choice, setting

__all__ = ["PLANNER_KEY", "Known", "Placed", "PlacementSettings", "Placements", "PlannersOf"]

#: Setting of a task that names its planner.
PLANNER_KEY = "placement.planner"
#: Failures that are remembered of each slot and node.
_FAILURES = 16
#: A gang moves to a slot that has come if another slot is home to so many tasks more than it is.
_UNEVEN = 2
_UNPLAYED = "no preview plays it"
#: Returns the planners of a task: runs may have placement planners of their own.
PlannersOf = Callable[[str], Planners]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings(Declared):
    """What holds of all tasks of a pool; a planner that names allowed slots itself is not asked for others.

    Raises
    ------
    ConfigError
        If a value is wrong; the message lists all of it.
    """

    ROOM: ClassVar[str] = "placement"

    #: Slots that may serve a task beside its gang's own: none, those of the same nodes, or any.
    allowed: str = setting("any", choice("any", "nodes", "gang"), counts=NEXT_PLACEMENT, unfelt=_UNPLAYED)
    #: Share by which a gang is slower for each node beyond the fewest that could hold it, dimensionless.
    locality_frac: float = setting(0.05, SHARE, counts=NEXT_PLACEMENT, unfelt=_UNPLAYED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a task was placed."""

    attempt: int
    #: Node of its master.
    node: str
    #: Name of its planner.
    planner: str
    #: Its gang, the lead first, and how many slots that wants.
    slots: tuple[str, ...]
    n_learners: int
    collector_nodes: tuple[str, ...]
    #: Slots that may serve it; empty: any, those that come later too.
    allowed: tuple[str, ...] = ()
    #: The value of ``placement.allowed`` by which they may; empty: its planner has named them.
    allowed_by: str = ""
    #: Why it gets no slot any more: its planner has failed.
    refusal: str = ""
    #: What has been said of slots that are missing: nothing (0), that there are too few (1), that there are none (2).
    postponed: int = 0


@dataclass(slots=True)
class Placements:
    """Where the tasks of a pool are placed, and what there is to place them on."""

    settings: PlacementSettings = field(default_factory=PlacementSettings)
    #: Slots that may be lent, sorted.
    slots: tuple[str, ...] = ()
    #: Live node -> collectors that may act there at the same time, if nobody has chosen another number for all.
    nodes: dict[str, int] = field(default_factory=dict)
    #: CPU slots that each node lends to collectors; 0: each its share.
    cpu_slots: int = 0
    placed: dict[str, Placed] = field(default_factory=dict)
    #: Task -> lowest attempt that may still ask.
    floors: dict[str, int] = field(default_factory=dict)
    #: Task -> number of its latest plan.
    versions: dict[str, int] = field(default_factory=dict)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Whom placement may ask, and what its pool has seen."""

    planners_of: PlannersOf
    t: float
    #: Slot -> failures per second of work to expect of it.
    rates: Mapping[str, float]
    #: Returns the seconds that a task's latest round took; 0: that is not known.
    round_s: Callable[[str], float]


# -------------------------------------------------------------------- nodes and slots
def node_added(state: Placements, event: records.NodeAdded, known: Known, out: Out) -> None:
    """Count a node, and place who waited for one."""
    state.nodes[event.node] = event.n_collector_slots
    asked, state.asked = state.asked, {}
    for each in asked.values():
        _place(state, each, known, out)


def node_lost(state: Placements, event: records.NodeLost) -> None:
    """Forget a node and what its masters have asked: each comes back as another attempt, with collectors of its own."""
    state.nodes.pop(event.node, None)
    state.failed(event.node, event.t)
    state.placed = {task: placed for task, placed in state.placed.items() if placed.node != event.node}
    state.asked = {task: asked for task, asked in state.asked.items() if asked.node != event.node}


def slots_changed(state: Placements, slots: tuple[str, ...], known: Known, out: Out) -> dict[str, Placed]:
    """Have gangs follow slots that come and go; return where tasks are from now on whose place is another one.

    A task whose planner fails gets no slot any more, the others go on.
    """
    before, state.slots = state.slots, slots
    if slots == before:
        return {}
    former = dict(state.placed)
    for task, placed in former.items():
        _follow(state, task, placed, known, out)
    if set(slots) - set(before):
        _even_out(state, known, out)
    moved = {task: placed for task, placed in state.placed.items() if placed != former[task]}
    for task in state.placed:
        _say_postponed(state, task, out)
    return moved


def _follow(state: Placements, task: str, placed: Placed, known: Known, out: Out) -> None:
    """Ask the planner of a task where it may compute now, if it follows slots; nobody while there is no slot."""
    planner = _planner(state, task, placed, known, out)
    if planner is None or not PLACEMENT.trait(planner, "replans"):
        return
    if PLACEMENT.trait(planner, "mends"):
        kept = tuple([slot for slot in placed.slots if slot in state.slots])
        if not state.slots:
            state.placed[task] = replace(placed, slots=(), allowed=())
            return
        if kept == placed.slots and len(kept) == min(placed.n_learners, len(state.slots)):
            state.placed[task] = replace(placed, allowed=_allowed(state, placed))
            return
    if state.slots:
        _replan(state, task, placed, planner, known, out)


def _planner(
    state: Placements, task: str, placed: Placed, known: Known, out: Out
) -> Planner[PlacementView, Placement] | None:
    """Return the planner of a task; None if there is none (any more)."""
    try:
        return None if placed.refusal else known.planners_of(task).make(PLACEMENT, placed.planner)
    except ValueError as error:
        _refuse(state, task, placed, str(error), out)
        return None


def _refuse(state: Placements, task: str, placed: Placed, reason: str, out: Out) -> None:
    """Give a task no slot any more."""
    state.placed[task] = replace(placed, refusal=reason)
    out.append(RequestRefused(subject=task, reason=reason, final=True))


def _replan(
    state: Placements,
    task: str,
    placed: Placed,
    planner: Planner[PlacementView, Placement],
    known: Known,
    out: Out,
) -> None:
    """Ask a planner where a task may compute now; its collectors stay where they are."""
    try:
        plan = PLACEMENT.ask(planner, _view(state, task, placed, known))
    except PlannerFailed as error:
        _refuse(state, task, placed, str(error), out)
    else:
        _take(state, task, placed, planner.name, plan, out)


def _even_out(state: Placements, known: Known, out: Out) -> None:
    """Move members of gangs from slots that are home to many tasks to slots that have come; of those that run, one.

    Rounds that have begun are not touched: it is where the gang computes next.
    """
    homes, n_running = _homes(state.slots, state.placed.values()), 0

    def order(task: str) -> tuple[bool, int]:
        """Those that have not run, then those on the slots that are home to most."""
        return known.round_s(task) > 0.0, -max([homes.get(slot, 0) for slot in state.placed[task].slots], default=0)

    for task in sorted(state.placed, key=order):
        placed, runs = state.placed[task], known.round_s(task) > 0.0
        least = min((n for slot, n in homes.items() if slot not in placed.slots), default=math.inf)
        over = [slot for slot in placed.slots if homes.get(slot, 0) - least >= _UNEVEN]
        planner = _planner(state, task, placed, known, out) if over and not (runs and n_running) else None
        if planner is None or not PLACEMENT.trait(planner, "mends"):
            continue
        n_running += runs
        left = tuple([slot for slot in placed.slots if slot != over[-1]])
        _replan(state, task, replace(placed, slots=left), planner, known, out)
        homes = _homes(state.slots, state.placed.values())


def _say_postponed(state: Placements, task: str, out: Out) -> None:
    """Say that a task's gang lacks slots, or has none, once each until it has all."""
    placed, n = state.placed[task], len(state.slots)
    lacks = 0 if n >= placed.n_learners or placed.refusal else 1 if n else 2
    if lacks > placed.postponed:
        reason = f"needs {placed.n_learners} slot{'s' * (placed.n_learners > 1)}, {n} alive"
        out.append(records.PlacementPostponed(task=task, reason=reason, n_alive=n))
    if lacks > placed.postponed or not lacks:
        state.placed[task] = replace(placed, postponed=lacks)


# -------------------------------------------------------------------- tasks
def placement_asked(state: Placements, event: records.PlacementAsked, known: Known, out: Out) -> None:
    """Place a task, now or once a node is up; an attempt that is over is refused."""
    floor = state.floors.get(event.task, event.attempt)
    if event.attempt < floor:
        reason = f"attempt {event.attempt} is over: {floor} or later may ask"
        out.append(RequestRefused(subject=event.task, reason=reason))
        return
    state.raise_floor(event.task, event.attempt)
    if state.nodes:
        _place(state, event, known, out)
    else:
        state.asked[event.task] = event


def setting_changed(state: Placements, event: SettingChanged, out: Out) -> None:
    """Change what holds of all tasks: the CPU slots that each node lends to collectors, or a setting of placement."""
    name = event.key.partition(".")[2]
    if event.key == CPU_SLOTS_KEY:
        if problem := CPU_SLOTS.problem(event.key, event.value):
            out.append(RequestRefused(subject=event.key, reason=problem))
        else:
            state.cpu_slots = 0 if event.value == AUTO else event.value
        return
    try:
        state.settings = replace(state.settings, **{name: event.value})
    except ConfigError as error:
        out.append(RequestRefused(subject=event.key, reason=str(error)))


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


def _place(state: Placements, asked: records.PlacementAsked, known: Known, out: Out) -> None:
    """Answer a question of a task."""
    former, name = state.placed.pop(asked.task, None), asked.planner or PLACEMENT.default
    placed = Placed(
        attempt=asked.attempt,
        node=asked.node,
        planner=name,
        slots=() if former is None else former.slots,
        n_learners=asked.n_learners,
        collector_nodes=() if former is None else former.collector_nodes,
        postponed=0 if former is None else former.postponed,
    )
    task, attempt = asked.task, asked.attempt
    try:
        planner = known.planners_of(task).make(PLACEMENT, name)
        plan = PLACEMENT.ask(planner, _view(state, task, placed, known, asked.n_collectors))
    except (PlannerFailed, ValueError) as error:  # this task fails, the others go on
        out.append(records.SendPlacement(task=task, attempt=attempt, collector_nodes=(), refusal=str(error)))
        return
    _take(state, task, replace(placed, collector_nodes=plan.collector_nodes), planner.name, plan, out)
    _say_postponed(state, task, out)
    out.append(records.SendPlacement(task=task, attempt=attempt, collector_nodes=plan.collector_nodes))


def _take(state: Placements, task: str, placed: Placed, planner: str, plan: Placement, out: Out) -> None:
    """Hold to a plan, and record it."""
    by = "" if plan.allowed else state.settings.allowed
    placed = replace(placed, slots=plan.slots, allowed_by=by)
    every = set(plan.allowed) >= set(state.slots)
    allowed = _allowed(state, placed) if by else () if every else tuple(sorted(set(plan.allowed)))
    state.placed[task] = replace(placed, allowed=allowed)
    version = state.versions[task] = state.versions.get(task, 0) + 1
    planned = records.PlacementPlanned(
        task=task,
        attempt=placed.attempt,
        gang_version=version,
        planner=planner,
        allowed_by=by,
        **shared(plan, records.PlacementPlanned) | {"allowed": allowed or state.slots},
    )
    out.append(planned)


def _allowed(state: Placements, placed: Placed) -> tuple[str, ...]:
    """Return the slots that may serve a task by the setting of its plan; empty: any, as of a gang that lacks slots."""
    if placed.allowed_by == "any" or len(placed.slots) < placed.n_learners:
        return ()
    if placed.allowed_by == "gang":
        return tuple(sorted(placed.slots))
    nodes = {node_of(slot) for slot in placed.slots}
    return tuple([slot for slot in state.slots if node_of(slot) in nodes])


def _view(state: Placements, task: str, placed: Placed, known: Known, n_collectors: int = 0) -> PlacementView:
    """Return the pool as it is for a task that is, or was, placed somewhere."""
    others = [each for other, each in state.placed.items() if other != task]
    free = {name: state.cpu_slots or n for name, n in state.nodes.items()}
    for each in others:
        for name in each.collector_nodes:
            if name in free:
                free[name] -= 1
    return PlacementView(
        homes=_homes(state.slots, others),
        free_collectors=free,
        node=placed.node,
        n_collectors=n_collectors,
        t=known.t,
        failures=dict(state.failures),
        before=placed.collector_nodes,
        slots=placed.slots,
        n_learners=placed.n_learners,
        round_s=known.round_s(task),
        rates=known.rates,
        n_wide=_n_wide(others),
        locality_frac=state.settings.locality_frac,
        task=task,
    )


def _homes(slots: Iterable[str], placed: Iterable[Placed]) -> dict[str, int]:
    """Return how many of some gangs have each slot."""
    n_of = Counter(slot for each in placed for slot in each.slots)
    return {slot: n_of[slot] for slot in slots}


def _n_wide(placed: Iterable[Placed]) -> Counter[str]:
    """Return how many of some gangs that have slots on several nodes there are on each node."""
    gangs = [{node_of(slot) for slot in each.slots} for each in placed]
    return Counter(node for nodes in gangs if len(nodes) > 1 for node in nodes)
