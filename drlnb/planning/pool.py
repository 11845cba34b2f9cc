"""Answer for the one pool of a fleet: leases of slots, placements of tasks, room for collectors on nodes.

The pool's machine runs in the broker and in the simulator.  Each of its rules is a call into the rooms of leasing and
of placement; it decides nothing else.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.leasing import machine as leasing
from drlnb.planning.leasing import requests
from drlnb.planning.leasing.ledger import Ledger
from drlnb.planning.leasing.pump import ask_holders
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.machine import Machine, Out, Rules
from drlnb.planning.placement import tasks
from drlnb.planning.placement.cpu_slots import CPU_SLOTS_KEY
from drlnb.planning.placement.health import rates_hz
from drlnb.planning.registry import Planners
from drlnb.records.base import Event, Row
from drlnb.records.columns.leasing import (
    RequestRefused,
    SlotAdded,
    SlotFailed,
    SlotRequested,
    TenantLost,
)
from drlnb.records.columns.placement import NodeAdded, NodeLost, PlacementAsked, TaskRestarted, TaskStopped
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence

__all__ = ["PoolMachine", "PoolState"]

#: Settings that placement keeps.
_OF_PLACEMENT = (
    CPU_SLOTS_KEY,
    *(f"{tasks.PlacementSettings.ROOM}.{name}" for name in tasks.PlacementSettings.declared()),
)


@dataclass(slots=True)
class PoolState:
    """State of a pool."""

    leases: Ledger
    placement: tasks.Placements = field(default_factory=tasks.Placements)
    planners_of: tasks.PlannersOf = field(kw_only=True, metadata=TRANSIENT)

    @property
    def t(self) -> float:
        """Time of the last event, in seconds."""
        return self.leases.t

    @t.setter
    def t(self, now: float) -> None:
        self.leases.t = now

    @property
    def known(self) -> tasks.Known:
        """What placement may know of the pool."""
        books = self.leases.tasks
        slots = self.leases.slots.values()
        number = {node: i for i, node in enumerate(dict.fromkeys(slot.node for slot in slots))}
        rates = rates_hz(
            [slot.n_failures for slot in slots],
            [slot.under_work_s(self.t) for slot in slots],
            [number[slot.node] for slot in slots],
        )
        return tasks.Known(
            planners_of=self.planners_of,
            t=self.t,
            rates=dict(zip(self.leases.slots, rates, strict=True)),
            round_s=lambda task: books[task].round_s if task in books else 0.0,
        )


# -------------------------------------------------------------------- slots and leases
def _lease(pool: PoolState, event: Event, out: Out) -> None:
    leasing.apply(pool.leases, leasing.RULES[type(event)], event, out)


def _slots(pool: PoolState, event: Event, out: Out) -> None:
    """Apply an event by which slots may come or go; before any is lent, tasks are placed anew."""
    moved: dict[str, tasks.Placed] = {}

    def rule(ledger: Ledger, event: Event, out: Out) -> None:
        leasing.RULES[type(event)](ledger, event, out)
        moved.update(tasks.slots_changed(pool.placement, ledger.lendable, pool.known, out))
        for task, placed in moved.items():
            requests.task_moved(ledger, task, placed.slots, placed.allowed, placed.refusal, out)

    leasing.apply(pool.leases, rule, event, out)
    for lease in pool.leases.open.values():
        if lease.task in moved and lease.state == "pending":
            ask_holders(pool.leases, lease, out)


def _slot_failed(pool: PoolState, event: SlotFailed, out: Out) -> None:
    pool.placement.failed(event.slot, event.t)
    _slots(pool, event, out)


def _node_lost(pool: PoolState, event: NodeLost, out: Out) -> None:
    tasks.node_lost(pool.placement, event)
    _slots(pool, event, out)


def _slot_requested(pool: PoolState, event: SlotRequested, out: Out) -> None:
    """Enter a request with the slots, at home and allowed, that placement gave to its task."""
    placed = pool.placement.placed.get(event.task)
    if placed is not None and placed.refusal:
        out.append(RequestRefused(subject=event.request_id, reason=placed.refusal, final=True))
        return
    if placed is not None:
        event = replace(event, home=event.home or placed.slots, allowed=event.allowed or placed.allowed)
    _lease(pool, event, out)


def _setting_changed(pool: PoolState, event: SettingChanged, out: Out) -> None:
    if event.key in _OF_PLACEMENT:
        tasks.setting_changed(pool.placement, event, out)
    elif event.key == tasks.PLANNER_KEY:
        tasks.planner_chosen(pool.placement, event, pool.planners_of, out)
    else:
        _slots(pool, event, out)


# -------------------------------------------------------------------- tasks and nodes
def _node_added(pool: PoolState, event: NodeAdded, out: Out) -> None:
    tasks.node_added(pool.placement, event, pool.known, out)


def _placement_asked(pool: PoolState, event: PlacementAsked, out: Out) -> None:
    """Place a task; whatever its former attempt held is taken away."""
    if event.attempt > pool.placement.floors.get(event.task, event.attempt):
        # The former attempt's master may still compute: take away what it holds now, not when its lease expires.
        _lease(pool, TaskStopped(t=event.t, task=event.task, attempt=event.attempt - 1, reason="superseded"), out)
    tasks.placement_asked(pool.placement, event, pool.known, out)


def _task_stopped(pool: PoolState, event: TaskStopped, out: Out) -> None:
    pool.placement.raise_floor(event.task, event.attempt + 1)
    _lease(pool, event, out)


def _task_restarted(pool: PoolState, event: TaskRestarted, out: Out) -> None:
    """Refuse from now on whatever a former attempt still sends."""
    pool.placement.raise_floor(event.task, event.attempt)


#: The rule for each kind of event.
RULES: Rules[PoolState] = {
    **dict.fromkeys(leasing.RULES, _lease),
    **dict.fromkeys((SlotAdded, TenantLost), _slots),
    SlotFailed: _slot_failed,
    SlotRequested: _slot_requested,
    SettingChanged: _setting_changed,
    NodeAdded: _node_added,
    NodeLost: _node_lost,
    PlacementAsked: _placement_asked,
    TaskStopped: _task_stopped,
    TaskRestarted: _task_restarted,
}


class PoolMachine(Machine[PoolState]):
    """Leases, placements and nodes of one pool.

    Parameters
    ----------
    settings
        Times and limits of leasing.
    epoch
        First half of every fence: grows from machine to machine of one pool, so that fences do
        (:class:`~drlnb.records.columns.leasing.EpochRaised`, where that was seen late).
    planners_of
        Returns the planners of a task: runs may have placement planners of their own.
    """

    def __init__(
        self, settings: LeasingSettings, epoch: int, planners_of: tasks.PlannersOf = lambda task: Planners()
    ) -> None:
        super().__init__("pool", PoolState(Ledger(settings, epoch), planners_of=planners_of), RULES)
        self._began_with = asdict(settings)

    @property
    def config(self) -> Row:
        """The constructor's arguments as plain data: settings as they were at the start, the epoch as it is now."""
        return {"settings": dict(self._began_with), "epoch": self.epoch}

    @property
    def settings(self) -> LeasingSettings:
        """The settings of leasing as they are now."""
        return self.state.leases.settings

    @property
    def epoch(self) -> int:
        """First half of the fences of coming grants."""
        return self.state.leases.epoch

    @property
    def n_slots(self) -> int:
        """Live slots."""
        return self.state.leases.n_live

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of all slots, the failed ones too, sorted."""
        return tuple(sorted(self.state.leases.slots))

    def is_resident(self, fence: Fence) -> bool:
        """Whether every slot of a live lease held the parameters of its round when it was granted."""
        lease = self.state.leases.held(fence)
        return lease is not None and lease.resident

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        yield from leasing.laws(self.state.leases)
        placement = self.state.placement
        current = all(placed.attempt >= placement.floors[task] for task, placed in placement.placed.items())
        yield current, "no attempt that is over is placed"
        yield not (placement.asked and placement.nodes), "a question waits only while no node is up"
        yield placement.slots == self.state.leases.lendable, "placement knows the slots that may be lent"
        gangs = [(placed.slots, placed.n_learners) for placed in placement.placed.values()]
        yield (
            all(len(slots) == len(set(slots)) <= n for slots, n in gangs),
            "a gang has different slots, no more than it wants",
        )
