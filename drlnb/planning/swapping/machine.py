"""Decide which plan a task's steps follow: profile, search, try out, keep the best measured one, watch for drift."""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from drlnb.planning.codec import from_plain
from drlnb.planning.machine import Machine, Out, Rules
from drlnb.planning.swapping.cost import Prediction, predict
from drlnb.planning.swapping.heuristics import Searched
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, SwapLink, SwapPlan, SwapProfile, facts
from drlnb.records.base import Facts
from drlnb.records.columns import swapping as words
from drlnb.records.common import SettingChanged

__all__ = ["BUDGET_KEY", "NONE", "PIN_KEY", "PLANNER_KEY", "RULES", "SwapMachine", "Swapping"]

#: Settings that can be changed while a task trains.
BUDGET_KEY, PLANNER_KEY, PIN_KEY = "swapping.memory_budget_bytes", "swapping.planner", "swapping.pin"
#: Name of the plan that keeps everything.
NONE: Final = "none"
#: Steps of a trial that are measured, after one that is not.
_TRIAL_STEPS = 3
#: Steps that show a drift, and the ratio of their median to the one that the plan was kept for.
_DRIFT_STEPS, _DRIFT = 8, 1.10
#: A peak beyond the prediction by more than this share corrects what the profile says of the allocator.
_PEAK_SLACK = 1.05
#: By so much may a candidate have been faster than the plan that is kept: it is measured on.
_NOISE = 1.02


@dataclass(slots=True, kw_only=True)
class Swapping:
    """What is known of one task's steps, and which plan they follow."""

    planner: str
    #: None: no limit, so nothing is swapped.
    budget_bytes: float | None
    seed: int = 0
    splittable: bool = False
    #: Name of a row -> the action that the user wants.
    pins: dict[str, str] = field(default_factory=dict)
    #: ``cold``, ``profiling``, ``quick`` (a search is under way), ``trialling``, ``settled`` or ``drifting``.
    phase: str = "cold"
    profile: SwapProfile | None = None
    n_samples: int = 0
    #: Name -> plan, of the present profile, budget and pins.
    plans: dict[str, SwapPlan] = field(default_factory=dict)
    running: str = NONE
    #: Names of the plans that are still to be tried.
    candidates: list[str] = field(default_factory=list)
    #: Name -> seconds of its steps within trials since the last change, the first of each left out; empty: it fits.
    steps_s: dict[str, list[float]] = field(default_factory=dict)
    #: The running plan has made its first step.
    warm: bool = False
    #: Names of the plans that overflowed.
    overflowed: set[str] = field(default_factory=set)
    settled_s: float = 0.0
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_DRIFT_STEPS))
    t: float = 0.0

    def predicted(self, name: str) -> Prediction | None:
        """Return what is expected of a plan; None without a profile."""
        if self.profile is None:
            return None
        return predict(self.profile, self.plans[name], self.n_samples, self.budget_bytes)

    def fits(self, name: str) -> bool:
        """Return whether a plan may be run: it was measured or is expected to fit, and never overflowed."""
        said = self.predicted(name)
        return name not in self.overflowed and (name in self.steps_s or said is None or said.fits)

    def safest(self) -> str:
        """Return the plan of the smallest expected peak."""
        said = {name: self.predicted(name) for name in self.plans}
        return min(said, key=lambda name: each.peak_bytes if (each := said[name]) else 0.0)


class SwapMachine(Machine[Swapping]):
    """The plans of one task on one kind of device.

    Parameters
    ----------
    config
        ``planner``: name of the planner; ``budget_bytes``: what a step may use, None: any number; ``seed`` of searches;
        ``splittable``: minibatches may be cut into parts.

    Raises
    ------
    ValueError
        If there is no planner of the name.
    """

    def __init__(self, config: Facts) -> None:
        state = Swapping(**config)
        SWAPPING.build(state.planner)  # a wrong name is refused now
        _forget(state)
        super().__init__("SwapMachine", state, RULES)
        self.config = config

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        state = self.state
        if state.profile is not None:
            problems = [plan.problem(state.profile, _meant(state)) for plan in state.plans.values()]
            yield not any(problems), "every plan can be carried out and obeys the pins"
            if any(problems):
                return
        yield state.fits(state.running) or state.running == state.safest(), "the running plan fits, or none is smaller"
        medians = {name: median(steps) for name, steps in state.steps_s.items() if steps and state.fits(name)}
        best = min(medians.values(), default=0.0)
        kept = state.phase != "settled" or medians.get(state.running, 0.0) <= best * _NOISE
        yield kept, "no plan that was tried is faster than the one that is kept"
        yield (state.phase == "trialling") or not state.candidates, "candidates wait during trials alone"
        yield {state.running, *state.candidates} <= state.plans.keys(), "what runs and what waits is known"


def _forget(state: Swapping) -> None:
    """Drop the plans: profile, budget, planner or pins are others now."""
    state.candidates.clear()
    state.steps_s.clear()
    state.overflowed.clear()
    state.recent_s.clear()
    state.settled_s = 0.0
    state.plans = {NONE: _ruled(state, "all", "keep")}
    state.running = NONE


def _meant(state: Swapping) -> dict[str, str]:
    """Return the pins that the profile's rows can obey; without a budget nothing is moved."""
    if state.profile is None or state.budget_bytes is None:
        return {}
    pins = {row.name: state.pins[row.name] for row in state.profile.rows if state.pins.get(row.name) in row.actions}
    for row in state.profile.rows:  # a pinned source that is not there whole is the stronger wish
        source = "{}#{}".format(*row.derive_from) if row.derive_from else ""
        if pins.get(row.name) == DERIVE and pins.get(source, KEEP) not in {KEEP, SWAP}:
            del pins[row.name]
    return pins


def _view(state: Swapping) -> SwapView:
    return SwapView(
        profile=state.profile,
        n_samples=state.n_samples,
        budget_bytes=state.budget_bytes,
        splittable=state.splittable,
        seed=state.seed,
        pins=_meant(state),
    )


def _ruled(state: Swapping, rule: str, actions: str = "all") -> SwapPlan:
    return SWAPPING.ask(Searched(rule, actions), _view(state))


def _add(state: Swapping, plan: SwapPlan) -> str:
    """Return the name of a plan that is known from now on."""
    name = next((name for name, known in state.plans.items() if known == plan), plan.key or NONE)
    state.plans[name] = plan
    return name


def _run(state: Swapping, name: str, reason: str, out: Out) -> None:
    """Follow a plan from the next step on."""
    state.running, state.warm = name, False
    said, plan = state.predicted(name), state.plans[name]
    out.append(words.SwapPlanned(
        planner=state.planner, plan_key=plan.key, plan=None if plan.key is None else facts(plan), reason=reason,
        predicted_s=said.step_s if said else 0.0, predicted_bytes=int(said.peak_bytes) if said else 0,
    ))  # fmt: skip
    out.append(words.ApplySwapPlan(plan_key=name, plan=facts(plan)))


# ------------------------------------------------------------------ plans anew
def _plan_anew(state: Swapping, reason: str, out: Out, overflowed: Collection[str] = ()) -> None:
    """Follow a plan that is found at once, while others are searched for."""
    _forget(state)
    state.overflowed.update(overflowed)
    if state.profile is None:
        if state.budget_bytes is not None and state.phase == "cold":
            state.phase = "profiling"
            out.append(words.TakeSwapProfile())
        return
    if state.fits(NONE) and state.planner in {"auto", "none"}:
        state.phase = "settled"
        _run(state, NONE, f"{reason}; all fits", out)
        return
    quick = [NONE, *[_add(state, _ruled(state, rule)) for rule in ("capuchin", "all")]]
    name = next((each for each in quick if state.fits(each)), state.safest())
    state.phase = "quick"
    _run(
        state,
        name,
        f"{reason}; {'found at once' if state.fits(name) else 'none fits, this one has the least peak'}",
        out,
    )
    out.append(words.SearchSwapPlan(
        planner=state.planner, profile=facts(state.profile), n_samples=state.n_samples,
        budget_bytes=int(state.budget_bytes or 0), seed=state.seed, pins=_meant(state),
        splittable=state.splittable,
    ))  # fmt: skip


def _profile_taken(state: Swapping, event: words.SwapProfileTaken, out: Out) -> None:
    """Plan for what the steps save."""
    state.profile, state.n_samples = from_plain(SwapProfile, event.profile), event.n_samples
    _plan_anew(state, "a profile was taken", out)


def _trace_changed(state: Swapping, event: words.SwapTraceChanged, out: Out) -> None:
    """Ask for a profile of what the steps save now; what the plan does not know stays meanwhile."""
    if state.phase != "profiling" and state.budget_bytes is not None:
        state.phase = "profiling"
        state.candidates.clear()
        out.append(words.TakeSwapProfile())


def _setting_changed(state: Swapping, event: SettingChanged, out: Out) -> None:
    """Plan anew with another budget, planner or pin."""
    if event.key == BUDGET_KEY:
        state.budget_bytes = event.value
    elif event.key == PLANNER_KEY:
        state.planner = event.value
    elif event.key == PIN_KEY:
        state.pins = dict(event.value)
    else:
        return
    _plan_anew(state, f"{event.key} was changed", out)


def _plan_found(state: Swapping, event: words.SwapPlanFound, out: Out) -> None:
    """Try out what a search has found, if it was for the present profile and budget."""
    now = state.profile is not None and (state.profile.key, int(state.budget_bytes or 0))
    if state.phase != "quick" or (event.profile_key, event.budget_bytes) != now:
        return
    plans = [from_plain(SwapPlan, plan) for plan in event.plans]
    sound = [plan for plan in plans if state.profile and not plan.problem(state.profile, _meant(state))]
    names = [_add(state, plan) for plan in sound]
    names += [state.running] if state.planner == "auto" else []
    state.candidates = [name for name in dict.fromkeys(names) if state.fits(name)]
    state.phase = "trialling"
    if not any(state.fits(name) for name in state.plans):
        out.append(words.SwapUnavailable(reason="no plan fits the budget; the one of the smallest peak goes on"))
    _next_trial(state, out)


# ------------------------------------------------------------------ trials
def _next_trial(state: Swapping, out: Out) -> None:
    """Try the next candidate; after the last one keep the best."""
    if state.candidates:
        name = state.candidates.pop(0)
        _run(state, name, "a trial", out)
        out.append(words.SwapTrialStarted(plan_key=name, n_steps=_TRIAL_STEPS))
        return
    state.phase = "settled"
    best = _best(state)
    if best is None:
        _run(state, state.safest(), "no candidate could be measured", out)
        return
    if best != state.running:
        _run(state, best, "the best of the trials", out)
    state.settled_s = median(state.steps_s[best])
    out.append(words.SwapPlanKept(plan_key=best, step_s=state.settled_s, n_tried=len(state.steps_s)))


def _best(state: Swapping) -> str | None:
    """Return the fastest plan that was measured and fits."""
    measured = [name for name, steps in state.steps_s.items() if steps and state.fits(name)]
    return min(measured, key=lambda name: median(state.steps_s[name]), default=None)


def _step_measured(state: Swapping, event: words.SwapStepMeasured, out: Out) -> None:
    """Count a step of a trial; where the plan is settled, watch for a drift."""
    said = state.predicted(event.plan_key) if event.plan_key in state.plans else None
    if event.plan_key != state.running or said is None or state.profile is None:
        return
    if event.peak_bytes > _PEAK_SLACK * said.peak_bytes:
        slack = (1.0 + state.profile.slack_frac) * event.peak_bytes / said.peak_bytes - 1.0
        state.profile = replace(state.profile, slack_frac=slack)
    if state.budget_bytes is not None and event.peak_bytes > state.budget_bytes:
        _leave(state, "its peak was above the budget", out)
        return
    state.steps_s.setdefault(state.running, [])
    if not state.warm:
        state.warm = True
    elif state.phase == "trialling":
        _count(state, event.step_s, out)
    elif state.phase == "settled" and state.settled_s:
        state.recent_s.append(event.step_s)
        if len(state.recent_s) == _DRIFT_STEPS and median(state.recent_s) > _DRIFT * state.settled_s:
            state.phase = "drifting"
            out.append(words.MeasureSwapLink())


def _count(state: Swapping, step_s: float, out: Out) -> None:
    steps = state.steps_s.setdefault(state.running, [])
    steps.append(step_s)
    if len(steps) < _TRIAL_STEPS:
        return
    best = _best(state)
    if best is not None and best != state.running:
        reason = f"{median(steps):.4g} s, not {median(state.steps_s[best]):.4g} s"
        out.append(words.SwapPlanRolledBack(plan_key=state.running, to_key=best, reason=reason))
    _next_trial(state, out)


def _overflowed(state: Swapping, event: words.SwapStepOverflowed, out: Out) -> None:
    """Never run a plan again that did not fit."""
    if event.plan_key == state.running:
        _leave(state, "it did not fit", out)
    elif event.plan_key in state.plans:
        state.overflowed.add(event.plan_key)
        state.candidates = [name for name in state.candidates if name != event.plan_key]


def _leave(state: Swapping, reason: str, out: Out) -> None:
    """Give the running plan up: the best one that was measured goes on, or the one of the smallest peak."""
    again = state.running in state.overflowed
    state.overflowed.add(state.running)
    other = _best(state) or state.safest()
    if len(state.plans) == 1:  # nothing was searched for, since all was expected to fit
        _plan_anew(state, reason, out, overflowed={NONE})
    elif other != state.running:
        out.append(words.SwapPlanRolledBack(plan_key=state.running, to_key=other, reason=reason))
        if state.phase == "trialling":
            _next_trial(state, out)
        else:
            _run(state, other, f"the plan before: {reason}", out)
    elif not again:
        out.append(words.SwapUnavailable(reason=f"{reason}, and no plan is smaller"))


def _link_measured(state: Swapping, event: words.SwapLinkMeasured, out: Out) -> None:
    """Plan anew for another link."""
    if state.profile is not None:
        state.profile = replace(state.profile, link=from_plain(SwapLink, event.link))
        _plan_anew(state, "the link was measured", out)


#: Event -> its rule.
RULES: Rules[Swapping] = {
    words.SwapProfileTaken: _profile_taken,
    words.SwapTraceChanged: _trace_changed,
    words.SwapPlanFound: _plan_found,
    words.SwapStepMeasured: _step_measured,
    words.SwapStepOverflowed: _overflowed,
    words.SwapLinkMeasured: _link_measured,
    SettingChanged: _setting_changed,
}
