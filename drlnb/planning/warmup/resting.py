"""Decide what becomes of a collector that has sent, and when it is started again."""

from dataclasses import replace

from drlnb.planning.warmup.history import History
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WARMUP, WarmupView
from drlnb.planning.warmup.state import WarmupState, start
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records import round as words
from drlnb.records.base import Record, shared
from drlnb.records.columns.warmup import StopCollector, WarmupPlanned, WarmupRegimeEnded

_DIGITS = 6


def experience_arrived(state: WarmupState, event: words.ExperienceArrived, out: list[Record]) -> None:
    """Bring the collector to rest that has sent, unless it is not to be started again."""
    i, trace = event.collector, state.trace
    if not 0 <= i < len(state.members):
        return
    if trace is not None and (event.round < trace.round or (event.round == trace.round and i in trace.sent_t)):
        return  # an old round's, or a repeated message
    member = state.members[i]
    if trace is None or event.round > trace.round:
        trace = _open_round(state, event.round, out)
    trace.sent_t[i], trace.n_samples[i] = event.t, event.n_samples
    lost = member.status == "absent"
    if not lost:  # it has acted
        member.goes_up()
    if state.ended:
        _planned(state, trace, i, WarmupPlan(action="end", reason=state.ended), None, out)
    elif event.round == state.last_round:
        plan = WarmupPlan(action="end", reason="no round follows this one: nobody rests")
        _planned(state, trace, i, plan, None, out)
    elif lost:
        trace.broken = True
        plan = WarmupPlan(action="cold", reason="its process was lost and is started anew at once")
        _planned(state, trace, i, plan, None, out)
    else:
        _rest(state, trace, i, event, out)


def _open_round(state: WarmupState, round_: int, out: list[Record]) -> RoundTrace:
    """Begin to watch a round; what the user changed counts from here on."""
    start_t = state.version_t if state.version == round_ else None
    state.former = state.trace
    state.trace = RoundTrace(round=round_, n_workers=len(state.members), start_t=start_t)
    state.plan = None
    for member in state.members:
        # Where a host is slow, others have acted already: who waits for it is still to be started for this round.
        if member.status != "absent" and not member.ended:
            member.status, member.planned_t, member.due = "up", None, False
    _apply_changes(state, round_, out)
    return state.trace


def _apply_changes(state: WarmupState, round_: int, out: list[Record]) -> None:
    former = state.settings
    settings = state.settings = replace(former, **state.changed)  # type: ignore[arg-type]  # checked as it was changed
    state.changed = {}
    history = state.history = replace(state.history, **shared(settings, History))
    reasons = [
        f"{name} changed from {getattr(former, name)} to {getattr(settings, name)}"
        for name in ("collector_mode", "start_mode")
        if getattr(former, name) != getattr(settings, name)
    ]
    if reasons:
        for member in state.members:
            member.mode = ""
    if history.rows and history.rows[-1].key["hold"] != state.hold:
        reasons.append(f"hold changed from {history.rows[-1].key['hold']} to {state.hold}")
    if reasons and history.rows:
        history.end()
        if state.plans_starts:
            out.append(WarmupRegimeEnded(round=round_, n_kept=0, reason="; ".join(reasons)))


# -------------------------------------------------------------------- plan
def _view(state: WarmupState) -> WarmupView:
    rows = state.history.latest
    return WarmupView(
        **shared(state.settings, WarmupView),
        gap_s=[row.gap_s for row in rows],
        start_s=state.history.starts(),
        round_s=[row.round_s for row in rows],
        pools_s=[_pool(state, i) for i in range(len(state.members))],
    )


def _pool(state: WarmupState, i: int) -> tuple[float, ...]:
    """Return the starts that are a guide to one collector's: as many at once as the task has on its node."""
    member = state.members[i]
    at_once = sum(other.node == member.node for other in state.members)
    return state.starts.samples(member.node, member.mode or state.settings.start_mode, at_once)


def _make_plan(state: WarmupState) -> WarmupPlan:
    settings = state.settings
    planner = state.build(settings.planner)
    if settings.planner in ("cold", "keep"):  # they look at nothing
        return WARMUP.ask(planner, WarmupView())
    if not state.starts_needed:
        return WarmupPlan(action="cold", reason="collectors that rest wake with the parameters: nothing to start")
    if state.resting:
        return WarmupPlan(action="cold", reason="the task rests after this round: no start is planned")
    return WARMUP.ask(planner, _view(state))


def _rest(state: WarmupState, trace: RoundTrace, i: int, event: words.ExperienceArrived, out: list[Record]) -> None:
    """Bring a collector to rest, and command its start if one is planned."""
    first = state.plan is None
    plan = state.plan = state.plan or _make_plan(state)
    member = state.members[i]
    after_s = None if state.resting else plan.start_s(i)
    if after_s is not None and plan.since == "round":
        after_s = None if trace.start_t is None else max(0.0, trace.start_t + after_s - event.t)
    _planned(state, trace, i, plan if first else plan.repeated(), after_s, out)
    if plan.action == "keep":
        trace.kept.append(i)
        return
    if state.starts_needed:  # else it waits for the next parameters as it is: nothing to be done
        out.append(StopCollector(collector=i, node=member.node, round=trace.round))
        member.ended = True
    member.status, member.planned_t = "resting", None
    if after_s is not None:
        start(state, i, after_s, event.t, trace.round + 1, out)


def _planned(
    state: WarmupState, trace: RoundTrace, i: int, plan: WarmupPlan, after_s: float | None, out: list[Record]
) -> None:
    """Record what is planned for one collector."""
    planned = after_s is not None
    for_i = {
        "action": "cold" if plan.action == "start" and not planned else plan.action,
        "start_after_s": None if after_s is None else round(after_s, _DIGITS),
        "lead_s": round(plan.lead_s, _DIGITS) if planned and plan.lead_s is not None else None,
        "filtered": plan.filter_of(i),
    }
    of_plan = shared(plan, WarmupPlanned) | for_i
    out.append(WarmupPlanned(round=trace.round, collector=i, planner=state.settings.planner, **of_plan))


# -------------------------------------------------------------------- what tells of other times
def lease_received(state: WarmupState, event: words.LeaseReceived, out: list[Record]) -> None:
    """Count the pool's slots: gaps hold waits for one."""
    state.n_slots = event.n_slots or state.n_slots


def work_voided(state: WarmupState, event: words.LeaseLost | words.ExecutorDied, out: list[Record]) -> None:
    """Count this round as disturbed: it computes again, and its times are no guide."""
    if state.trace is not None and not state.trace.closed:
        state.trace.broken = True
