"""Planners beside each other: numbers by hand, and those of the design's tables."""

import numpy as np
import pytest

from drlnb.fleet.whatif.swapping import (
    NETS,
    PRESETS,
    Case,
    compare,
    drifting,
    explain,
    extremes,
    front,
    in_force,
    learnt,
    net_case,
    pins_of,
    sweep,
    task_case,
)
from drlnb.planning.replay import replay
from drlnb.planning.swapping.profile import SwapLink
from drlnb.records.columns import swapping as words
from drlnb.records.errors import ConfigError
from drlnb.views.folds.fold import fold_of
from drlnb.views.folds.swapping import Learnt
from drlnb.views.swapping import compared, measured
from tests.planning.swapping.swap_words import chain, wide
from tests.views.swapping.steps import SWAPPED, belt, profiled
from tests.views.swapping.steps import planned as decided
from tests.views.swapping.test_measured import points

#: Three layers of 10 bytes, a copy takes 1 s: all kept 30 bytes and 9 s, all swapped 20 bytes and 12 s.
TIGHT = Case("chain", chain(), 1, 25, "hybrid")
GIB = 2**30


def row_of(rows, planner):
    return next(each for each in rows if each["planner"] == planner)


def test_planners_are_compared_on_one_step():
    """By hand: to swap everything takes two seconds for the last input; to keep everything does not fit."""
    rows = compare(TIGHT)
    none, every = row_of(rows, "none"), row_of(rows, "all")
    assert (none["time"], none["fits"], none["slower"]) == (9.0, "no", 1.0)
    assert (every["fits"], every["counts"], every["budget"]) == ("yes", "swap 3", 25 / 2**20)
    assert every["pins"] == {"l0#0": "swap", "l1#0": "swap", "l2#0": "swap"}
    assert row_of(rows, "hybrid")["time"] == min(each["time"] for each in rows if each["fits"] == "yes")


def test_a_plan_can_be_pinned_if_it_fits_and_has_no_blocks():
    """Its button is off otherwise, and says why."""
    rows = compare(Case("wide", wide(6), 1, 45, "hybrid"))
    assert {bool(each["state"]) for each in rows} == {"block" in each["counts"] for each in rows}
    view = compared.choices(rows, live=True)
    can = view.columns["rows"]["can"].tolist()
    assert can == [each["fits"] == "yes" and "block" not in each["counts"] for each in rows]
    assert view.facts["reasons"]["choose"][""] == "it does not fit"
    assert [action["name"] for action in view.facts["actions"]] == ["choose"]
    assert compared.choices(rows).facts["actions"] == []


def test_the_fastest_that_fits_is_named_and_every_plan_is_a_dot():
    """The budget is an upright line between the fastest and the slowest."""
    rows = compare(TIGHT)
    view = compared.pareto(rows)
    for each in rows:
        assert points(view, each["planner"]) == [pytest.approx((each["peak"], 1e3 * each["time"]))]
    assert [x for x, _ in points(view, "budget")] == [25 / 2**20] * 2
    assert view.sentence == compared.choices(rows).sentence
    fastest = min((each for each in rows if each["fits"] == "yes"), key=lambda each: each["time"])
    assert view.sentence.startswith(f"{fastest['planner']} is fastest of ")
    assert compared.choices(compare(TIGHT._replace(memory_budget_bytes=5))).sentence == "no plan fits the budget"


@pytest.mark.slow  # nine planners on a hundred rows
def test_resnet_at_two_fifths_more_is_as_fast_as_the_design_says():
    """2080 Ti, 11 GiB: all .32, Capuchin .99 with derivation, hybrid .99 (docs/swapping.md)."""
    case = net_case("resnet50_32", 1.4, 11 * GIB, "2080ti")
    assert case.n_samples == int(1.4 * 418)
    rows = compare(case._replace(planner="hybrid:actions=swap"))
    slower = {each["planner"]: each["slower"] for each in rows}
    assert 1 / slower["all"] == pytest.approx(0.32, abs=0.01)
    assert 1 / slower["hybrid:actions=swap"] == pytest.approx(0.91, abs=0.01)
    assert 1 / slower["hybrid"] == pytest.approx(0.99, abs=0.01)


@pytest.mark.slow  # four planners at five batches
def test_a_sweep_falls_as_the_design_says():
    """ResNet-50@32, throughput relative to the largest batch without a plan, at x1, x1.4, x1.7, x2, x3."""
    view = compared.sweep(sweep(net_case("resnet50_32", 1.4, 11 * GIB, "2080ti")))
    assert [y for _, y in points(view, "hybrid:actions=swap")] == pytest.approx([1, 0.91, 0.67, 0.57, 0.44], abs=0.02)


def test_a_sweep_of_a_chain_by_hand():
    """Thirty bytes per sample, twenty with everything swapped: 90 bytes hold three samples, or four."""
    of = sweep(Case("chain", chain(), 1, 90, "none"))
    view = compared.sweep(of)
    assert [x for x, _ in points(view, "all")] == [1.0, 1.4, 1.7, 2.0, 3.0]
    fits = {name: np.isfinite(y).tolist() for name, (_, y) in of.items()}
    assert fits["none"] == [True, False, False, False, False]
    assert fits["all"] == [True, True, False, False, False], "x1.4 are four samples, x1.7 five: a hundred bytes"
    assert view.sentence.startswith("largest multiple that fits: all x1.4, ")


def test_a_front_of_a_chain_by_hand():
    """Two samples of 30 bytes each, 20 with all swapped: from 40 bytes on that fits, and keeping all at 60 alone."""
    case = Case("chain", chain(), 2, None, "all")
    assert extremes(case) == (30, 60)
    of = front(case)
    view = compared.front(of, "all", 45 / 2**20)
    for budgets, _ in of.values():
        assert (budgets[0], budgets[-1], len(budgets)) == (30, 60, 12)
    fits = {name: np.isfinite(seconds) for name, (_, seconds) in of.items()}
    budgets = of["all"][0]
    assert fits["none"].tolist() == [False] * 11 + [True]
    assert fits["all"].tolist() == (budgets >= 40).tolist()
    kept = of["none"][1][-1]
    for name, (_, seconds) in of.items():
        assert np.nanmin(seconds, initial=kept) >= kept - 1e-9, f"{name}: nothing is faster than keeping all"
    marks = {mark["label"]: mark["t"] * 2**20 for mark in view.facts["marks"]}
    assert marks == pytest.approx({"one sample": 30, "budget": 45, "keeping all": 60})
    assert view.sentence.startswith("all: ")
    assert "; the least that it fits is 41 B, " in view.sentence, view.sentence
    nothing = {"all": (budgets, np.full(12, np.nan))}
    assert compared.front(nothing, "all", 1.0).sentence == "all fits no budget below keeping all"


def test_the_seeds_learner_stands_beside_the_optimum():
    """Two layer types, four sets: every cost is one of four, and the least so far never rises."""
    case = Case("wide", wide(6, link=SwapLink.of(2.0)), 1, 45, "qtable")
    of, said, optimum = learnt(case._replace(planner="qtable:n_trials=50"))
    costs = np.array(of.trials)
    assert len(costs) == 50
    assert len(set(costs.tolist())) <= 8
    assert optimum <= costs.min()
    view = compared.learnt(of, said, optimum)
    least = [y for _, y in points(view, "least so far")]
    assert least == sorted(least, reverse=True)
    assert least[-1] == pytest.approx(costs.min())
    assert {y for _, y in points(view, "optimum")} == {optimum}
    assert view.origin == "simulated"
    first = int(np.flatnonzero(costs <= optimum * (1 + 1e-9))[0]) + 1
    assert f"ran first in trial {first}" in view.sentence
    assert "never ran, the least is 2.000" in compared.learnt(Learnt(trials=[3.0, 2.0]), "x", 1.0).sentence
    assert compared.learnt(Learnt(trials=[3.0, 2.0], n_explored=1), "x").sentence == (
        "x: in 2 trials, 50 % of them chosen by chance, the least costs 2.000"
    )


#: Trials of a table of two layer types: nothing is changed yet, then conv twice and relu once.
TRIALS = (
    ("00", "", 0.0, 2.0), ("10", "conv", 0.5, 1.0), ("00", "conv", 1.5, 4.0), ("01", "relu", -2.0, 3.0),
)  # fmt: skip


def learnt_of(trials=TRIALS):
    of = Learnt()
    for i, (row, unit, value, cost) in enumerate(trials, start=1):
        of.add(words.SwapLearned(
            trial=i, plan_key="p", cost=cost, explored=i == 2, units=("conv", "relu"), row=row, unit=unit, value=value
        ))  # fmt: skip
    return of


def test_the_table_has_a_row_for_each_plan_and_a_column_for_each_type():
    """The cheapest plan is first; what was never changed has no number; the newest value has a frame."""
    view = compared.values(learnt_of(), "a, qtable", "measured")
    assert [column.title for column in view.table] == ["plan", "cost", "trials", "conv", "relu"]
    assert view.rows() == [
        ["conv", 1.0, 1.0, 0.5, None], ["keep all", 3.0, 2.0, 1.5, None], ["relu", 3.0, 1.0, None, -2.0],
    ]  # fmt: skip
    assert view.facts["heat"] == {"most": 2.0, "row": "relu", "key": "q1"}
    assert [column["kind"] for column in view.facts["cols"]] == ["series", "number", "number", "heat", "heat"]
    assert view.sentence == "a, qtable: 3 values of 3 rows; the newest is -2.000, of relu by relu"
    assert (view.name, view.module, view.origin) == ("swapping.values", "table", "measured")


def test_a_table_without_a_value_says_so():
    """After the first trial, in which nothing was changed."""
    view = compared.values(learnt_of(TRIALS[:1]), "x")
    assert view.sentence == "x: 0 values of 1 row"
    assert view.facts["heat"]["row"] == ""


def test_a_learner_needs_a_budget_and_few_types():
    """Otherwise there is no overflow, or no optimum to stand beside."""
    with pytest.raises(ConfigError, match="there must be a budget and at most 12 layer types, got 1"):
        learnt(TIGHT._replace(memory_budget_bytes=None))
    with pytest.raises(ConfigError, match="there must be a budget that holds one sample of chain, got None"):
        sweep(TIGHT._replace(memory_budget_bytes=None))
    with pytest.raises(ConfigError, match="there must be a budget"):
        drifting(TIGHT._replace(memory_budget_bytes=None))


def test_a_slower_link_leads_to_another_plan_in_the_pretended_run():
    """From the middle on copies take forty times as long: measured, planned anew; the journal replays."""
    case = Case("chain", chain(6, link=SwapLink.of(20.0)), 1, 45, "auto")
    journal = drifting(case, slower=40.0, n_steps=120)
    stream = journal.streams["swapping"]
    assert len(stream.of(words.SwapLinkMeasured)) == 1
    assert replay(stream).difference is None
    view = measured.steps(journal, "time")
    assert view.origin == "simulated"
    assert "link measured" in [mark["label"] for mark in view.facts["marks"]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"planner": "clever"}, "swapping planner must be one of"),
        ({"planner": "hybrid:actions=burn"}, "actions must be some of"),
    ],
)
def test_what_cannot_be_planned_is_one_line(changes, said):
    """It names the value and the way out."""
    with pytest.raises(ConfigError, match=said):
        TIGHT._replace(**changes).plan()


def test_a_budget_below_one_sample_is_refused():
    """With the network and the size."""
    with pytest.raises(ConfigError, match="the budget must hold resnet50_32 and one sample, got 700 MiB"):
        net_case("resnet50_32", 1.0, 700 * 2**20, "2080ti")
    assert "resnet50_32" in NETS
    assert "2080ti" in PRESETS


def test_pins_are_obeyed_and_those_that_no_row_can_are_left_out():
    """A row of another network, or an action that is not exact, is no reason to fail."""
    case = TIGHT._replace(memory_budget_bytes=100, pins={"l1#0": "swap", "other#0": "swap", "l2#0": "squeeze"})
    assert [row["action"] for row in explain(case, case.plan()).rows] == ["keep", "swap", "keep"]
    assert pins_of(explain(case, case.plan())) == {"l0#0": "keep", "l1#0": "swap", "l2#0": "keep"}


def test_the_step_of_a_task_is_what_its_journal_says():
    """Profile, samples, budget and planner; the plan in force is the one that was recorded, none, or a new one."""
    of = measured.newest(fold_of(belt(profiled(), decided(), budget=25)))[1]
    case = task_case("a", of)
    assert (case.of, case.n_samples, case.memory_budget_bytes, case.planner) == ("a", 1, 25, "hybrid")
    assert case.profile == chain()
    assert in_force(case, of) == SWAPPED
    idle = measured.newest(fold_of(belt(profiled(), decided(None), budget=35)))[1]
    assert in_force(task_case("a", idle), idle).key is None
    unknown = measured.newest(fold_of(belt(profiled(), decided("all"), budget=25)))[1]
    assert in_force(case, unknown) == case.plan()
    with pytest.raises(ConfigError, match="no step has been profiled yet"):
        task_case("a", measured.newest(fold_of(belt(budget=25)))[1])
    assert task_case("a", measured.newest(fold_of(belt(profiled())))[1]).memory_budget_bytes is None
