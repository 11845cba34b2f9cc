"""Plan which slots a task may use and where its collectors live: by the rules of gangs, or the plainest (ours)."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from drlnb.planning.placement.cluster import Cluster, ClusterView, JobView, Pick, SlotState, Terms
from drlnb.planning.placement.collectors import spread
from drlnb.planning.placement.ect import candidates, log_completion_on
from drlnb.planning.placement.gangs import GANGS, WAIT
from drlnb.planning.placement.health import DAY_S, n_since
from drlnb.planning.registry import Answer, FailedBefore, Named, Planner, PlannerKind
from drlnb.records.base import shared
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.columns.placement import Candidate, PlacementPlanned, SendPlacement, Weighed

__all__ = [
    "PLACEMENT",
    "FirstPlacement",
    "GangPlacement",
    "Placement",
    "PlacementView",
    "node_of",
    "place_tasks_by",
    "placed",
]

#: Seconds until a task goes on whose executor has died, where another slot is there: it is noticed in hundredths, its
#: parameters are brought there, the round begins anew.
_RESTART_S = 1.0
#: Logarithm of the most seconds that are expected of anything.
_MOST_LOG = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """The pool as it is for one task."""

    #: Slot that may be lent -> number of tasks whose gang has it, this task not counted.
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
    #: Slots of this attempt's gang so far, the lead first, of which some may have gone; empty at its start.
    slots: tuple[str, ...] = ()
    #: Slots that its gang wants.
    n_learners: int = 1
    #: Seconds that its latest round took; 0: not known yet.
    round_s: float = 0.0
    #: Slot -> failures per second of work that are expected of it.
    rates: Mapping[str, float] = field(default_factory=dict)
    #: Node -> gangs of other tasks there that have slots on other nodes, too.
    n_wide: Mapping[str, int] = field(default_factory=dict)
    #: Share by which a gang is slower for each node beyond the fewest that could hold it.
    locality_frac: float = 0.0
    #: Name in the pool.
    task: str = ""

    @property
    def n_slots(self) -> int:
        """Slots that its gang gets: those that it wants, or all that there are."""
        return min(self.n_learners, len(self.homes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a task may compute and where its collectors live."""

    #: The slots that it should get if it can choose, the lead first; shape ``(view.n_slots,)``.
    slots: tuple[str, ...]
    #: Node of each collector, by its number; shape ``(n_collectors,)``.
    collector_nodes: tuple[str, ...]
    #: The slots that it may use; empty: as the setting ``placement.allowed`` says.
    allowed: tuple[str, ...] = ()
    #: Seconds that a round is expected to take there; None: the planner does not say.
    expected_s: float | None = None
    #: What could have been instead.
    candidates: tuple[Candidate, ...] = ()
    #: Its slots, and all that it could have had.
    weighed: tuple[Weighed, ...] = ()


class FirstPlacement:
    """Takes the first live slots, in the order of names, that are home to the fewest; every live slot is allowed."""

    name = "first"

    def plan(self, view: PlacementView) -> Placement:
        """Return the placement of one task; ValueError if there is no live node."""
        return placed(view, spread(view.n_collectors, view.free_collectors, near=view.node, before=view.before))


def placed(view: PlacementView, nodes: tuple[str, ...], near: Collection[str] = ()) -> Placement:
    """Place collectors on nodes, the gang on the slots that are home to the fewest, `near` first; all are allowed."""
    slots = sorted(view.homes)
    order = sorted(slots, key=lambda slot: (node_of(slot) not in near, view.homes[slot]))
    return Placement(slots=tuple(order[: view.n_slots]), collector_nodes=nodes, allowed=tuple(slots))


def node_of(slot: str) -> str:
    """Return the node of a slot.

    Examples
    --------
    >>> node_of("n0/gpu1")
    'n0'
    """
    return slot.partition("/")[0]


# -------------------------------------------------------------------- by the rules of gangs
class GangPlacement:
    """Places a task's gang by a planner of gangs, and its collectors as `first` does.

    Members that are there stay, and the planner adds those that are missing, from the slots that are home to the
    fewest tasks.  A lead that is there leads on, else the healthiest member does.

    Parameters
    ----------
    name
        What the journal calls it.
    planner
        Chooses the slots.
    """

    #: It is asked where slots come or go, but only of a gang that has lost a member, or lacks one.
    replans = mends = True

    def __init__(self, name: str, planner: Planner[ClusterView, Pick | None]) -> None:
        self.name, self._planner = name, planner
        self.exact = getattr(planner, "exact", True)

    def plan(self, view: PlacementView) -> Placement:
        """Return the placement of one task; ValueError if there is no live node, or its planner would rather wait."""
        nodes = spread(view.n_collectors, view.free_collectors, near=view.node, before=view.before)
        if not view.homes:
            return Placement(slots=(), collector_nodes=nodes)
        seen = _cluster_view(view)
        if GANGS.trait(self._planner, "history"):
            seen = _with_history(view, seen)
        (job,) = seen.window
        chosen: Sequence[int] = job.kept
        chances: Mapping[int, float] = {}
        if len(job.kept) < job.n_slots:
            pick = GANGS.ask(self._planner, seen)
            if pick is None or pick == WAIT:
                raise ValueError("it waits: a task is placed at once")
            chosen, chances = pick.slots, dict(pick.chances)
        names = sorted(view.homes)
        slots = _led(view, [names[slot] for slot in chosen])
        return Placement(
            slots=slots,
            collector_nodes=nodes,
            expected_s=_expected_s(seen, job, chosen),
            candidates=_candidates(seen, job, names),
            weighed=tuple([
                Weighed(name, seen.rate_hz[i], chances.get(i))
                for i, name in enumerate(names)
                if seen.state[i] == "free" or i in job.kept
            ]),
        )


def place_tasks_by(name: str) -> None:
    """Have tasks placed by a registered planner of gangs, under its name."""

    def make(**params: int | float | str) -> GangPlacement:
        given = {key: value for key, value in params.items() if value != ""}  # an empty text cannot be written
        return GangPlacement(name, GANGS.build(str(Named(name, given))))

    PLACEMENT.register(name, make, GANGS.parameters(name))


def _cluster_view(view: PlacementView) -> ClusterView:
    """Return the pool as planners of gangs see it: slots by the order of their names, the task as the one job.

    Free are the slots that are home to so few tasks that there are just enough of them.
    """
    names = sorted(view.homes)
    nodes = sorted({node_of(name) for name in names})
    kept = [name for name in view.slots if name in view.homes][: view.n_slots]
    loads = sorted(view.homes[name] for name in names if name not in kept)
    n_missing = view.n_slots - len(kept)
    most = loads[n_missing - 1] if n_missing else -1
    state: list[SlotState] = ["free" if view.homes[name] <= most and name not in kept else "busy" for name in names]
    job = JobView(
        job=view.task,
        n_slots=view.n_slots,
        work_s=view.round_s or 1.0,
        started=bool(view.slots),
        kept=tuple([names.index(name) for name in kept]),
    )
    return ClusterView(
        cluster=Cluster(tuple([nodes.index(node_of(name)) for name in names])),
        state=tuple(state),
        rate_hz=tuple([view.rates.get(name, 0.0) for name in names]),
        window=(job,),
        # The host store holds each round's parameters: no more than a round is ever lost.
        terms=Terms(checkpoint_s=None, restart_s=_RESTART_S, locality_frac=view.locality_frac),
        t=view.t,
        n_wide=tuple([view.n_wide.get(node, 0) for node in nodes]) if view.n_wide else (),
        names=tuple(names),
    )


def _with_history(view: PlacementView, seen: ClusterView) -> ClusterView:
    """Add what has become of each slot, as far as it is remembered; none is busy for long: gangs share them."""
    failed = [(*view.failures.get(name, ()), *view.failures.get(node_of(name), ())) for name in seen.names]
    return replace(
        seen,
        busy_for_s=(0.0,) * len(failed),
        n_failures_24h=tuple([n_since(times, view.t - DAY_S) for times in failed]),
        n_failures_30d=tuple([n_since(times, view.t - 30 * DAY_S) for times in failed]),
        up_for_s=tuple([view.t - max(times, default=0.0) for times in failed]),
    )


def _led(view: PlacementView, slots: Sequence[str]) -> tuple[str, ...]:
    """Return slots, the lead first."""
    lead = next(iter(view.slots), "")
    if lead not in slots:
        lead = min(slots, key=lambda slot: view.rates.get(slot, 0.0))
    return lead, *[slot for slot in slots if slot != lead]


def _expected_s(seen: ClusterView, job: JobView, slots: Sequence[int]) -> float:
    return math.exp(min(log_completion_on(seen, job, slots), _MOST_LOG))


def _candidates(seen: ClusterView, job: JobView, names: Sequence[str]) -> tuple[Candidate, ...]:
    """Return the gangs that `ect` weighs, each one once."""
    gangs: dict[tuple[int, ...], str] = {}
    for rule, slots in candidates(seen, job):
        gangs.setdefault(tuple(sorted((*job.kept, *slots))), rule)
    node_of_slot = seen.cluster.node_of
    return tuple([
        Candidate(
            rule=rule,
            slots=tuple([names[slot] for slot in gang]),
            expected_s=_expected_s(seen, job, gang),
            n_nodes=len({node_of_slot[slot] for slot in gang}),
        )
        for gang, rule in gangs.items()
    ])


# -------------------------------------------------------------------- what a plan must be
def _problem(view: PlacementView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, Placement):
        return f"a plan must be a Placement, got {plan!r}"
    if len(plan.collector_nodes) != view.n_collectors:
        return f"collector_nodes must be {view.n_collectors} nodes, one per collector, got {len(plan.collector_nodes)}"
    if unknown := sorted(map(str, {*plan.collector_nodes} - {*view.free_collectors})):
        return f"collector_nodes must be among {', '.join(sorted(view.free_collectors))}, got {unknown[0]!r}"
    if unknown := sorted(map(str, {*plan.slots, *plan.allowed} - {*view.homes})):
        return f"slots and allowed must be live slots, got {unknown[0]!r}"
    if len(plan.slots) != view.n_slots or len(set(plan.slots)) != view.n_slots:
        return f"slots must be {view.n_slots} different ones, one per learner, got {list(plan.slots)}"
    if plan.allowed and (missing := sorted(set(plan.slots) - set(plan.allowed))):
        return f"allowed must hold the slots of the gang, {missing[0]!r} is missing in {list(plan.allowed)}"
    return ""


def _recorded(view: PlacementView, answer: Answer) -> Placement | None:
    """Return the plan that a journal holds."""
    if planned := answer.next(PlacementPlanned, task=view.task):
        return Placement(**shared(planned, Placement) | ({"allowed": ()} if planned.allowed_by else {}))
    if sent := answer.next(SendPlacement, task=view.task):
        raise FailedBefore(sent.refusal)
    if refused := answer.next(RequestRefused, subject=view.task):
        raise FailedBefore(refused.reason)
    return None


#: The decision where a task computes and its collectors live.  A planner that `replans` is asked whenever slots come or
#: go, too, one that `mends` only of gangs that have lost a member or lack one; a user's own is asked always.
PLACEMENT: PlannerKind[PlacementView, Placement] = PlannerKind(
    "placement", "ect", problem=_problem, recorded=_recorded, traits={"replans": False, "mends": False}
)
