"""Steps of a task beside what was predicted: counted by hand from a few records."""

import math

import pytest

from drlnb.records.columns import swapping as words
from drlnb.records.journal import Journal
from drlnb.sim.swapping.executor import simulate_steps
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.swapping import measured
from tests.planning.swapping.swap_words import wide
from tests.views.swapping.steps import SWAPPED, belt, changed, planned, profiled, step, trial


#: Profile, a plan that is tried out in two steps and kept, and a smaller budget.
def learned(number, row="10", unit="conv", units=("conv", "relu")):
    return words.SwapLearned(
        trial=number, plan_key="p", cost=1.0, units=units, row=row, unit=unit, value=float(number)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("then", "n_trials"),
    [
        (changed(5.0, "planner", "qtable:epsilon=0.9"), 2),
        (changed(5.0, "planner", "qtable"), 0),  # named once more: forgotten
        (changed(5.0, "planner", "auto"), 0),
        (changed(5.0, "memory_budget_bytes", 99), 2),
        (learned(1, units=("pool",), row="1", unit="pool"), 1),
    ],
)
def test_what_was_learned_is_forgotten_as_the_machine_forgets_it(then, n_trials):
    """Parameters and budgets leave the table, another planner or other layer types do not."""
    first = changed(1.0, "planner", "qtable")
    fold = fold_of(belt(first, learned(1), learned(2), then, budget=64 * 2**20))
    assert len(fold.swappings["a"].learnt.trials) == n_trials


STORY = (
    words.SwapPlanned(round=1, planner="hybrid", plan_key="all"),
    step(5.0, 12, 1.0, plan="all"),
    profiled(1.0),
    planned(reason="a trial"),
    trial(),
    words.SwapPlanned(round=2, planner="hybrid", plan_key=SWAPPED.key),
    step(10.0, 28, 2.0, swapped_mib=10, stall_s=1.0),
    step(11.0, 29, 3.0, swapped_mib=10, stall_s=1.5),
    words.SwapPlanRolledBack(plan_key=SWAPPED.key, to_key="none", reason="slower"),
    planned(reason="the best of the trials"),
    words.SwapPlanKept(plan_key=SWAPPED.key, step_s=9.5, n_tried=2),
    words.SwapPlanned(round=3, planner="hybrid", plan_key=SWAPPED.key),
    step(18.0, 27, 4.0, swapped_mib=10, stall_s=2.0),
    changed(4.5, "memory_budget_bytes", "16MiB"),
)


@pytest.fixture
def journal():
    return belt(*STORY, budget="32MiB")


def points(view, label):
    at = [line["label"] for line in view.facts["lines"]].index(label)
    drawn = view.columns["points"]
    mine = drawn["line"] == at
    return list(zip(drawn["x"][mine].tolist(), drawn["y"][mine].tolist(), strict=True))


def test_peaks_stand_below_the_budget_of_their_time(journal):
    """MiB over steps: measured, in a trial apart; what was expected of the plan that ran; the budget of each step."""
    view = measured.steps(journal, "peak")
    assert points(view, "budget") == [(1, 32), (2, 32), (3, 32), (4, 32)]
    assert points(view, "measured") == [(1, 12), (4, 27)]
    assert points(view, "measured, in a trial") == [(2, 28), (3, 29)]
    assert points(view, "predicted") == [(2, 30), (3, 30), (4, 30)]
    assert view.origin == "measured"


def test_seconds_have_no_budget(journal):
    """Milliseconds over steps; the first plan, without a profile, has no prediction."""
    view = measured.steps(journal, "time")
    assert "budget" not in [line["label"] for line in view.facts["lines"]]
    assert points(view, "measured") == [(1, 5000), (4, 18000)]
    assert points(view, "predicted") == [(2, 9000), (3, 9000), (4, 9000)]


def test_numbers_are_of_the_plan_that_runs(journal):
    """Since it was kept it has made one step: twice the predicted seconds; the budget is the newest one."""
    view = measured.steps(journal)
    numbers = {key: value for key, (_, value, _, _) in view.numbers.items()}
    assert numbers == {"budget": 16, "peak": 27, "time": 18, "ratio": 2, "swapped": 10, "stall": 2}
    assert view.sentence == (
        f"a: plan {SWAPPED.key[:6]} by hybrid, measured 27.0 MiB of 16.0 MiB, 18.0 s a step, predicted 9.0 s "
        "(the best of the trials)"
    )


def test_what_was_changed_or_given_up_is_marked_between_two_steps(journal):
    """With its reason in words."""
    marks = measured.steps(journal, "time").facts["marks"]
    assert [(mark["t"], mark["label"]) for mark in marks] == [(3.5, "rolled back"), (3.5, "kept"), (4.5, "budget")]
    assert marks[0]["said"] == f"{SWAPPED.key} was given up for none: slower"
    assert marks[2]["said"] == "swapping.memory_budget_bytes: 16MiB"


def test_a_step_that_did_not_fit_has_no_measure():
    """It is counted and marked; the median leaves it out."""
    journal = belt(profiled(), planned(), words.SwapStepOverflowed(t=1.0, plan_key=SWAPPED.key), step(9.0, 8, 2.0))
    view = measured.steps(journal)
    assert points(view, "measured") == [(2, 8)]
    assert (view.value("time"), view.value("ratio")) == (9.0, 1.0)
    assert [mark["label"] for mark in view.facts["marks"]] == ["did not fit"]


def test_steps_of_the_plan_before_are_not_the_new_plans():
    """What was sent before a plan was decided still follows the former one: it is drawn, and not compared."""
    journal = belt(profiled(), planned(), step(18.0, 8, 1.0), step(99.0, 30, 2.0, plan="none"))
    view = measured.steps(journal)
    assert points(view, "measured") == [(1, 8), (2, 30)]
    assert (view.value("peak"), view.value("ratio")) == (8, 2)


def test_settings_and_notices_are_followed():
    """Planner, pins and link as they are now; why nothing is swapped stands below the picture."""
    journal = belt(
        profiled(),
        changed(1.0, "planner", "capuchin"),
        changed(1.5, "pin", {"l0#0": "keep"}),
        words.SwapLinkMeasured(t=2.0, link={"d2h": ((0, 5.0),)}),
        words.SwapUnavailable(reason="no plan is smaller"),
        changed(3.0, "memory_budget_bytes", None),
        changed(3.5, "other", 1),
        budget=2**20,
        pins={"l1#0": "swap"},
    )
    of = measured.newest(fold_of(journal))[1]
    assert (of.planner, of.pins, of.profile["link"]) == ("capuchin", {"l0#0": "keep"}, {"d2h": ((0, 5.0),)})
    assert math.isnan(of.memory_budget_bytes)
    view = measured.steps(journal)
    assert view.notes == ("no plan is smaller",)
    assert ", no step yet, predicted " in view.sentence
    labels = [mark["label"] for mark in view.facts["marks"]]
    assert labels == ["planner: capuchin", "pins", "link measured", "budget"]


def test_pins_are_those_of_the_configuration_until_others_are_set():
    """As budget and planner are."""
    of = measured.newest(fold_of(belt(profiled(), budget=2**20, pins={"l1#0": "swap"})))[1]
    assert (of.pins, of.planner, of.memory_budget_bytes) == ({"l1#0": "swap"}, "hybrid", 2**20)


def test_a_task_without_a_budget_has_nothing_to_see():
    """Rounds whose plan is none are not steps under a plan."""
    journal = belt(words.SwapPlanned(round=1, planner="auto", plan_key=None))
    name, of = measured.newest(fold_of(journal))
    assert (name, of.active) == ("", False)
    view = measured.steps(journal, "peak", "a")
    assert view.sentence == "no step is planned: there is no memory budget, or no step yet"
    assert "no step is planned" in view.svg()


@pytest.mark.parametrize("kind", ["peak", "time"])
def test_the_rows_of_a_simulated_run_are_in_the_picture(kind):
    """Every step once, at its own numbers; in pieces the fold is the same; it says simulated."""
    stream = simulate_steps(lambda n: wide(6), 1, 45.0, n_steps=20)
    journal = Journal(streams={"swapping": stream})
    steps = stream.of(words.SwapStepMeasured)
    view = measured.steps(journal, kind)
    drawn = [row for label in ("simulated", "simulated, in a trial") for row in points(view, label)]
    factor = {"peak": 1 / 2**20, "time": 1e3}[kind]
    value = {"peak": lambda each: each.peak_bytes, "time": lambda each: each.step_s}[kind]
    assert sorted(y for _, y in drawn) == pytest.approx(sorted(factor * value(each) for each in steps))
    assert view.origin == "simulated"
    fold, rows = Fold(), list(entries_of(journal))
    for i in range(0, len(rows), 7):
        fold.feed(rows[i : i + 7])
    assert measured.steps(fold, kind).digest() == view.digest()


@pytest.mark.thorough
def test_a_long_run_keeps_a_bounded_number_of_steps():
    """Of 9,000 steps at most 8,192 are held, the newest among them, all counted."""
    journal = belt(profiled(), planned(), *(step(1.0, 1, float(t)) for t in range(1, 9_001)))
    of = measured.newest(fold_of(journal))[1]
    assert of.n_steps == 9_000
    assert len(of.steps) <= 8_192
    assert of.steps.get(-1, "step") == 9_000
