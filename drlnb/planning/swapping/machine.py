"""Decide which plan a task's steps follow: profile, search, try out, keep the best measured one, watch for drift."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from statistics import median

from drlnb.planning.codec import from_plain
from drlnb.planning.machine import Machine, Out, Rules
from drlnb.planning.registry import OWN, Planner
from drlnb.planning.swapping.learned import OVERFLOW, learning
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import SwapLink, SwapPlan, SwapProfile, facts
from drlnb.planning.swapping.state import NONE, Swapping, add, forget, meant, quick, report, run, view_of
from drlnb.planning.swapping.trials import TRIAL_STEPS, best, count, keep_learned, learn, next_trial
from drlnb.records.base import Facts, Record
from drlnb.records.columns import swapping as words
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged
from drlnb.records.units import read_bytes, said_bytes

__all__ = ["BUDGET_KEY", "NONE", "PIN_KEY", "PLANNER_KEY", "RULES", "TRIAL_STEPS", "SwapMachine"]

#: Settings that can be changed while a task trains.
BUDGET_KEY, PLANNER_KEY, PIN_KEY = "swapping.memory_budget_bytes", "swapping.planner", "swapping.pin"
#: Fields of the state that are the user's.
_USERS = ("memory_budget_bytes", "planner", "pins", "never")
#: Ratio of the median of recent steps to the one that the plan was kept for.
_DRIFT = 1.10
#: A peak beyond the prediction by more than this share corrects what the profile says of the allocator.
_PEAK_SLACK = 1.05
#: Plans that are tried out where none is expected to fit.
_MEASURED = 3
#: By so much may a candidate have been faster than the plan that is kept: it is measured on.
_NOISE = 1.02


class SwapMachine(Machine[Swapping]):
    """The plans of one task on one kind of device.

    Parameters
    ----------
    config
        ``planner``: name of the planner; ``memory_budget_bytes``: what a step may use, None: any number;
        ``seed`` of searches; ``pins``; ``never``: why no step can be swapped.
    build
        Returns a planner by its name.

    Raises
    ------
    ValueError
        If there is no planner of the name.
    """

    def __init__(self, config: Facts, build: Callable[[str], Planner[SwapView, SwapPlan]] = SWAPPING.build) -> None:
        state = Swapping(build=build, **config)
        build(state.planner)  # a wrong name is refused now
        forget(state)
        super().__init__("SwapMachine", state, RULES)
        self.config = config

    def resume(self, snapshot: Facts) -> tuple[Record, ...]:
        """Go on in another process from a snapshot, with the budget, planner and pins of now; return what to do."""
        now, out = self.state, list[Record]()
        self.restore(snapshot)
        _resumed(self.state, now, out)
        return tuple(out)

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        state = self.state
        if state.profile is not None:
            problems = [plan.problem(state.profile, meant(state)) for plan in state.plans.values()]
            yield not any(problems), "every plan can be carried out and obeys the pins"
            if any(problems):
                return
        tried = state.phase == "trialling"
        sound = tried or state.fits(state.running) or state.running == state.safest()
        yield sound, "the running plan fits, or none is smaller, or it is tried out"
        medians = {name: median(steps) for name, steps in state.steps_s.items() if steps and state.fits(name)}
        least = min(medians.values(), default=0.0)
        kept = state.phase != "settled" or bool(state.learned) or medians.get(state.running, 0.0) <= least * _NOISE
        yield kept, "no plan that was tried is faster than the one that is kept"
        yield tried or not state.candidates, "candidates wait during trials alone"
        yield {state.running, *state.candidates} <= state.plans.keys(), "what runs and what waits is known"


# ------------------------------------------------------------------ plans anew
def _plan_anew(state: Swapping, reason: str, out: Out, overflowed: Collection[str] = ()) -> None:
    """Follow a plan that is found at once, while others are searched for."""
    forget(state)
    state.overflowed.update(overflowed)
    if state.profile is None:
        if state.active and state.phase == "cold":
            state.phase = "profiling"
            out.append(words.TakeSwapProfile())
        return
    if not state.active or not state.profile.rows or (state.fits(NONE) and state.planner == "auto"):
        state.phase = "settled"
        why = "all fits" if state.fits(NONE) else "nothing can be moved"
        run(state, NONE, f"{reason}; {why if state.active else 'there is no budget'}", out)
        said = state.predicted(NONE)
        if state.active and said and said.fits:
            report(state, f"a step needs {said_bytes(said.peak_bytes)}, less than its budget; it is left alone", out)
        return
    if state.planner.startswith(OWN):
        _follow_own(state, reason, out)
        return
    name = quick(state)
    state.phase = "quick"
    fits = "found at once" if state.fits(name) else "none fits, this one has the least peak"
    run(state, name, f"{reason}; {fits}", out)
    out.append(
        words.SearchSwapPlan(
            planner=state.planner,
            profile=facts(state.profile),
            n_samples=state.n_samples,
            memory_budget_bytes=int(state.memory_budget_bytes or 0),
            seed=state.seed,
            pins=meant(state),
        )
    )


def _follow_own(state: Swapping, reason: str, out: Out) -> None:
    """Follow the plan of a user's own planner, if it is expected to fit."""
    state.phase = "settled"
    own = add(state, SWAPPING.ask(state.build(state.planner), view_of(state)))
    run(state, own, reason, out)  # first of all: a replay reads it here
    if not state.fits(own):
        name = quick(state)
        out.append(words.SwapPlanRolledBack(plan_key=own, to_key=name, reason="it is not expected to fit"))
        run(state, name, "found at once", out)


def _profile_taken(state: Swapping, event: words.SwapProfileTaken, out: Out) -> None:
    """Plan for what the steps save; of several slots that make each step together, for the largest part."""
    if state.phase != "profiling" and event.n_samples < state.n_samples:
        return
    state.profile, state.n_samples = from_plain(SwapProfile, event.profile), event.n_samples
    _plan_anew(state, "a profile was taken", out)


def _trace_changed(state: Swapping, event: words.SwapTraceChanged, out: Out) -> None:
    """Ask for a profile of what the steps save now; what the plan does not know stays meanwhile."""
    if state.phase != "profiling" and state.active:
        state.phase = "profiling"
        state.candidates.clear()
        out.append(words.TakeSwapProfile())


def _setting_changed(state: Swapping, event: SettingChanged, out: Out) -> None:
    """Plan anew with another budget, planner or pin."""
    if event.key == BUDGET_KEY:
        memory_budget_bytes = None if event.value is None else read_bytes(event.value)
        if memory_budget_bytes is not None and (problem := _refusal(state, memory_budget_bytes)):
            out.append(RequestRefused(subject=event.key, reason=f"{event.key}: {problem}"))
            return
        state.memory_budget_bytes = memory_budget_bytes
    elif event.key == PLANNER_KEY:
        keep_learned(state, event.value if event.value != state.planner else "")
        state.planner = event.value
    elif event.key == PIN_KEY:
        state.pins = dict(event.value or {})
    else:
        return
    _plan_anew(state, f"{event.key} was changed", out)


def _refusal(state: Swapping, memory_budget_bytes: float) -> str:
    """Return why a task cannot have a budget; empty if it can, as far as is known."""
    fixed_bytes = state.profile.fixed_bytes if state.profile else 0.0
    if state.never or memory_budget_bytes > fixed_bytes:
        return state.never
    own = f"the {said_bytes(fixed_bytes)} of the module's parameters, gradients, moments and buffers"
    return f"the budget must be above {own}, got {said_bytes(memory_budget_bytes)}"


def _broken(state: Swapping, event: words.SwapBroken, out: Out) -> None:
    """Report that steps are made without swapping."""
    report(state, f"nothing is swapped: {event.reason}", out)


def _resumed(state: Swapping, wanted: Swapping, out: Out) -> None:
    """Go on where the driver knows no plan, and nobody searches any more."""
    changed = [name for name in _USERS if getattr(state, name) != getattr(wanted, name)]
    keep_learned(state, wanted.planner)
    for name in changed:
        setattr(state, name, getattr(wanted, name))
    if not changed and (state.phase == "settled" or (state.phase == "trialling" and state.learned)):
        state.warm = False
        state.peaks.clear()
        out.append(words.ApplySwapPlan(plan_key=state.running, plan=facts(state.plans[state.running])))
    else:
        _plan_anew(state, "the task goes on", out)


def _plan_found(state: Swapping, event: words.SwapPlanFound, out: Out) -> None:
    """Try out what a search has found, if it was for the present profile and budget."""
    now = state.profile is not None and (state.profile.key, int(state.memory_budget_bytes or 0))
    if state.phase != "quick" or (event.profile_key, event.memory_budget_bytes) != now:
        return
    plans = [from_plain(SwapPlan, plan) for plan in event.plans]
    sound = [plan for plan in plans if state.profile and not plan.problem(state.profile, meant(state))]
    names = [add(state, plan) for plan in sound]
    names += [state.running] if state.planner == "auto" else []
    state.phase = "trialling"
    if sound and (planner := learning(state.build(state.planner))):
        state.learned = planner.learner(view_of(state), state.learned, sound[0]).saved()
        learn(state, planner, [], out)
        return
    state.candidates = [name for name in dict.fromkeys(names) if state.fits(name)]
    if not any(state.fits(name) for name in state.plans):  # predictions may be wrong: the smallest peaks are measured
        least = sorted([name for name in state.plans if name not in state.overflowed], key=state.danger)
        # What all takes is known: where it is not the least, it is not run above the budget for a trial.
        state.candidates = [name for name in least if name == least[0] or state.plans[name].key is not None][:_MEASURED]
    next_trial(state, out)


# ------------------------------------------------------------------ trials
def _step_measured(state: Swapping, event: words.SwapStepMeasured, out: Out) -> None:
    """Count a step of a trial; where the plan is settled, watch for a drift."""
    said = state.predicted(event.plan_key) if event.plan_key in state.plans else None
    if event.plan_key != state.running or said is None or state.profile is None:
        return
    if event.n_samples > state.n_samples or event.device_kind not in {"", state.profile.device_kind}:
        _trace_changed(state, words.SwapTraceChanged(t=event.t, shape_key=state.profile.shape_key), out)
        return
    if event.peak_bytes > _PEAK_SLACK * said.peak_bytes:
        slack = (1.0 + state.profile.slack_frac) * event.peak_bytes / said.peak_bytes - 1.0
        state.profile = replace(state.profile, slack_frac=slack)
    state.most_bytes[state.running] = max(event.peak_bytes, state.most_bytes.get(state.running, 0))
    if state.memory_budget_bytes is not None and event.peak_bytes > state.memory_budget_bytes:
        _leave(state, "its peak was above the budget", out)
        return
    state.steps_s.setdefault(state.running, [])
    if not state.warm:
        state.warm = True
    elif state.phase == "trialling":
        count(state, event.step_s, event.peak_bytes, out)
    elif state.phase == "settled" and state.settled_s:
        state.recent_s.append(event.step_s)
        if len(state.recent_s) == state.recent_s.maxlen and median(state.recent_s) > _DRIFT * state.settled_s:
            state.phase = "drifting"
            out.append(words.MeasureSwapLink())


def _overflowed(state: Swapping, event: words.SwapStepOverflowed, out: Out) -> None:
    """Never run a plan again that did not fit."""
    if event.plan_key == state.running:
        _leave(state, "it did not fit", out)
    elif event.plan_key in state.plans:
        state.overflowed.add(event.plan_key)
        state.candidates = [name for name in state.candidates if name != event.plan_key]


def _leave(state: Swapping, reason: str, out: Out) -> None:
    """Give the running plan up: the best one that was measured goes on, or the one of the smallest peak."""
    state.overflowed.add(state.running)
    if state.phase == "trialling" and (planner := learning(state.build(state.planner))):
        learn(state, planner, [OVERFLOW], out)
        return
    other = best(state) or state.safest()
    if len(state.plans) == 1 and state.profile and state.profile.rows:  # nothing was searched for: all was to fit
        _plan_anew(state, reason, out, overflowed={NONE})
        return
    if other != state.running:
        out.append(words.SwapPlanRolledBack(plan_key=state.running, to_key=other, reason=reason))
    if state.phase == "trialling":
        next_trial(state, out)
    elif other != state.running:
        run(state, other, f"the plan before: {reason}", out)
    elif state.phase == "settled" and not state.short:
        state.short = True
        asked, least = said_bytes(state.memory_budget_bytes or 0.0), said_bytes(state.danger(other)[0])
        way = "give it as much, or make steps of fewer samples"
        report(state, f"the budget of {asked} is not kept: the least that was found takes {least}; {way}", out)


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
    words.SwapBroken: _broken,
    SettingChanged: _setting_changed,
}
