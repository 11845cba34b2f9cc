"""Plan when each collector starts, seen from its own sending: the rules, as pure functions of a view.

``cold`` and ``keep`` are the ends between which the others lie; ``patent`` is claim 8 of the leasing patent, to the
letter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from drlnb.planning.registry import Answer, PlannerKind, plan_of
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.saa import saa_plan
from drlnb.planning.warmup.stability import Stability, stable_window
from drlnb.records.columns.warmup import WarmupPlanned

__all__ = ["WARMUP", "WarmupView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupView:
    """What a planner may look at; times in seconds, oldest round first."""

    #: Cost of one second of a delayed round, and price of one second of starting, relative to one second of all its
    #: collectors, or of one collector, idle.
    rho: float = 1.0
    kappa: float = 1.0
    #: Latest rounds that the stability filter looks at; rounds without which nothing is planned.
    filter_window: int = 32
    min_rounds: int = 8
    #: Start times that are weighed.
    n_candidates: int = 25
    #: Gaps of the regime's latest rounds, by round and worker; shape ``(k, n)``.
    gap_s: Sequence[Sequence[float]] = ()
    #: Starts beside them; shape ``(k, n)``, or empty.
    start_s: Sequence[Sequence[float]] = ()
    #: Whole rounds; shape ``(k,)``.
    round_s: Sequence[float] = ()
    #: Start durations by worker, of its node, mode and number at once; n sequences.
    pools_s: Sequence[Sequence[float]] = ()

    def lack(self) -> str:
        """Return what is missing to plan a start, in words; empty if nothing is."""
        if len(self.gap_s) < self.min_rounds:
            return f"{len(self.gap_s)} rounds of this regime known, {self.min_rounds} needed"
        if not self.pools_s or not all(self.pools_s):
            return "no start has been measured yet"
        return ""


@dataclass(slots=True)
class _Rule:
    """A planner that is one function of its view."""

    name: str
    rule: Callable[[WarmupView], WarmupPlan]

    def plan(self, view: WarmupView) -> WarmupPlan:
        """Return the rule's plan."""
        return self.rule(view)


def cold(view: WarmupView) -> WarmupPlan:
    """Start at the arrival of the parameters: never idle, always pays the whole start."""
    return WarmupPlan(action="cold", reason="start at the arrival of the next parameters")


def keep(view: WarmupView) -> WarmupPlan:
    """Never stop: never late, always idle."""
    return WarmupPlan(action="keep", reason="collectors are never stopped")


def patent(view: WarmupView) -> WarmupPlan:
    """Plan one start for all: last start + mean of filtered round times - mean start (the leasing patent, claim 8)."""
    verdict = _filtered(view, view.round_s)
    if not verdict.stable:
        return replace(_event(f"round times are not stable: {verdict.reason}"), filtered=_seen([verdict]))
    lead_s = fmean(value for pool in view.pools_s for value in pool)
    return WarmupPlan(
        action="start",
        reason=f"mean of {len(verdict.kept_s)} rounds - mean start: {verdict.reason}",
        start_after_s=max(0.0, fmean(verdict.kept_s) - lead_s),
        since="round",
        lead_s=lead_s,
        filtered=_seen([verdict]),
    )


def saa(view: WarmupView) -> WarmupPlan:
    """Plan the start that would have cost least in the latest rounds, if it pays."""
    if not view.start_s:
        return _event("no round whose starts were all measured")
    return saa_plan(view.gap_s, view.start_s, view.rho, kappa=view.kappa, n_candidates=view.n_candidates)


def _informed(rule: Callable[[WarmupView], WarmupPlan], view: WarmupView) -> WarmupPlan:
    """Plan by a rule that needs history; ``cold`` while the view lacks any."""
    lack = view.lack()
    return _event(lack) if lack else rule(view)


def _event(why: str) -> WarmupPlan:
    return WarmupPlan(action="cold", reason=f"{why}: start at the arrival of the next parameters")


def _seen(verdicts: Sequence[Stability]) -> tuple[tuple[int, float, float], ...]:
    """Return how many rounds each verdict looked at, and the range of those that it keeps."""
    return tuple(
        (len(v.kept_s) + len(v.dropped_s), min(v.kept_s, default=0.0), max(v.kept_s, default=0.0)) for v in verdicts
    )


def _filtered(view: WarmupView, duration_s: Sequence[float]) -> Stability:
    return stable_window(duration_s, window=view.filter_window, min_rounds=view.min_rounds)


def _problem(view: WarmupView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, WarmupPlan) or plan.action not in {"cold", "start", "keep"}:
        return f"a plan must be a WarmupPlan to start cold, start or keep, got {plan!r}"
    n_workers = len(view.pools_s)
    if plan.offsets_s and len(plan.offsets_s) != n_workers:
        return f"offsets_s must be one for each of {n_workers} workers, got {len(plan.offsets_s)}"
    return ""


def _recorded(view: WarmupView, answer: Answer) -> WarmupPlan | None:
    """Return the plan that a journal holds: its first collector's.

    So the plan of a user's own planner comes back exactly where it has one time after sending for all collectors.
    """
    planned = answer.next(WarmupPlanned)
    plan = plan_of(WarmupPlan, planned)
    if plan is None or planned is None:
        return None
    return replace(plan, filtered=() if planned.filtered is None else (planned.filtered,))


#: The decision when collectors are started.
WARMUP: PlannerKind[WarmupView, WarmupPlan] = PlannerKind("warmup", "saa", problem=_problem, recorded=_recorded)
for _name, _rule in (("cold", cold), ("keep", keep)):
    WARMUP.register(_name, partial(_Rule, _name, _rule))
for _name, _rule in (("patent", patent), ("saa", saa)):
    WARMUP.register(_name, partial(_Rule, _name, partial(_informed, _rule)))
