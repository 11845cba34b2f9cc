"""Answer for the one pool of a fleet: leases of slots, placements of tasks, room for collectors on nodes.

The pool's machine runs in the broker and in the simulator.  It is the lease table with the placement planner and the
count of collectors per node beside it, and routes between them; it decides nothing else.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import cast

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.leasing import requests
from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.machine import RULES, LeaseTable, apply
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.leasing.slots import refuse
from drlnb.planning.machine import Out, Rule, Rules
from drlnb.planning.placement import PLACEMENT, PlacementView
from drlnb.planning.placement.cpu_slots import AUTO, CPU_SLOTS, CPU_SLOTS_KEY
from drlnb.planning.registry import PlannerFailed, Planners
from drlnb.records.base import Event, Row
from drlnb.records.columns import placement as records
from drlnb.records.columns.leasing import SlotFailed, SlotRequested
from drlnb.records.common import SettingChanged

__all__ = ["PoolMachine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Where a task was placed."""

    attempt: int
    #: Node of its master.
    node: str
    home: str | None
    collector_nodes: tuple[str, ...]
    #: Slots that may serve it; empty: any, those that come later too.
    allowed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Pool(Ledger):
    """State of a pool: its lease table's, and where tasks are placed."""

    #: Returns the planners of a task.
    planners_of: Callable[[str], Planners] = field(kw_only=True, metadata=TRANSIENT)
    #: Live node -> collectors that may act there at the same time, if nobody has chosen another number for all.
    nodes: dict[str, int] = field(default_factory=dict)
    #: CPU slots that each node lends to collectors; 0: each its share.
    cpu_slots: int = 0
    placed: dict[str, _Placed] = field(default_factory=dict)
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


# -------------------------------------------------------------------- nodes
def _node_added(pool: _Pool, event: records.NodeAdded, out: Out) -> None:
    """Count a node, and place who waited for one."""
    pool.nodes[event.node] = event.n_collector_slots
    asked, pool.asked = pool.asked, {}
    for each in asked.values():
        _place(pool, each, out)


def _node_lost(pool: _Pool, event: records.NodeLost) -> None:
    pool.nodes.pop(event.node, None)
    pool.count_failure(event.node)
    # A master that was there comes back as another attempt, with collectors of its own.
    pool.placed = {task: placed for task, placed in pool.placed.items() if placed.node != event.node}
    pool.asked = {task: asked for task, asked in pool.asked.items() if asked.node != event.node}


def _slot_failed(pool: _Pool, event: SlotFailed) -> None:
    pool.count_failure(event.slot.partition("/")[0])


# -------------------------------------------------------------------- tasks
def _placement_asked(pool: _Pool, event: records.PlacementAsked, out: Out) -> None:
    """Place a task, now or once a node is up; whatever its former attempt held is taken away."""
    floor = pool.floors.get(event.task, event.attempt)
    if event.attempt < floor:
        refuse(out, event.task, f"attempt {event.attempt} is over: {floor} or later may ask")
        return
    pool.raise_floor(event.task, event.attempt)
    if event.attempt > floor:
        # The former attempt's master may still compute: take away what it holds now, not when its lease expires.
        former = records.TaskStopped(t=event.t, task=event.task, attempt=event.attempt - 1, reason="superseded")
        apply(pool, requests.task_stopped, former, out)
    pool.asked[event.task] = event
    if pool.nodes:
        _place(pool, pool.asked.pop(event.task), out)


def _task_stopped(pool: _Pool, event: records.TaskStopped) -> None:
    pool.raise_floor(event.task, event.attempt + 1)


def _task_restarted(pool: _Pool, event: records.TaskRestarted, out: Out) -> None:
    """Refuse from now on whatever a former attempt still sends."""
    pool.raise_floor(event.task, event.attempt)


def _place(pool: _Pool, asked: records.PlacementAsked, out: Out) -> None:
    """Answer a question of a task."""
    former = pool.placed.pop(asked.task, None)
    homes = dict.fromkeys(pool.live_slots, 0)
    free = {node: pool.cpu_slots or n for node, n in pool.nodes.items()}
    for placed in pool.placed.values():
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
        failures={node: pool.failures.get(node, 0) for node in free},
        before=former.collector_nodes if former is not None and former.attempt == asked.attempt else (),
    )
    try:
        planner = pool.planners_of(asked.task).make(PLACEMENT, asked.planner or PLACEMENT.default)
        plan = PLACEMENT.ask(planner, view)
    except (PlannerFailed, ValueError) as error:  # this task fails, the others go on
        out.append(
            records.SendPlacement(task=asked.task, attempt=asked.attempt, collector_nodes=(), refusal=str(error))
        )
        return
    pool.placed[asked.task] = _Placed(
        attempt=asked.attempt,
        node=asked.node,
        home=plan.home,
        collector_nodes=plan.collector_nodes,
        allowed=() if set(plan.allowed) >= set(pool.live_slots) else plan.allowed,
    )
    of: Row = {"task": asked.task, "attempt": asked.attempt}
    out.append(records.PlacementPlanned(**of, planner=planner.name, **asdict(plan)))
    out.append(records.SendPlacement(**of, collector_nodes=plan.collector_nodes))


def _slot_requested(pool: _Pool, event: SlotRequested, out: Out) -> None:
    """Enter a request with the home and the allowed slots that placement gave to its task."""
    placed = pool.placed.get(event.task)
    if placed is not None and pool.settings.residency:
        event = replace(event, home=event.home or placed.home, allowed=event.allowed or placed.allowed)
    requests.slot_requested(pool, event, out)


def _setting_changed(pool: _Pool, event: SettingChanged, out: Out) -> None:
    """Change the CPU slots that each node lends to collectors."""
    if problem := CPU_SLOTS.problem(event.key, event.value):
        refuse(out, event.key, problem)
    else:
        pool.cpu_slots = 0 if event.value == AUTO else event.value


#: The rules of placement; leases have nothing to do with their events.
_PLACING: Rules[_Pool] = {
    records.NodeAdded: _node_added,
    records.PlacementAsked: _placement_asked,
    records.TaskRestarted: _task_restarted,
}
#: What placement makes of events of leasing, before their rules.
_BESIDE: dict[type[Event], Callable[..., None]] = {
    records.NodeLost: _node_lost,
    SlotFailed: _slot_failed,
    records.TaskStopped: _task_stopped,
}


class PoolMachine(LeaseTable):
    """Leases, placements and nodes of one pool.

    Parameters
    ----------
    settings
        Times and limits of leasing.
    epoch
        First half of every fence, see :class:`~drlnb.planning.leasing.machine.LeaseTable`.
    planners_of
        Returns the planners of a task: runs may have placement planners of their own.
    """

    state: _Pool

    def __init__(
        self, settings: LeasingSettings, epoch: int, planners_of: Callable[[str], Planners] = lambda task: Planners()
    ) -> None:
        super().__init__(settings, epoch)
        self.name, self.state = "pool", _Pool(settings, epoch, planners_of=planners_of)
        # Its rules get its own state, which is more than a ledger.
        self._rules = cast("Rules[Ledger]", {**RULES, **_PLACING, SlotRequested: _slot_requested})
        self._began_with = asdict(settings)

    @property
    def config(self) -> Row:
        """The constructor's arguments as plain data: settings as they were at the start, the epoch as it is now."""
        return {"settings": dict(self._began_with), "epoch": self.epoch}

    @property
    def n_slots(self) -> int:
        """Live slots."""
        return self.state.n_live

    def _apply(self, rule: Rule[Ledger], event: Event, out: Out) -> None:
        if isinstance(event, SettingChanged) and event.key == CPU_SLOTS_KEY:
            _setting_changed(self.state, event, out)
        elif type(event) in _PLACING:
            rule(self.state, event, out)
        else:
            if beside := _BESIDE.get(type(event)):
                beside(self.state, event)
            super()._apply(rule, event, out)

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        yield from super().laws()
        pool = self.state
        current = all(placed.attempt >= pool.floors[task] for task, placed in pool.placed.items())
        yield current, "no attempt that is over is placed"
        yield not (pool.asked and pool.nodes), "a question waits only while no node is up"
