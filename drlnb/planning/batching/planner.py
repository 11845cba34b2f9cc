"""Plan how many steps each collector of a round makes; `equal` is Stable-Baselines3's rule."""

from dataclasses import dataclass

from drlnb.planning.registry import Answer, PlannerKind, plan_of
from drlnb.records.columns.batching import BatchPlanned

__all__ = ["BATCHING", "BatchPlan", "BatchReport", "BatchView", "Equal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """The collectors of one round, on all nodes; the sequences stand beside each other."""

    round: int
    #: Steps per environment that the algorithm asks for.
    n_steps: int
    collectors: tuple[int, ...]
    #: Environments of each collector.
    n_envs: tuple[int, ...]
    #: Node of each collector.
    nodes: tuple[str, ...]
    #: Seconds per sample on each collector's node, as measured last; None where nothing has been measured.
    sample_s: tuple[float | None, ...]
    #: The gradient of each share can be computed apart from the others': on a slot of its own.
    divisible: bool = True
    #: Learners that the task may have at once: the slots of a lease.
    n_learners: int = 1
    #: What the planner remembers of the rounds before, as it returned it from ``observe``; None at first.
    memory: object = None

    @property
    def n_samples(self) -> int:
        """Samples of the round: steps x environments."""
        return self.n_steps * sum(self.n_envs)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Steps per environment of each collector, and who computes its gradient, in the order of the view."""

    n_steps: tuple[int, ...]
    #: Number of the learner of each collector's share: a lease has a slot for each learner.  Empty: the shares are
    #: dealt evenly to as many as the task may have (:func:`~drlnb.planning.batching.shares.learner_shares`).
    learners: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What a round that has been learned from took; the sequences stand beside each other."""

    round: int
    collectors: tuple[int, ...]
    #: Steps per environment that each collector was given.
    n_steps: tuple[int, ...]
    #: Seconds that each one acted, and that its gradient took; None where they were not measured.
    collect_s: tuple[float | None, ...]
    compute_s: tuple[float | None, ...]


class Equal:
    """Each collector makes the algorithm's own `n_steps`: what Stable-Baselines3 does."""

    name = "equal"

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the same number for all."""
        return BatchPlan(n_steps=(view.n_steps,) * len(view.collectors))


def _problem(view: BatchView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, BatchPlan):
        return f"a plan must be a BatchPlan, got {plan!r}"
    if len(plan.n_steps) != len(view.collectors):
        return f"n_steps must be {len(view.collectors)} numbers, one per collector, got {len(plan.n_steps)}"
    for collector, steps in zip(view.collectors, plan.n_steps, strict=True):
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            return f"n_steps of collector {collector} must be a whole number >= 1, got {steps!r}"
    return _learners_problem(view, plan.learners)


def _learners_problem(view: BatchView, learners: tuple[int, ...]) -> str:
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
    return plan_of(BatchPlan, answer.next(BatchPlanned))


#: The decision how much each collector samples.
BATCHING: PlannerKind[BatchView, BatchPlan] = PlannerKind(
    "batching", "equal", problem=_problem, recorded=_recorded, reports=True
)
