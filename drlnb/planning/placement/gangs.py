"""The decision which job starts next, and on which slots: its planners, and what a plan must be."""

from drlnb.planning.placement.cluster import ClusterView, Pick
from drlnb.planning.registry import Answer, FailedBefore, PlannerKind
from drlnb.records.base import Decision
from drlnb.records.columns.placement import GangPlanned, JobFailed

__all__ = ["GANGS", "WAIT"]

#: As None, a plan that waits.
WAIT = Pick("", ())


def _problem(view: ClusterView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if plan is None or plan == WAIT:
        return ""
    if not isinstance(plan, Pick):
        return f"a plan must be a Pick, or None to wait, got {plan!r}"
    job = next((each for each in view.window if each.job == plan.job), None)
    if job is None:
        return f"job must be one of {', '.join(each.job for each in view.window) or 'none'}, got {plan.job!r}"
    if len(plan.slots) != job.n_slots or len(set(plan.slots)) != job.n_slots:
        return f"job {job.job} needs {job.n_slots} different slots, got {list(plan.slots)}"
    if missing := sorted(set(job.kept) - set(plan.slots)):
        return f"job {job.job} keeps its slots {list(job.kept)}, {missing[0]} is missing in {list(plan.slots)}"
    for slot in plan.slots:
        if not isinstance(slot, int) or not 0 <= slot < len(view.state):
            return f"job {job.job} is given slot {slot!r}: they are 0..{len(view.state) - 1}"
        if slot not in job.kept and view.state[slot] != "free":
            return f"job {job.job} is given slot {slot}, which is {view.state[slot]}"
    return ""


def _recorded(view: ClusterView, answer: Answer) -> Pick | None:
    """Return the plan that a journal holds: what was decided next."""
    decided = answer.next(Decision)
    if isinstance(decided, GangPlanned):
        return Pick(decided.job, tuple([view.names.index(slot) for slot in decided.slots]))
    if isinstance(decided, JobFailed):
        raise FailedBefore(decided.reason)
    return None if decided is None else WAIT


#: The decision which of the jobs that wait starts next, and on which slots.  A planner with `window` chooses among
#: several jobs, one without is shown the next; one with `history` is shown what has become of each slot.
GANGS: PlannerKind[ClusterView, Pick | None] = PlannerKind(
    "gangs", "ect", problem=_problem, recorded=_recorded, traits={"window": False, "history": False}
)
