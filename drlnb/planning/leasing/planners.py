"""Plan when a task asks for a slot and gives it back: the hold planners.

**Streams and epochs.**  An algorithm that computes gradients as fragments arrive (``stream``) has work as soon as one
is there, and may give its slot away between two of them.  One that sweeps the whole round again and again (``epochs``)
has little before the last fragment (a copy, a value pass), and that is void after a yield.  So ``yield`` takes a slot
for such a task at the first arrival while nobody else wants one, gives it back on demand before the round is complete,
and while slots are wanted asks for it at the last arrival, as ``last`` does; never between two minibatches, whose
moments run over the whole round (leasing 3, item 12).
"""

from dataclasses import dataclass
from functools import partial

from drlnb.planning.registry import Answer, PlannerKind, plan_of
from drlnb.records.columns.leasing import HoldPlanned

__all__ = ["HOLD", "HoldPlan", "HoldView", "Once", "Yield"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldView:
    """What a hold planner may look at."""

    n_arrived: int
    n_expected: int
    held: bool
    requested: bool
    #: Batches that are here and not computed: not on the slot that is held, or, without one, not kept at the master.
    n_queued: int = 0
    #: The work can be done batch by batch, and what is done outlives the lease.
    divisible: bool = True
    #: Somebody waits for the slot that is held.
    demand: bool = False
    #: Somebody waited for slots, this task or another, in this round or the one before.
    crowded: bool = False
    #: Median time from a grant to the first batch's start, in seconds; None before the first.
    switch_p50_s: float | None = None
    #: Median time of a batch, in seconds; None before the first.
    compute_p50_s: float | None = None
    #: Share of a batch's compute above which a switch is too dear to yield for, dimensionless.
    switch_limit_frac: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPlan:
    """``request`` a slot, ``wait`` without one, ``keep`` things as they are, or ``return`` the slot for a while."""

    action: str
    reason: str


@dataclass(slots=True)
class Once:
    """Ask once in a round, and hold the slot until the commit."""

    name: str
    #: Ask when all experience is there: shortest holds, latest start (ours); else at the first arrival: the
    #: leasing patent, paragraph 8.
    waits: bool

    def plan(self, view: HoldView) -> HoldPlan:
        """Request as soon as the first, or the last, fragment of the round has arrived."""
        if view.held or view.requested:
            return HoldPlan(action="keep", reason="a slot is held or asked for")
        if self.waits and view.n_arrived < view.n_expected:
            return HoldPlan(action="wait", reason=f"{view.n_arrived} of {view.n_expected} collectors have sent")
        if view.n_arrived == 0:
            return HoldPlan(action="wait", reason="nothing has arrived")
        which = "all batches of the round are" if self.waits else "the round's first batch is"
        return HoldPlan(action="request", reason=f"{which} here")


class Yield:
    """Ask when there is something to compute; give the slot away when there is nothing and somebody waits (ours).

    While a switch costs more than a fifth of a batch, it does as ``round``: what it would give to others it would
    lose by switching.
    """

    name = "yield"
    yields = True

    def plan(self, view: HoldView) -> HoldPlan:
        """Request at work; return without work, on demand."""
        if view.requested:
            return HoldPlan(action="keep", reason="a slot is asked for")
        dear = _too_dear(view) if view.divisible else ""
        complete = view.n_arrived >= view.n_expected
        if view.held:
            if complete or view.n_queued or not view.demand or dear:
                return HoldPlan(action="keep", reason=dear or "there is work, or nobody waits")
            return HoldPlan(action="return", reason="nothing to compute, and somebody waits")
        if complete:
            return HoldPlan(action="request", reason="all batches of the round are here")
        if not view.n_queued:
            return HoldPlan(action="wait", reason="nothing to compute")
        if not view.divisible and view.crowded:
            reason = f"{view.n_arrived} of {view.n_expected} collectors have sent, and slots are wanted"
            return HoldPlan(action="wait", reason=reason)
        return HoldPlan(action="request", reason=dear or "a batch is here")


def _too_dear(view: HoldView) -> str:
    """Return why a switch does not pay, in words; empty if it does."""
    switch_s, compute_s = view.switch_p50_s, view.compute_p50_s
    if switch_s is None or compute_s is None or switch_s <= view.switch_limit_frac * compute_s:
        return ""
    return f"switch too dear: {switch_s:.3g} s for batches of {compute_s:.3g} s"


def _problem(view: HoldView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, HoldPlan) or plan.action not in {"request", "wait", "keep", "return"}:
        return f"a plan must be a HoldPlan to request, wait, keep or return, got {plan!r}"
    if plan.action == "request" and (view.held or view.requested):
        return "it requests a slot while one is held or asked for"
    return "it returns a slot while none is held" if plan.action == "return" and not view.held else ""


def _recorded(view: HoldView, answer: Answer) -> HoldPlan:
    """Return the plan that a journal holds; one that keeps things as they are leaves no record."""
    nothing = HoldPlan(action="keep", reason="the journal holds nothing else")
    return plan_of(HoldPlan, answer.next(HoldPlanned)) or nothing


#: The decision when a task holds a slot.  A planner may have ``yields``: whether its holder may give way when somebody
#: waits; without it, the holder does not.
HOLD: PlannerKind[HoldView, HoldPlan] = PlannerKind(
    "hold", "yield", problem=_problem, recorded=_recorded, traits={"yields": False}
)
HOLD.register("round", partial(Once, "round", waits=False))
HOLD.register("yield", Yield)
HOLD.register("last", partial(Once, "last", waits=True))
