"""Plan which slots a task may use and where its collectors live; `first` is the plainest rule (ours)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from drlnb.planning.placement.collectors import spread
from drlnb.planning.registry import Answer, FailedBefore, PlannerKind, plan_of
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.columns.placement import PlacementPlanned, SendPlacement

__all__ = ["PLACEMENT", "FirstPlacement", "Placement", "PlacementView", "placed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """The pool as it is for one task."""

    #: Slot that may be lent -> number of tasks whose home it is, this task not counted.
    homes: Mapping[str, int]
    #: Live node -> collectors that still fit there, this task's own not counted.
    free_collectors: Mapping[str, int]
    #: Node of the task's master.
    node: str
    #: Collectors to place; 0 where slots have come or gone: collectors stay where they are.
    n_collectors: int
    #: Seconds on the pool's clock.
    t: float = 0.0
    #: Slot or node -> when it failed or was lost, the latest times last, in seconds on the pool's clock.
    failures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    #: Where this attempt's collectors live so far; empty at its start.
    before: tuple[str, ...] = ()
    #: Home of this attempt so far, which may have gone; None at its start.
    home: str | None = None
    #: Name in the pool.
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a task may compute and where its collectors live."""

    #: The slot that it should get if it can choose; None if there is no live slot.
    home: str | None
    #: The slots that it may use.
    allowed: tuple[str, ...]
    #: Node of each collector, by its number; shape ``(n_collectors,)``.
    collector_nodes: tuple[str, ...]


class FirstPlacement:
    """Home = the first live slot, in the order of names, that is home to the fewest; every live slot is allowed."""

    name = "first"

    def plan(self, view: PlacementView) -> Placement:
        """Return the placement of one task; ValueError if there is no live node."""
        return placed(view, spread(view.n_collectors, view.free_collectors, near=view.node, before=view.before))


def placed(view: PlacementView, nodes: tuple[str, ...], near: Collection[str] = ()) -> Placement:
    """Place collectors on nodes; home is the slot that is home to the fewest, `near` if a slot is; all are allowed."""
    slots = sorted(view.homes)
    among = [slot for slot in slots if slot.partition("/")[0] in near] or slots
    home = min(among, key=view.homes.__getitem__, default=None)
    return Placement(home=home, allowed=tuple(slots), collector_nodes=nodes)


def _problem(view: PlacementView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, Placement):
        return f"a plan must be a Placement, got {plan!r}"
    if len(plan.collector_nodes) != view.n_collectors:
        return f"collector_nodes must be {view.n_collectors} nodes, one per collector, got {len(plan.collector_nodes)}"
    if unknown := sorted(map(str, {*plan.collector_nodes} - {*view.free_collectors})):
        return f"collector_nodes must be among {', '.join(sorted(view.free_collectors))}, got {unknown[0]!r}"
    if unknown := sorted(map(str, {plan.home, *plan.allowed} - {None, *view.homes})):
        return f"home and allowed must be live slots, got {unknown[0]!r}"
    return "" if plan.allowed or not view.homes else "allowed must name a slot: the task could never compute"


def _recorded(view: PlacementView, answer: Answer) -> Placement | None:
    """Return the plan that a journal holds."""
    if planned := answer.next(PlacementPlanned, task=view.task):
        return plan_of(Placement, planned)
    if sent := answer.next(SendPlacement, task=view.task):
        raise FailedBefore(sent.refusal)
    if refused := answer.next(RequestRefused, subject=view.task):
        raise FailedBefore(refused.reason)
    return None


#: The decision where a task computes and its collectors live.  A planner that `replans` is asked whenever slots come or
#: go, too; a user's own does.
PLACEMENT: PlannerKind[PlacementView, Placement] = PlannerKind(
    "placement", "first", problem=_problem, recorded=_recorded, traits={"replans": False}
)
