"""Planners that learn in live trials: what they are told is measured, and the best measured plan stays."""

import itertools
import json
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.replay import replay
from drlnb.planning.swapping.learned import QTable
from drlnb.planning.swapping.machine import BUDGET_KEY, PLANNER_KEY, SwapMachine
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapLink, read
from drlnb.records.columns import swapping as words
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Stream, StreamOpened
from tests.planning.swapping.swap_task import Task
from tests.planning.swapping.swap_words import SECOND, profile, row, wide
from tests.strategies import fewer

#: Four rows of ten bytes, of two types; a step that keeps all takes 12 s and 40 bytes.
TWO = profile([row(f"l{i}", i - 1, i, layer_type="ab"[i % 2]) for i in range(4)], [SECOND] * 4, link=SwapLink.of(20.0))
ROOMY, TIGHT = 1000.0, 35.0


def learning(planner, budget=ROOMY, of=TWO, **more):
    """Return a task in its first trial."""
    task = Task(budget=budget, planner=planner, of=of, **more)
    task.profiled()
    task.found()
    return task


def trial(task, *seconds, peak_bytes=None):
    """Make a trial: a first step that does not count, then three; return the answer to the last one."""
    seconds = seconds * (3 // len(seconds))
    for step_s in (999.0, *seconds[:2]):
        answer = task.step(step_s, peak_bytes)
        assert answer == ()
    return task.step(seconds[2], peak_bytes)


def course(task, seconds=lambda plan: 10.0 + plan.actions.count(SWAP)):
    """Make all trials; a plan takes as long as a function says."""
    while task.state.phase == "trialling":
        trial(task, seconds(task.state.plans[task.state.running]))
    return task


def told(task, kind=words.SwapLearned):
    return [each for each in task.records if isinstance(each, kind)]


def table(task):
    return read(QTable, task.state.learned)


def replayed(task):
    header = StreamOpened(
        stream="swapping", machine="swapping", config=task.config, origin="simulated", version="0"
    )  # fmt: skip
    return replay(Stream(header=header, records=tuple(task.records), torn=False, source="s")).difference


# ------------------------------------------------------------------ what is learned
def test_four_measured_trials_by_hand():
    """Steps take 24, 12, 36 and 48 s where plain ones take 12, so costs are 2, 1, 3, 4; w = 0, nothing is explored."""
    task = learning("qtable:n_trials=4,epsilon=0,w=0")
    assert set(task.state.plans[task.state.running].actions) == {KEEP}, "the first plan is free"
    for seconds in (24.0, 12.0, 36.0):
        assert [type(each).__name__ for each in trial(task, seconds - 1.0, seconds, seconds + 5.0)] == [
            "SwapLearned", "SwapPlanned", "ApplySwapPlan", "SwapTrialStarted",
        ]  # fmt: skip
    answer = trial(task, 48.0)
    learned = told(task)
    assert [each.trial for each in learned] == [1, 2, 3, 4]
    assert [each.cost for each in learned] == pytest.approx([2.0, 1.0, 3.0, 4.0])
    # What a changed type would cost is unknown, 0, each time: Q = 0.5 (cost + 0.9 * 0).
    assert [each.value for each in learned] == pytest.approx([0.0, 0.5, 1.5, 2.0])
    assert [bool(each.unit) for each in learned] == [False, True, True, True]
    assert {each.units for each in learned} == {("a", "b")}
    for before, after in itertools.pairwise(learned):
        changed = [unit for unit, x, y in zip(("a", "b"), before.row, after.row, strict=True) if x != y]
        assert changed == [after.unit], "one type per trial"
    assert sorted(table(task).table.values()) == pytest.approx([0.5, 1.5, 2.0])
    assert [type(each).__name__ for each in answer] == ["SwapLearned", "SwapPlanned", "ApplySwapPlan", "SwapPlanKept"]
    assert answer[-1] == words.SwapPlanKept(
        plan_key=learned[1].plan_key, step_s=12.0, n_tried=len({each.plan_key for each in learned})
    )
    assert task.state.running == learned[1].plan_key
    assert replayed(task) is None


@pytest.mark.parametrize(("w", "cost"), [(0.0, 2.0), (1.0, 0.75), (0.5, 1.375)])
def test_a_cost_has_the_measured_bytes(w, cost):
    """24 s where plain takes 12, and 30 bytes of 40 beside 7 that stay anyway."""
    of = profile(TWO.rows, TWO.ticks, fixed_bytes=7.0)
    task = learning(f"qtable:w={w}", of=of)
    assert trial(task, 24.0, peak_bytes=37)[0].cost == pytest.approx(cost)


def test_the_table_is_learned_as_the_seed_says_from_what_was_measured():
    """An independent SARSA over the journal, explored changes included, comes to the same table."""
    task = course(learning("qtable:n_trials=30,epsilon=0.5,w=0.3,alpha=0.4,gamma=0.7", of=wide(5)))
    learned, known = told(task), {}
    for now, after in itertools.pairwise(learned):
        flipped = [f"{now.row[:i]}{1 - int(bit)}{now.row[i + 1 :]}" for i, bit in enumerate(now.row)]
        values = {unit: known.get((row, unit), 0.0) for row, unit in zip(flipped, now.units, strict=True)}
        assert after.explored or values[after.unit] == pytest.approx(min(values.values()))
        if now.unit:
            before = known.get((now.row, now.unit), 0.0)
            next_ = known.get((after.row, after.unit), 0.0)
            known[now.row, now.unit] = before + 0.4 * (now.cost + 0.7 * next_ - before)
            assert now.value == pytest.approx(known[now.row, now.unit])
    assert len(known) > 10
    assert 5 < sum(each.explored for each in learned) < 25


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_it_is_told_whose_choice_a_trial_was(epsilon):
    """Chance's or the table's; the first plan is nobody's."""
    changes = [each for each in told(course(learning(f"qtable:n_trials=6,epsilon={epsilon}"))) if each.unit]
    assert changes
    assert {each.explored for each in changes} == {epsilon == 1.0}


@pytest.mark.thorough
def test_two_tasks_of_one_seed_try_the_same_plans():
    """And of another one others; the records are all that a replay needs."""
    of = wide(6)
    one, two, other = (course(learning("qtable:n_trials=25", of=of, seed=seed)) for seed in (1, 1, 2))
    assert one.records == two.records
    assert [each.row for each in told(one)] != [each.row for each in told(other)]
    assert replayed(one) is None
    assert replayed(other) is None


@fewer(15)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 1.0]), st.lists(st.floats(1.0, 99.0), min_size=8, max_size=8))
def test_the_plan_that_cost_least_stays(seed, w, seconds):
    """By the median of its trials, among those that ran (M9), whatever steps take."""
    task = learning(f"qtable:n_trials=12,w={w}", seed=seed)
    course(task, lambda plan: seconds[plan.actions.count(SWAP) + (plan.actions[0] == SWAP)])
    costs = {}
    for each in told(task):
        costs.setdefault(each.plan_key, []).append(each.cost)
    least = min(map(median, costs.values()))
    assert median(costs[task.state.running]) == pytest.approx(least)
    assert task.state.settled_s == median(task.state.steps_s[task.state.running])


# ------------------------------------------------------------------ what does not fit
def test_what_is_not_expected_to_fit_costs_five_and_does_not_run():
    """Of a live task: the learner is told at once, as if it had been tried and caught."""
    task = course(learning("qtable:n_trials=20", budget=TIGHT))
    learned = told(task)
    assert len(learned) == 20
    ran = {each.plan_key for each in told(task, words.SwapTrialStarted)}
    assert {each.plan_key for each in learned if each.cost == 5.0}.isdisjoint(ran)
    assert any(each.cost == 5.0 for each in learned)
    assert all(task.state.predicted(key).peak_bytes <= TIGHT for key in ran)
    assert replayed(task) is None


@pytest.mark.parametrize("caught", [True, False])
def test_a_trial_that_does_not_fit_after_all_costs_five_and_runs_no_more(caught):
    """Whether the device ran out of memory, or the peak was above the budget."""
    task = learning("qtable:n_trials=40", budget=TIGHT)
    bad = task.state.running
    answer = task.feed(words.SwapStepOverflowed, plan_key=bad) if caught else task.step(12.0, TIGHT + 1)
    assert (answer[0].plan_key, answer[0].cost) == (bad, 5.0)
    course(task)
    started = told(task, words.SwapTrialStarted)
    assert [each.plan_key for each in started].count(bad) == 1
    assert task.state.running != bad
    assert {each.cost for each in told(task) if each.plan_key == bad} == {5.0}


def test_where_nothing_fits_the_smallest_plan_goes_on():
    """No trial runs, all of them cost five, and the task is told that no plan fits."""
    task = learning("qtable:n_trials=8", budget=15.0)
    assert {each.cost for each in told(task)} == {5.0}
    assert told(task, words.SwapTrialStarted) == []
    assert task.state.phase == "settled"
    assert task.state.running == task.state.safest()


# ------------------------------------------------------------------ what is kept, and what is forgotten
def settings(task, key, value):
    """Change a setting, and answer the search that follows."""
    task.feed(SettingChanged, key=key, value=value, task=None)
    task.found()


def test_another_budget_keeps_the_table_and_begins_a_new_course():
    """What was learned of plans is a start; the best plan is one of those that are measured from now on."""
    task = course(learning("qtable:n_trials=10"))
    before = table(task)
    settings(task, BUDGET_KEY, TIGHT)
    after = table(task)
    assert after.table.items() >= {**before.table, **after.table}.items()
    assert set(before.table) <= set(after.table)
    assert (before.n_left, after.n_trials >= before.n_trials, after.n_left > 0) == (0, True, True)
    course(task)
    assert task.state.predicted(task.state.running).peak_bytes <= TIGHT
    assert replayed(task) is None


@pytest.mark.parametrize(
    ("planner", "keeps"),
    [
        ("qtable:n_trials=10,epsilon=0.9", True),
        ("qtable:n_trials=20", True),
        ("qtable:n_trials=10,w=0.9", False),  # costs of another kind
        ("qtable:n_trials=10", False),  # named once more: from the beginning
    ],
)
def test_the_table_outlives_parameters_that_leave_costs_as_they_are(planner, keeps):
    """To name the planner once more is to begin anew: what Reset does."""
    task = course(learning("qtable:n_trials=10"))
    before = table(task)
    settings(task, PLANNER_KEY, planner)
    after = table(task)
    assert (after.n_trials, after.table) == ((before.n_trials, before.table) if keeps else (0, {}))
    assert after.n_left > 0
    trial(task, 12.0)
    assert told(task)[-1].trial == (11 if keeps else 1)
    assert replayed(task) is None


@pytest.mark.parametrize("planner", ["auto", "greedy", "hybrid"])
def test_another_planner_forgets_the_table(planner):
    """And it is not there when the first one comes back."""
    task = course(learning("qtable:n_trials=10", budget=TIGHT))
    settings(task, PLANNER_KEY, planner)
    course(task)
    settings(task, PLANNER_KEY, "qtable:n_trials=10")
    assert table(task).n_trials <= 10
    assert replayed(task) is None


def test_a_profile_of_other_rows_forgets_the_table():
    """Its columns are other layer types."""
    task = course(learning("qtable:n_trials=10"))
    task.of = wide(5)
    task.profiled()
    task.found()
    assert {each.units for each in told(task)[:10]} == {("a", "b")}
    trial(task, 12.0)
    assert (told(task)[-1].units, told(task)[-1].trial) == (("Linear", "b", "a"), 1)


def test_a_drift_is_learned_from_too():
    """Steps become slower: the link is measured, and another course goes on with the table."""
    task = course(learning("qtable:n_trials=6"))
    before = table(task)
    while not any(isinstance(each, words.MeasureSwapLink) for each in task.records):
        answer = task.step(100.0)
    assert [type(each).__name__ for each in answer] == ["MeasureSwapLink"]
    task.feed(words.SwapLinkMeasured, link={"d2h": ((0, 2.0),), "h2d": ((0, 2.0),), "d2h_both": ((0, 2.0),),
                                             "h2d_both": ((0, 2.0),)})  # fmt: skip
    task.found()
    assert (table(task).table, table(task).n_left) == (before.table, 6)
    course(task)
    assert table(task).n_trials == 12


def test_another_process_goes_on_in_the_middle_of_a_course():
    """The plan on trial is made again from its first step; then all is as without the move, through JSON."""
    planner = "qtable:n_trials=12"
    task = learning(planner, budget=TIGHT)
    for _ in range(5):
        trial(task, 10.0 + len(told(task)))
    task.step(50.0)
    known = json.loads(json.dumps(task.machine.snapshot()))
    moved = Task(budget=TIGHT, planner=planner, of=TWO)
    moved.t = task.t
    applied = moved.machine.resume(known)
    assert [type(each).__name__ for each in applied] == ["ApplySwapPlan"]
    assert applied[0].plan_key == task.state.running
    assert moved.state.learned == task.state.learned
    course(moved)
    seconds = 10.0 + task.state.plans[task.state.running].actions.count(SWAP)
    for _ in range(3):  # its trial's first step was made before the move
        task.step(seconds)
    course(task)
    assert len(told(moved)) >= 3
    assert [(each.trial, each.plan_key, each.cost) for each in told(moved)] == [
        (each.trial, each.plan_key, each.cost) for each in told(task)[-len(told(moved)) :]
    ]


def test_a_course_of_another_planner_is_not_gone_on_with():
    """What is configured now counts."""
    task = learning("qtable:n_trials=12")
    trial(task, 10.0)
    moved = SwapMachine(task.config | {"planner": "hybrid"})
    assert [type(each).__name__ for each in moved.resume(task.machine.snapshot())][-1] == "SearchSwapPlan"
    assert moved.state.learned == ""
