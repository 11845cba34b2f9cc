"""Answer for the one pool of a fleet: leases of slots, placements of tasks, room for collectors on nodes.

The pool's machine runs in the broker and in the simulator.  It joins the lease table, the placement planner and the
count of collectors per node, and routes between them; it decides nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.leasing.machine import LeaseTable
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement import PLACEMENT, PlacementView
from drlnb.planning.registry import PlannerFailed, Planners
from drlnb.planning.warmup.cpu_slots import AUTO, CPU_SLOTS_KEY, cpu_slots_problem
from drlnb.records.base import Event, Record
from drlnb.records.columns.leasing import RequestRefused, SlotFailed, SlotRequested
from drlnb.records.columns.placement import (
    NodeAdded,
    NodeLost,
    PlacementAsked,
    PlacementPlanned,
    SendPlacement,
    TaskRestarted,
    TaskStopped,
)
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError, InvalidTransition
from drlnb.records.ids import Fence

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


@dataclass(slots=True, kw_only=True)
class _State:
    """State of a pool beside its lease table."""

    t: float = 0.0
    #: Live node -> collectors that may act there at the same time, if nobody has chosen another number for all.
    nodes: dict[str, int] = field(default_factory=dict)
    cpu_slots: int = 0
    placed: dict[str, _Placed] = field(default_factory=dict)
    #: Task -> lowest attempt that may still ask.
    floors: dict[str, int] = field(default_factory=dict)
    #: Questions that wait for a first node, by task.
    asked: dict[str, PlacementAsked] = field(default_factory=dict)
    #: Node -> how often it, or a slot of it, was lost.
    failures: dict[str, int] = field(default_factory=dict)


class PoolMachine:
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

    def __init__(
        self, settings: LeasingSettings, epoch: int, planners_of: Callable[[str], Planners] = lambda task: Planners()
    ) -> None:
        self._config: dict[str, Any] = {"settings": asdict(settings), "epoch": epoch}
        self._table = LeaseTable(settings, epoch)
        self._planners_of = planners_of
        self._state = _State()

    @classmethod
    def from_config(cls, config: Mapping[str, Any], planners: Planners | None = None) -> Self:
        """Build the machine that a journal's header describes by :attr:`config`, with the planners of all tasks.

        Raises
        ------
        ConfigError
            If a key is missing or unknown, or a setting is wrong.
        """
        wanted = {"settings", "epoch"}
        problems = [f"pool lacks {key!r}" for key in sorted(wanted - config.keys())]
        problems += [f"pool has unknown key {key!r}" for key in sorted(config.keys() - wanted)]
        if problems:
            raise ConfigError(problems)
        return cls(
            LeasingSettings.from_mapping(config["settings"]), config["epoch"], lambda task: planners or Planners()
        )

    @property
    def config(self) -> dict[str, Any]:
        """The constructor's arguments as plain data: settings as they were at the start, the epoch as it is now."""
        return {**self._config, "epoch": self.epoch, "settings": dict(self._config["settings"])}

    @property
    def settings(self) -> LeasingSettings:
        """The settings of leasing as they are now."""
        return self._table.settings

    @property
    def epoch(self) -> int:
        """First half of the fences of coming grants."""
        return self._table.epoch

    @property
    def has_slots(self) -> bool:
        """Whether any slot is live."""
        return bool(self._table.live_slots)

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of all slots, those that have failed or are drained too, sorted."""
        return self._table.slots

    @property
    def n_slots(self) -> int:
        """Live slots."""
        return len(self._table.live_slots)

    def is_resident(self, fence: Fence) -> bool:
        """Whether every slot of a live lease held the parameters of its round when it was granted."""
        return self._table.is_resident(fence)

    @property
    def cpu_slots(self) -> int:
        """CPU slots that each node lends to collectors; 0: each its share."""
        return self._state.cpu_slots

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Handle an event and return what follows from it, in its order.

        Raises
        ------
        InvalidTransition
            If the event is older than the last one, or the state forbids it: a defect of ours.
        """
        # "not >=" also catches nan
        if not event.t >= self._state.t:
            raise InvalidTransition("pool", f"at t={self._state.t:g} s", event)
        self._state.t = event.t
        if isinstance(event, SettingChanged) and event.key == CPU_SLOTS_KEY:
            return self._set_cpu_slots(event)
        own = _HANDLERS.get(type(event))
        if own is None:
            return self._table.handle(self._placed_request(event) if isinstance(event, SlotRequested) else event)
        out = own(self, event)
        return out + self._table.handle(event) if LeaseTable.takes(event) else out

    def check(self) -> None:
        """Check what must hold after each event.

        Raises
        ------
        AssertionError
            If something does not; the message lists all of it.
        """
        self._table.check()
        laws = {
            "no attempt that is over is placed": all(
                placed.attempt >= self._state.floors[task] for task, placed in self._state.placed.items()
            ),
            "a question waits only while no node is up": not (self._state.asked and self._state.nodes),
        }
        broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise AssertionError("pool: not true: " + "; ".join(broken))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain data, fit for JSON."""
        return {"table": self._table.snapshot(), **to_plain(self._state)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Adopt the state of :meth:`snapshot`.  A driver that starts anew must set the deadline ``reap`` again.

        Raises
        ------
        ValueError
            If the snapshot is of a pool of another epoch.
        """
        self._table.restore(snapshot["table"])
        self._state = from_plain(_State, {key: value for key, value in snapshot.items() if key != "table"})

    def _placed_request(self, event: SlotRequested) -> SlotRequested:
        """Return a request with the home and the allowed slots that placement gave to its task."""
        placed = self._state.placed.get(event.task)
        if placed is None or not self.settings.residency:
            return event
        return replace(event, home=event.home or placed.home, allowed=event.allowed or placed.allowed)

    # -------------------------------------------------------------- rules
    def _on_node_added(self, event: NodeAdded) -> tuple[Record, ...]:
        self._state.nodes[event.node] = event.n_collector_slots
        asked, self._state.asked = self._state.asked, {}
        return tuple([record for each in asked.values() for record in self._place(each)])

    def _set_cpu_slots(self, event: SettingChanged) -> tuple[Record, ...]:
        if problem := cpu_slots_problem(event.value):
            return (RequestRefused(subject=event.key, reason=problem),)
        self._state.cpu_slots = 0 if event.value == AUTO else event.value
        return ()

    def _on_node_lost(self, event: NodeLost) -> tuple[Record, ...]:
        self._state.nodes.pop(event.node, None)
        self._count_failure(event.node)
        # A master that was there comes back as another attempt, with collectors of its own.
        self._state.placed = {task: placed for task, placed in self._state.placed.items() if placed.node != event.node}
        self._state.asked = {task: asked for task, asked in self._state.asked.items() if asked.node != event.node}
        return ()

    def _on_slot_failed(self, event: SlotFailed) -> tuple[Record, ...]:
        self._count_failure(event.slot.partition("/")[0])
        return ()

    def _count_failure(self, node: str) -> None:
        self._state.failures[node] = self._state.failures.get(node, 0) + 1

    def _on_placement_asked(self, event: PlacementAsked) -> tuple[Record, ...]:
        floor = self._state.floors.get(event.task, event.attempt)
        if event.attempt < floor:
            reason = f"attempt {event.attempt} is over: {floor} or later may ask"
            return (RequestRefused(subject=event.task, reason=reason),)
        self._state.floors[event.task] = event.attempt
        # The former attempt's master may still compute: take away what it holds now, not when its lease expires.
        former = TaskStopped(t=event.t, task=event.task, attempt=event.attempt - 1, reason="superseded")
        ended = self._table.handle(former) if event.attempt > floor else ()
        self._state.asked[event.task] = event
        return ended + (self._place(self._state.asked.pop(event.task)) if self._state.nodes else ())

    def _on_task_stopped(self, event: TaskStopped) -> tuple[Record, ...]:
        self._state.floors[event.task] = max(self._state.floors.get(event.task, 0), event.attempt + 1)
        for known in (self._state.placed, self._state.asked):
            if event.task in known and known[event.task].attempt <= event.attempt:
                del known[event.task]
        return ()

    def _on_task_restarted(self, event: TaskRestarted) -> tuple[Record, ...]:
        # Whatever a former attempt still sends is refused from now on.
        self._state.floors[event.task] = max(self._state.floors.get(event.task, 0), event.attempt)
        return ()

    def _place(self, asked: PlacementAsked) -> tuple[Record, ...]:
        """Answer a question of a task."""
        former = self._state.placed.pop(asked.task, None)
        homes = dict.fromkeys(self._table.live_slots, 0)
        free = {node: self._state.cpu_slots or n for node, n in self._state.nodes.items()}
        for placed in self._state.placed.values():
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
            failures={node: self._state.failures.get(node, 0) for node in free},
            before=former.collector_nodes if former is not None and former.attempt == asked.attempt else (),
        )
        try:
            planner = self._planners_of(asked.task).make(PLACEMENT, asked.planner or PLACEMENT.default)
            plan = PLACEMENT.ask(planner, view)
        except (PlannerFailed, ValueError) as error:  # this task fails, the others go on
            return (SendPlacement(task=asked.task, attempt=asked.attempt, collector_nodes=(), refusal=str(error)),)
        self._state.placed[asked.task] = _Placed(
            attempt=asked.attempt,
            node=asked.node,
            home=plan.home,
            collector_nodes=plan.collector_nodes,
            allowed=() if set(plan.allowed) >= set(self._table.live_slots) else plan.allowed,
        )
        return (
            PlacementPlanned(
                task=asked.task,
                attempt=asked.attempt,
                planner=planner.name,
                home=plan.home,
                allowed=plan.allowed,
                collector_nodes=plan.collector_nodes,
            ),
            SendPlacement(task=asked.task, attempt=asked.attempt, collector_nodes=plan.collector_nodes),
        )


#: The rules of the pool itself; what the lease table knows too goes on to it.
_HANDLERS: Mapping[type[Event], Callable[[PoolMachine, Any], tuple[Record, ...]]] = {
    NodeAdded: PoolMachine._on_node_added,
    NodeLost: PoolMachine._on_node_lost,
    PlacementAsked: PoolMachine._on_placement_asked,
    SlotFailed: PoolMachine._on_slot_failed,
    TaskRestarted: PoolMachine._on_task_restarted,
    TaskStopped: PoolMachine._on_task_stopped,
}
