"""Plan how many units of work each member takes: collectors of a round's steps, learners of its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from drlnb.planning.batching.split import Member
from drlnb.planning.registry import Answer, PlannerKind, plan_of
from drlnb.records.columns.batching import BatchPlanned, SplitPlanned

__all__ = ["BATCHING", "COLLECT", "BatchPlan", "BatchReport", "BatchView", "Role", "one_learner"]

#: Who takes the shares: collectors act, learners compute an update of the parameters.
Role = Literal["collect", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """Units of work, and the members that share them; sequences stand beside each other."""

    round: int
    role: Role
    #: Units to share: of collectors their steps per environment, all together; of learners of a task with environments
    #: the collectors' shares, each of which stays whole; else samples.
    n_units: int
    #: Collectors, or the slots of a lease; their speeds are the medians of what was measured lately, and alike before.
    members: tuple[Member, ...]
    #: What the planner remembers, as it returned it from ``observe``; None at first.
    memory: object = None

    #: Of collectors: steps per environment that the algorithm asks for.
    n_steps: int = 0
    collectors: tuple[int, ...] = ()
    #: Environments of each collector.
    n_envs: tuple[int, ...] = ()
    #: Node of each collector.
    nodes: tuple[str, ...] = ()
    #: The gradient of each share can be computed apart from the others': on a slot of its own.
    divisible: bool = True
    #: Learners that the task may have at once: the slots of a lease.
    n_learners: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The units of each member, in the order of the view; for collectors their own steps may stand instead."""

    #: Units of each member; their sum is the view's.
    sizes: tuple[int, ...] = ()
    #: Units per second that each one is expected to make; empty: nobody has been measured.
    speeds_hz: tuple[float, ...] = ()
    #: Steps per environment of each collector, whatever their sum.
    n_steps: tuple[int, ...] = ()
    #: Number of the learner of each collector's share: a lease has a slot for each learner.  Empty: the shares are
    #: dealt to as many as the task may have when their lease is there.
    learners: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What became of a plan; sequences stand beside each other."""

    round: int
    #: Ids of the members, as in the view.
    members: tuple[str, ...]
    #: Units that each one was given, and that it has done, as far as it has answered.
    sizes: tuple[int, ...]
    n_done: tuple[float, ...]
    #: Seconds that it worked on these; None: it has not answered.
    compute_s: tuple[float | None, ...]
    #: Seconds from its order to its answer; None: not measured.
    elapsed_s: tuple[float | None, ...]
    #: Seconds from the beginning until nobody was waited for any more.
    duration_s: float
    #: Samples of a unit.
    unit_samples: float = 1.0
    #: Norm of each one's gradient, its cosine to that of the step, and its age when it was done, in seconds by its
    #: member's clock; None of a gradient that no step used.  Empty: nobody has measured them (of steps of collectors,
    #: and of gradients of a round that are computed at arrival).
    norms: tuple[float | None, ...] = ()
    cosines: tuple[float | None, ...] = ()
    ages_s: tuple[float | None, ...] = ()


def _problem(view: BatchView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, BatchPlan):
        return f"a plan must be a BatchPlan, got {plan!r}"
    if view.role == "update" or not plan.n_steps:
        return _sizes_problem(view, plan.sizes)
    return _counts_problem("n_steps", "collector", view.collectors, plan.n_steps, least=1) or _learners_problem(
        view, plan.learners
    )


def _sizes_problem(view: BatchView, sizes: Sequence[object]) -> str:
    """Return why the units of members do not fit; empty if they do."""
    least = 1 if view.role == "collect" else 0
    if problem := _counts_problem("sizes", "member", [each.id for each in view.members], sizes, least=least):
        return problem
    total = sum(n for n in sizes if isinstance(n, int))
    return "" if total == view.n_units else f"sizes must sum to {view.n_units}, got {total}"


def _counts_problem(what: str, whose: str, names: Sequence[object], counts: Sequence[object], *, least: int) -> str:
    """Return why counts of members do not fit; empty if they do."""
    if len(counts) != len(names):
        return f"{what} must be {len(names)} numbers, one per {whose}, got {len(counts)}"
    for name, n in zip(names, counts, strict=True):
        if not isinstance(n, int) or isinstance(n, bool) or n < least:
            return f"{what} of {whose} {name} must be a whole number >= {least}, got {n!r}"
    return ""


def _learners_problem(view: BatchView, learners: Sequence[object]) -> str:
    """Return why shares cannot be computed by these learners; empty if they can."""
    if len(learners) not in {0, len(view.collectors)}:
        return f"learners must be {len(view.collectors)} numbers, one per collector, or none, got {len(learners)}"
    for collector, learner in zip(view.collectors, learners, strict=False):
        if not isinstance(learner, int) or isinstance(learner, bool) or learner < 0:
            return f"the learner of collector {collector} must be a whole number >= 0, got {learner!r}"
    if len(set(learners)) > 1 and not view.divisible:
        return "this task's gradient cannot be computed in parts, so all shares need the same learner"
    if len(set(learners)) > view.n_learners:
        return f"learners names {len(set(learners))} learners, and this task has n_learners = {view.n_learners}"
    return ""


def _recorded(view: BatchView, answer: Answer) -> BatchPlan | None:
    """Return the plan that a journal holds."""
    return plan_of(BatchPlan, answer.next(BatchPlanned if view.role == "collect" else SplitPlanned))


def one_learner(name: str) -> str:
    """Return why a task of one learner has no use for a planner of learners."""
    return (
        f"{name} shares a gradient among learners, and one computes it all; for steps of collectors: batching.collect"
    )


#: The decision how much of an update each learner computes.
BATCHING: PlannerKind[BatchView, BatchPlan] = PlannerKind(
    "batching", "jump-reset", problem=_problem, recorded=_recorded, reports=True
)
#: The decision how much each collector samples: by the same planners.
COLLECT = BATCHING.also("collect", "equal")
