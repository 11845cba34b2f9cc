"""Which plan a task's steps follow: profile, search, trials, rollback, drift, overflow, and what the user changes."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.replay import replay
from drlnb.planning.swapping import SwapPlan, facts
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.machine import BUDGET_KEY, PIN_KEY, PLANNER_KEY, RULES, SwapMachine
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapLink
from drlnb.planning.swapping.state import NONE
from drlnb.records.base import Event
from drlnb.records.columns import swapping as words
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Stream, StreamOpened
from tests.planning.swapping.swap_task import OF, TIGHT, Task
from tests.planning.swapping.swap_words import acting, chain, wide
from tests.strategies import fewer


def kinds(answer):
    return [type(each).__name__ for each in answer]


def settled(**more):
    task = Task(**more)
    task.profiled()
    task.found()
    task.settle()
    return task


# ------------------------------------------------------------------ from cold to settled
def test_a_planner_that_is_unknown_is_refused():
    """At once."""
    with pytest.raises(ValueError, match=r"swapping planner must be one of none, .*, got 'clever'"):
        SwapMachine({"planner": "clever", "memory_budget_bytes": 1.0})


def test_nothing_is_swapped_without_a_budget():
    """Nobody is asked for a profile; one that comes changes nothing."""
    task = Task(budget=None)
    assert task.feed(words.SwapTraceChanged, shape_key="net") == ()
    planned, applied = task.profiled()
    assert (planned.plan_key, planned.plan, planned.reason) == (None, None, "a profile was taken; there is no budget")
    assert (applied.plan_key, task.state.phase) == (NONE, "settled")


def test_a_profile_is_asked_for_once():
    """When a step saves what nobody knows."""
    task = Task()
    assert kinds(task.feed(words.SwapTraceChanged, shape_key="net")) == ["TakeSwapProfile"]
    assert task.feed(words.SwapTraceChanged, shape_key="net") == ()
    assert task.state.phase == "profiling"


def test_what_fits_is_left_alone():
    """Settled at once, without trials; what it takes is not watched, since nothing could be better."""
    task = Task(budget=1000.0)
    planned, applied, told = task.profiled()
    assert planned == words.SwapPlanned(
        planner="auto", plan_key=None, reason="a profile was taken; all fits", predicted_s=18.0, predicted_bytes=60
    )
    assert told.text == "swapping: a step needs 60 B, less than its budget; it is left alone"
    assert kinds(task.profiled()) == ["SwapPlanned", "ApplySwapPlan"], "the user is told once"
    assert applied.plan["actions"] == (KEEP,) * 6
    assert [task.step(100.0) for _ in range(20)] == [()] * 20


def test_a_plan_runs_while_others_are_searched_for():
    """One that fits, found by a rule; the search gets everything that it needs."""
    task = Task()
    planned, applied, search = task.profiled()
    assert planned.reason == "a profile was taken; found at once"
    assert 0 < planned.predicted_bytes <= TIGHT
    assert applied == words.ApplySwapPlan(plan_key=planned.plan_key, plan=planned.plan)
    assert search == words.SearchSwapPlan(
        planner="auto", profile=facts(OF), n_samples=1, memory_budget_bytes=45, seed=0, pins={}
    )
    assert task.state.phase == "quick"
    assert task.step() == ()


def test_the_best_measured_plan_stays():
    """Each candidate has one step that does not count and three that do; the one measured fastest goes on."""
    task = Task()
    task.profiled()
    answer = task.found()
    assert kinds(answer) == ["SwapPlanned", "ApplySwapPlan", "SwapTrialStarted"]
    first = answer[-1]
    assert (first.plan_key, first.n_steps) == (task.state.running, 3)
    waiting = list(task.state.candidates)
    assert waiting
    assert [task.step(50.0), task.step(3.0), task.step(9.0)] == [(), (), ()]
    answer = task.step(4.0)
    assert kinds(answer) == ["SwapPlanned", "ApplySwapPlan", "SwapTrialStarted"]
    assert task.state.steps_s[first.plan_key] == [3.0, 9.0, 4.0]
    answer = task.settle(**dict.fromkeys(waiting, 5.0))
    assert kinds(answer) == ["SwapPlanRolledBack", "SwapPlanned", "ApplySwapPlan", "SwapPlanKept"]
    assert answer[0].reason == "5 s, not 4 s"
    assert answer[-1] == words.SwapPlanKept(plan_key=first.plan_key, step_s=4.0, n_tried=1 + len(waiting))
    assert (task.state.running, task.state.phase) == (first.plan_key, "settled")


def test_a_later_candidate_that_is_faster_is_kept():
    """Without a step back."""
    task = Task()
    task.profiled()
    task.found()
    *_, last = task.state.candidates
    first = task.state.running
    answer = task.settle(**{last: 1.0, first: 2.0} | dict.fromkeys(task.state.candidates[:-1], 3.0))
    assert kinds(answer) == ["SwapPlanKept"]
    assert task.state.running == last


def test_a_chosen_planner_is_followed():
    """Its plan alone is tried, even if the one that was found at once is faster, or all fits."""
    task = Task(planner="all", budget=60.0)
    planned, _, _ = task.profiled()
    assert planned.plan_key is None
    task.found()
    task.settle()
    assert set(task.state.plans[task.state.running].actions) == {SWAP}


# ------------------------------------------------------------------ what is stale
def test_an_answer_to_an_older_question_changes_nothing():
    """Of another profile, of another budget, or when nobody waits."""
    task = Task()
    task.profiled()
    assert task.found(profile_key="old") == ()
    assert task.found(memory_budget_bytes=44) == ()
    assert task.state.phase == "quick"
    task.found()
    task.settle()
    assert task.found() == ()


def test_plans_that_cannot_be_carried_out_are_not_tried():
    """Of other rows, or too large."""
    task = Task()
    task.profiled()
    quick = task.state.running
    task.found(SwapPlan.keeping(chain()), SwapPlan.keeping(OF))
    assert (task.state.running, task.state.candidates) == (quick, [])


def test_steps_of_another_plan_are_not_counted():
    """It was changed while they were made."""
    task = Task()
    task.profiled()
    task.found()
    before = task.machine.snapshot()
    assert task.step(name=NONE, step_s=1.0) == ()
    assert task.feed(words.SwapStepMeasured, plan_key="gone", step_s=1.0, peak_bytes=1) == ()
    assert task.feed(words.SwapStepOverflowed, plan_key="gone") == ()
    assert task.machine.snapshot() == before | {"t": task.t}


# ------------------------------------------------------------------ what does not fit
def test_where_nothing_fits_the_smallest_peak_runs():
    """The user is told once, and training goes on."""
    task = Task(budget=5.0)
    planned, _, _ = task.profiled()
    assert planned.reason == "a profile was taken; none fits, this one has the least peak"
    task.found()
    order = [task.state.running, *task.state.candidates]
    expected = [task.state.predicted(name).peak_bytes for name in order]
    assert expected == sorted(task.state.predicted(name).peak_bytes for name in task.state.plans)[:3]
    answers = [task.step() for _ in order]
    assert [kinds(each)[-1] for each in answers] == ["SwapTrialStarted", "SwapTrialStarted", "ApplySwapPlan"]
    assert (task.state.running, task.state.phase) == (order[0], "settled")
    (told,) = task.step()
    way = "give it as much, or make steps of fewer samples"
    assert told.reason == f"the budget of 5 B is not kept: the least that was found takes {expected[0]:.0f} B; {way}"
    assert [task.step() for _ in range(3)] == [()] * 3
    assert [task.feed(words.SwapStepOverflowed, plan_key=order[0]) for _ in range(3)] == [()] * 3
    assert task.state.running == order[0]


def test_where_nothing_is_expected_to_fit_what_is_measured_decides():
    """Predictions were too high for one plan, which fits, and it stays; nobody is told of a budget that is kept."""
    task = Task(budget=5.0)
    task.profiled()
    task.found()
    _, fitting, _ = tried = [task.state.running, *task.state.candidates]
    while task.state.phase == "trialling":
        task.step(peak_bytes=4 if task.state.running == fitting else 40)
    assert task.state.running == fitting
    assert [name for name in tried if name in task.state.overflowed] == [tried[0], tried[2]]
    assert [task.step(peak_bytes=4) for _ in range(9)] == [()] * 9
    assert not any(isinstance(each, words.SwapUnavailable) for each in task.records)


def test_what_moves_nothing_is_not_tried_where_nothing_fits():
    """It would take 60 B for sure; a plan of the least peak, 30 B, may take less than is expected."""
    task = Task(budget=5.0, planner="all")
    task.profiled()
    task.found()
    tried = {task.state.running, *task.state.candidates}
    assert {task.state.predicted(name).peak_bytes for name in tried} == {30.0}
    assert NONE not in tried


@fewer(10)
@given(st.lists(st.integers(6, 60), min_size=3, max_size=3))
def test_where_nothing_fits_the_smallest_measured_peak_stays(peaks):
    """Whatever was expected of it: of the plans that were tried the one that took least goes on."""
    task = Task(budget=5.0)
    task.profiled()
    task.found()
    took = dict(zip([task.state.running, *task.state.candidates], peaks, strict=True))
    while task.state.phase == "trialling":
        task.step(peak_bytes=took[task.state.running])
    task.step(peak_bytes=took[task.state.running])
    assert took[task.state.running] == min(peaks)
    assert sum(isinstance(each, words.SwapUnavailable) for each in task.records) == 1


def test_a_trial_that_does_not_fit_is_over():
    """It is never run again; the next one begins."""
    task = Task()
    task.profiled()
    task.found()
    bad, following = task.state.running, task.state.candidates[0]
    answer = task.feed(words.SwapStepOverflowed, plan_key=bad)
    assert kinds(answer) == ["SwapPlanRolledBack", "SwapPlanned", "ApplySwapPlan", "SwapTrialStarted"]
    assert (answer[0].plan_key, answer[0].reason) == (bad, "it did not fit")
    assert task.state.running == following
    task.settle()
    assert task.state.running != bad


def test_a_candidate_that_overflowed_late_is_not_tried():
    """Its step was still on the way when another plan ran."""
    task = Task()
    task.profiled()
    task.found()
    late = task.state.candidates[0]
    assert task.feed(words.SwapStepOverflowed, plan_key=late) == ()
    assert late not in task.state.candidates


def test_a_peak_above_the_budget_is_an_overflow():
    """Where memory has no hard limit; the profile is corrected, so that nothing like it is expected to fit."""
    task = settled()
    kept = task.state.running
    answer = task.step(peak_bytes=60)
    assert kinds(answer) == ["SwapPlanRolledBack", "SwapPlanned", "ApplySwapPlan"]
    assert answer[0].reason == "its peak was above the budget"
    assert kept != task.state.running
    assert task.state.profile.slack_frac > 0.3


def test_a_peak_beyond_the_prediction_corrects_the_profile():
    """By its ratio; small differences are noise."""
    task = Task(budget=1000.0)
    task.profiled()
    task.step(peak_bytes=62)
    assert task.state.profile.slack_frac == 0.0
    task.step(peak_bytes=90)
    assert task.state.profile.slack_frac == pytest.approx(0.5)
    assert task.state.predicted(NONE).peak_bytes == pytest.approx(90.0)


@pytest.mark.parametrize("how", ["overflow", "peak"])
def test_what_was_expected_to_fit_and_does_not_is_planned_for(how):
    """The search begins then."""
    task = Task(budget=61.0)
    task.profiled()
    overflow = how == "overflow"
    answer = task.feed(words.SwapStepOverflowed, plan_key=NONE) if overflow else task.step(peak_bytes=90)
    assert kinds(answer) == ["SwapPlanned", "ApplySwapPlan", "SearchSwapPlan"]
    assert task.state.running != NONE
    task.found()
    task.settle()
    assert task.state.running != NONE


# ------------------------------------------------------------------ drift
def test_a_drift_has_the_link_measured_and_plans_made_anew():
    """The median of eight steps, more than a tenth slower."""
    task = settled()
    kept_s = task.state.settled_s
    assert [task.step(1.09 * kept_s) for _ in range(12)] == [()] * 12
    answers = [task.step(1.2 * kept_s) for _ in range(4)]
    assert list(map(kinds, answers)) == [[], [], [], ["MeasureSwapLink"]], "half of the last eight"
    assert task.state.phase == "drifting"
    assert task.step(9.0) == ()
    slow = SwapLink.of(0.5)
    answer = task.feed(words.SwapLinkMeasured, link=facts(slow))
    assert kinds(answer) == ["SwapPlanned", "ApplySwapPlan", "SearchSwapPlan"]
    assert task.state.profile.link == slow
    assert answer[0].reason.startswith("the link was measured")
    task.of = replace(OF, link=slow)
    task.found()
    task.settle()
    assert task.state.phase == "settled"


def test_a_link_without_a_profile_says_nothing():
    """It is measured with the profile."""
    assert Task().feed(words.SwapLinkMeasured, link=facts(SwapLink.of(1.0))) == ()


def test_of_several_members_the_largest_part_is_planned_for():
    """Whoever reports last: each of them has recorded its own part of the same minibatches."""
    for sizes in ((1, 3, 2), (3, 1), (1, 3)):
        task = Task()
        for task.n_samples in sizes:
            task.profiled()
        assert task.state.n_samples == 3
        assert task.state.order.n_samples == 3
        task.found()
        assert task.state.phase in {"trialling", "settled"}
        task.feed(words.SwapTraceChanged, shape_key="")
        assert task.state.order == words.SwapOrder("all", int(TIGHT), "profile")
        task.n_samples = 2
        task.profiled()
        assert task.state.n_samples == 2, "it was asked for anew"


def test_another_trace_is_profiled_while_the_plan_goes_on():
    """Trials end."""
    task = Task()
    task.profiled()
    task.found()
    running = task.state.running
    assert kinds(task.feed(words.SwapTraceChanged, shape_key="other")) == ["TakeSwapProfile"]
    assert (task.state.running, task.state.candidates, task.state.phase) == (running, [], "profiling")
    task.of = wide(5)
    task.profiled()
    assert len(task.state.plans[task.state.running].actions) == 5


# ------------------------------------------------------------------ what the user changes
def changed(task, key, value):
    return task.feed(SettingChanged, key=key, value=value, task="a")


def test_a_budget_that_comes_later_begins_it_all():
    """And one that goes ends it."""
    task = Task(budget=None)
    assert kinds(changed(task, BUDGET_KEY, TIGHT)) == ["TakeSwapProfile"]
    assert changed(task, BUDGET_KEY, TIGHT - 1) == ()
    task.profiled()
    task.found()
    task.settle()
    assert task.state.running != NONE
    planned, _ = changed(task, BUDGET_KEY, None)
    assert (planned.plan_key, task.state.phase) == (None, "settled")


def test_a_smaller_budget_is_planned_for():
    """From the next step on; what was measured under the old one is forgotten."""
    task = settled()
    answer = changed(task, BUDGET_KEY, 35.0)
    assert kinds(answer) == ["SwapPlanned", "ApplySwapPlan", "SearchSwapPlan"]
    assert answer[0].predicted_bytes <= 35
    assert task.state.steps_s == {}


def test_another_planner_is_followed():
    """Its name was checked before."""
    task = settled()
    assert changed(task, PLANNER_KEY, "all")[-1].planner == "all"
    task.found()
    task.settle()
    assert set(task.state.plans[task.state.running].actions) == {SWAP}


def test_pins_are_obeyed_by_every_plan():
    """As far as the rows can: others bind nobody."""
    task = settled()
    changed(task, PIN_KEY, {"l1#0": KEEP, "l0#0": SWAP, "l3#0": "squeeze", "gone#0": SWAP})
    task.found()
    task.settle()
    for plan in task.state.plans.values():
        assert (plan.action_of["l0", 0], plan.action_of["l1", 0]) == (SWAP, KEEP)
    assert task.state.pins["gone#0"] == SWAP, "it may come back with another profile"


def test_a_row_that_is_pinned_to_be_derived_needs_its_source():
    """It is kept or swapped then; where the user wants something else of the source, that wish comes first."""
    task = settled()
    changed(task, PIN_KEY, {"l1#0": "derive"})
    task.found()
    task.settle()
    for plan in task.state.plans.values():
        assert plan.action_of["l1", 0] == "derive"
        assert plan.action_of["l0", 0] in {KEEP, SWAP}
    rows = (replace(OF.rows[0], squeeze_kind="mask", squeeze_left_frac=0.5), *OF.rows[1:])
    task.of = replace(OF, rows=rows)
    changed(task, PIN_KEY, {"l1#0": "derive", "l0#0": "squeeze"})
    task.profiled()
    task.found()
    for plan in task.state.plans.values():
        assert plan.action_of["l0", 0] == "squeeze"
        assert plan.action_of["l1", 0] != "derive"


def test_other_settings_are_not_ours():
    """The task's other machines see them, too."""
    assert changed(settled(), "rl.learning_rate", 0.1) == ()


# ------------------------------------------------------------------ laws
def test_laws_can_be_broken():
    """By what no rule does."""
    task = settled()
    state = task.state
    fast = next(name for name in state.steps_s if name != state.running)
    state.steps_s[fast] = [0.001]
    with pytest.raises(AssertionError, match="no plan that was tried is faster than the one that is kept"):
        task.machine.check()
    state.steps_s.pop(fast)
    state.candidates = ["gone"]
    with pytest.raises(AssertionError, match="during trials alone; what runs and what waits is known"):
        task.machine.check()
    state.candidates, state.running = [], NONE
    with pytest.raises(AssertionError, match="the running plan fits, or none is smaller, or it is tried out"):
        task.machine.check()
    state.running = fast
    state.plans[fast] = acting(OF, l1="derive", l0="squeeze")
    with pytest.raises(AssertionError, match="every plan can be carried out and obeys the pins"):
        task.machine.check()


BUDGETS = st.sampled_from([None, 5.0, 30.0, TIGHT, 61.0, 1000.0])
EVENTS = st.one_of(
    st.tuples(st.just("profile"), st.sampled_from([OF, wide(3), chain(2)])),
    st.tuples(st.just("found"), st.booleans()),
    st.tuples(st.just("step"), st.tuples(st.floats(0.1, 50.0), st.floats(0.5, 1.5))),
    st.tuples(st.just("overflow"), st.booleans()),
    st.tuples(st.just("trace"), st.none()),
    st.tuples(st.just("link"), st.floats(0.1, 100.0)),
    st.tuples(st.just("budget"), BUDGETS),
    st.tuples(st.just("pin"), st.sampled_from([{}, {"l1#0": KEEP}, {"l0#0": SWAP, "l1#0": "squeeze"}])),
    st.tuples(st.just("planner"), st.sampled_from(["auto", "all", "none", "greedy", "qtable:n_trials=4"])),
)


def act(task, what, value):
    """Feed one event of any kind."""
    state = task.state
    if what == "profile":
        task.of = value
        task.profiled()
    elif what == "found" and any(isinstance(each, words.SearchSwapPlan) for each in task.records):
        task.found(*([SwapPlan.keeping(task.of)] if value else []))
    elif what == "step" and state.profile is not None:
        said = predict(state.profile, state.plans[state.running], state.n_samples, state.memory_budget_bytes)
        task.step(value[0], said.peak_bytes * value[1])
    elif what == "overflow":
        task.feed(words.SwapStepOverflowed, plan_key=state.running if value else sorted(state.plans)[0])
    elif what == "trace":
        task.feed(words.SwapTraceChanged, shape_key="net")
    elif what == "link":
        task.feed(words.SwapLinkMeasured, link=facts(SwapLink.of(value)))
    elif what in {"budget", "pin", "planner"}:
        changed(task, {"budget": BUDGET_KEY, "pin": PIN_KEY, "planner": PLANNER_KEY}[what], value)


@fewer(6)
@given(BUDGETS, st.lists(EVENTS, max_size=25))
def test_laws_hold_whatever_comes(budget, events):
    """In any order; snapshots give the same state, and the journal's replay the same decisions."""
    task = Task(budget=budget)
    for what, value in events:
        act(task, what, value)
        assert task.state.phase in {"cold", "profiling", "quick", "trialling", "settled", "drifting"}
    copy = SwapMachine(task.config)
    copy.restore(json.loads(json.dumps(task.machine.snapshot())))
    assert copy.snapshot() == task.machine.snapshot()
    copy.check()
    header = StreamOpened(stream="s", machine="swapping", config=task.config, origin="simulated", version="0")
    stream = Stream(header=header, records=tuple(task.records), torn=False, source="s")
    assert replay(stream).difference is None


def test_every_rule_says_what_it_does():
    """Keys are classes of events."""
    for kind, rule in RULES.items():
        assert issubclass(kind, Event)
        assert rule.__doc__
