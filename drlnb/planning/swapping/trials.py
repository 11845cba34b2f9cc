"""Try plans out and keep the best one that was measured; give a planner that learns the costs of its trials."""

from collections.abc import Iterator
from statistics import median
from typing import Final

from drlnb.planning.machine import Out
from drlnb.planning.swapping.learned import OVERFLOW, TablePlanner, learning, relative_cost
from drlnb.planning.swapping.search import Search
from drlnb.planning.swapping.state import Swapping, add, run, view_of
from drlnb.records.columns import swapping as words

__all__ = ["TRIAL_STEPS", "best", "count", "keep_learned", "learn", "next_trial"]

#: Steps of a trial that are measured, after one that is not.
TRIAL_STEPS: Final = 3


def next_trial(state: Swapping, out: Out) -> None:
    """Try the next candidate; after the last one keep the best."""
    if state.candidates:
        _try(state, state.candidates.pop(0), out)
    else:
        _settle(state, best(state), out)


def _try(state: Swapping, name: str, out: Out) -> None:
    run(state, name, "a trial", out)
    out.append(words.SwapTrialStarted(plan_key=name, n_steps=TRIAL_STEPS))


def _settle(state: Swapping, kept: str | None, out: Out) -> None:
    state.phase = "settled"
    if kept is None:
        run(state, state.safest(), "no candidate could be measured", out)
        return
    if kept != state.running:
        run(state, kept, "the best of the trials", out)
    state.settled_s = median(state.steps_s[kept])
    out.append(words.SwapPlanKept(plan_key=kept, step_s=state.settled_s, n_tried=len(state.steps_s)))


def best(state: Swapping) -> str | None:
    """Return the fastest plan that was measured and fits."""
    measured = [name for name, steps in state.steps_s.items() if steps and state.fits(name)]
    return min(measured, key=lambda name: median(state.steps_s[name]), default=None)


def count(state: Swapping, step_s: float, peak_bytes: int, out: Out) -> None:
    """Count a step of a trial; after the last one go on with another plan."""
    steps = state.steps_s.setdefault(state.running, [])
    steps.append(step_s)
    state.peaks.append(peak_bytes)
    if len(state.peaks) < TRIAL_STEPS:
        return
    if planner := learning(state.build(state.planner)):
        learn(state, planner, list(_costs(state, planner.w)), out)
        return
    kept = best(state)
    if kept is not None and kept != state.running:
        reason = f"{median(steps):.4g} s, not {median(state.steps_s[kept]):.4g} s"
        out.append(words.SwapPlanRolledBack(plan_key=state.running, to_key=kept, reason=reason))
    next_trial(state, out)


# ------------------------------------------------------------------ planners that learn
def keep_learned(state: Swapping, planner: str) -> None:
    """Forget what was learned, but by a planner of that name with other parameters."""
    if planner.partition(":")[0] != state.planner.partition(":")[0]:
        state.learned = ""


def _costs(state: Swapping, w: float) -> Iterator[float]:
    """Yield the cost of each step of the trial that has ended."""
    search, steps_s = Search(view_of(state)), state.steps_s[state.running]
    for step_s, peak_bytes in zip(steps_s[-TRIAL_STEPS:], state.peaks, strict=True):
        moved_bytes = peak_bytes / (1.0 + search.profile.slack_frac) - search.profile.fixed_bytes
        yield relative_cost(search, step_s, moved_bytes, w)


def learn(state: Swapping, planner: TablePlanner, costs: list[float], out: Out) -> None:
    """Learn from a trial, and try out what is wanted next; what is not expected to fit costs five and does not run.

    Parameters
    ----------
    state, out
        As of a rule.
    planner
        The one that learns.
    costs
        Of the steps of the trial that has ended; empty: none has.
    """
    view, name = view_of(state), state.running
    learner, search = planner.learner(view, state.learned), Search(view)
    while True:
        if costs:
            out.append(words.SwapLearned(plan_key=name, **learner.learn(costs)))
        choice = learner.choice
        name = add(state, search.plan(choice or learner.best))
        if choice is None or state.fits(name):
            break
        state.overflowed.add(name)
        costs = [OVERFLOW]
    state.learned = learner.saved()
    if choice is not None:
        _try(state, name, out)
    else:
        _settle(state, name if state.steps_s.get(name) and state.fits(name) else best(state), out)
