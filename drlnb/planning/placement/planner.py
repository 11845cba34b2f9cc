"""Plan which slots a task may use and where its collectors live; `first` is the plainest rule (ours)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from drlnb.planning.placement.collectors import spread
from drlnb.planning.registry import Answer, FailedBefore, PlannerKind, plan_of
from drlnb.records.columns.placement import PlacementPlanned, SendPlacement

__all__ = ["PLACEMENT", "FirstPlacement", "Placement", "PlacementView", "placed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """The pool as it is for one task."""

    #: Live slot -> number of tasks whose home it is, this task not counted.
    homes: Mapping[str, int]
    #: Live node -> collectors that still fit there, this task's own not counted.
    free_collectors: Mapping[str, int]
    #: Node of the task's master.
    node: str
    n_collectors: int
    #: Live node -> how often it, or a slot of it, was lost so far.
    failures: Mapping[str, int] = field(default_factory=dict)
    #: Where this attempt's collectors live so far; empty at its start.
    before: tuple[str, ...] = ()


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
    plan = plan_of(Placement, answer.next(PlacementPlanned))
    sent = answer.next(SendPlacement) if plan is None else None
    if sent is not None and sent.refusal:
        raise FailedBefore(sent.refusal)
    return plan


#: The decision where a task computes and its collectors live.
PLACEMENT: PlannerKind[PlacementView, Placement] = PlannerKind(
    "placement", "first", problem=_problem, recorded=_recorded
)
