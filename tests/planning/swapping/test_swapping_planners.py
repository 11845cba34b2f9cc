"""Which plan each planner makes: rules by hand, searches beside the plan that trying all of them finds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.swapping.rivals import RIVALS, planner_of
from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapView, facts
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.heuristics import RULES, candidates, fastest, type_choices
from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, SwapLink
from drlnb.planning.swapping.search import Choice, Search, climbed, greedy
from drlnb.records.columns.swapping import SwapPlanned
from tests.planning.swapping.swap_words import SECOND, acting, chain, having, profile, profiles, row, wide
from tests.strategies import fewer

CHEAP = tuple(name for name in SWAPPING.names if name != "qtable")


def view(of, budget, n_samples=1, **more):
    return SwapView(profile=of, n_samples=n_samples, memory_budget_bytes=budget, **more)


def planned(name, of, budget, **more):
    """Return a planner's plan and what it is expected to come to."""
    plan = SWAPPING.ask(planner_of(name), view(of, budget, **more))
    return plan, predict(of, plan, 1, budget)


def done(plan):
    return {key[0]: action for key, action in plan.action_of.items() if action != KEEP}


# ------------------------------------------------------------------ of every planner
@pytest.mark.parametrize("name", SWAPPING.names)
def test_nothing_is_swapped_without_a_profile_or_a_budget(name):
    """No budget given: no swapping."""
    assert SWAPPING.ask(SWAPPING.build(name), SwapView(round=1)).key is None
    assert planned(name, chain(), None)[0] == SwapPlan.keeping(chain())


@pytest.mark.parametrize("name", CHEAP)
def test_every_plan_can_be_carried_out(name):
    """Whatever is saved, with pins and without; the same view gives the same plan, and the registry checks it."""

    @fewer(10)
    @given(profiles(n_rows=4), st.floats(5.0, 300.0), st.data())
    def check(of, room, data):
        pinned = data.draw(st.none() | st.sampled_from(of.rows))
        pins = {} if pinned is None else {pinned.name: data.draw(st.sampled_from([KEEP, SWAP]))}
        pins = {} if name == "none" else pins
        plan, _ = planned(name, of, of.fixed_bytes + room, pins=pins)
        assert plan == planned(name, of, of.fixed_bytes + room, pins=pins)[0]
        assert plan.problem(of, pins) == ""

    check()


@pytest.mark.parametrize("name", ["all", "capuchin", "greedy", "hybrid", "auto"])
def test_where_nothing_fits_what_can_moves(name):
    """The peak is no larger than that of keeping all and of swapping all, and something moves."""

    @fewer(10)
    @given(profiles(n_rows=5), st.floats(0.0, 1.0))
    def check(of, share):
        kept = SwapPlan.keeping(of)
        budget = of.fixed_bytes + share * (predict(of, kept, 1).peak_bytes - of.fixed_bytes)
        plan, said = planned(name, of, budget)
        if not said.fits:
            swapped = having(kept, dict.fromkeys(of.number, SWAP))
            least = min(predict(of, each, 1, budget).peak_bytes for each in (kept, swapped))
            assert said.peak_bytes <= least + 1e-6
            assert set(plan.actions) != {KEEP}

    check()


def test_a_plan_that_does_not_fit_its_view_is_refused(monkeypatch):
    """Whoever made it."""
    planner = SWAPPING.build("none")
    for plan, problem in ((None, "a plan must be a SwapPlan, got None"), (SwapPlan(), "the plan is of 0 rows")):
        monkeypatch.setattr(planner, "plan", lambda view, plan=plan: plan)
        with pytest.raises(PlannerFailed, match=f"swapping planner none: {problem}"):
            SWAPPING.ask(planner, view(chain(), 10.0))


def test_a_plan_comes_back_from_the_journal():
    """From the decision's record."""
    plan = acting(chain(), l1=SWAP)
    record = SwapPlanned(round=1, planner="own", plan_key=plan.key, plan=facts(plan))
    assert SWAPPING.recorded(view(chain(), 1.0), Answer([record])) == plan
    kept = SwapPlanned(round=1, planner="own", plan_key=None)
    assert SWAPPING.recorded(view(chain(), 1.0), Answer([kept])) == SwapPlan.keeping(chain())
    assert SWAPPING.recorded(SwapView(round=1), Answer()) is None


def test_actions_are_named():
    """A planner keeps to those that it is given."""
    with pytest.raises(ValueError, match="actions must be some of keep, squeeze, derive, swap, block joined by"):
        SWAPPING.build("hybrid:actions=swap+fly")
    for action in (SWAP, DERIVE, SQUEEZE, BLOCK):
        plan, _ = planned(f"hybrid:actions={action}", wide(), 30.0)
        assert set(done(plan).values()) == {action}


# ------------------------------------------------------------------ rules
def mixed():
    """Return four rows that are read by different operations, of two types."""
    kinds = [("conv2d",), ("relu", "conv2d"), ("relu",), ("linear",)]
    types = ["a", "b", "b", "a"]
    rows = [
        row(f"l{i}", i - 1, i, consumers=names, layer_type=types[i], size=10.0 * (i + 1))
        for i, names in enumerate(kinds)
    ]
    return profile(rows, [SECOND] * 4)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("none", ""), ("all", "0123"), ("vdnn_conv", "01"), ("vdnn_all", "012")],
)
def test_rules_swap_what_their_papers_say(name, rows):
    """Whether it fits or not: everything, the inputs of convolutions, all but those of linear layers alone."""
    plan, _ = planned(name, mixed(), 50.0)
    assert done(plan) == {f"l{i}": SWAP for i in rows}


def test_what_fits_is_left_alone():
    """By every planner that looks at the budget."""
    for name in ("capuchin", "types_exhaustive", "greedy", "hybrid", "oracle", "auto"):
        assert planned(name, mixed(), 100.0)[0].key is None


def test_capuchin_swaps_what_is_not_needed_for_longest():
    """The first input first; as few as it takes; what is cheaper made again is not swapped."""
    fast = chain(5, link=SwapLink.of(40.0))
    plan, said = planned("capuchin", fast, 40.0)
    assert (done(plan), said.fits, said.step_s) == ({"l0": SWAP}, True, 15.0)
    assert done(planned("capuchin", fast, 30.0)[0]) == {"l0": SWAP, "l1": SWAP}
    slow = wide(4, link=SwapLink.of(1.0))
    assert done(planned("capuchin", slow, 35.0)[0]) == {"l1": DERIVE}


def test_the_seeds_grain_is_the_layer_type():
    """Every set of types is tried; the fastest that fits is taken."""
    search = Search(view(mixed(), 80.0))
    tried = [tuple(action == SWAP for action in choice.actions) for choice in type_choices(search)]
    assert sorted(tried) == sorted([(0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0), (1, 1, 1, 1)])
    plan, said = planned("types_exhaustive", mixed(), 80.0)
    assert done(plan) == {"l1": SWAP, "l2": SWAP}
    assert said.fits
    many = profile([row(f"l{i}", i - 1, i, layer_type=f"t{i}", size=1.0 + i) for i in range(10)], [SECOND] * 10)
    choices = list(type_choices(Search(view(many, 20.0))))
    assert len(choices) == 2**8
    assert all(choice.actions[:2] == (KEEP, KEEP) for choice in choices), "the smallest types are kept"


def test_the_oracle_tries_everything_or_says_that_it_is_too_much():
    """Blocks that overlap are not chosen together."""
    plan, said = planned("oracle", wide(4), 30.0)
    assert said.fits
    assert plan.problem(wide(4)) == ""
    wild = chain(17)
    with pytest.raises(PlannerFailed, match="at most 65536 plans to try them all, got 131072"):
        planned("oracle", wild, 20.0)


def test_the_oracle_knows_blocks_that_overlap():
    """A part and the whole: either, or none."""
    of = wide(5)
    whole = replace(of.blocks[0], path="whole", last_tick=4, rows=(("l2", 0), ("l3", 0), ("l4", 0)))
    of = replace(of, blocks=(*of.blocks, whole))
    said = planned("oracle:actions=block", of, 41.0)[1]
    assert said.fits
    best = min(
        predict(of, plan, 1, 41.0).step_s
        for plan in (
            replace(acting(of, l2=BLOCK), blocks=("b1",)),
            replace(acting(of, l2=BLOCK, l4=BLOCK), blocks=("b1", "b3")),
            replace(acting(of, l2=BLOCK, l3=BLOCK, l4=BLOCK), blocks=("whole",)),
        )
        if predict(of, plan, 1, 41.0).fits
    )
    assert said.step_s == best


# ------------------------------------------------------------------ searches
@fewer(8)
@given(profiles(n_rows=4), st.floats(0.3, 1.0))
def test_no_rule_beats_the_search_and_no_search_the_oracle(of, share):
    """What fits less is worse; among what fits, what is slower."""
    kept = predict(of, SwapPlan.keeping(of), 1)
    budget = of.fixed_bytes + share * (kept.peak_bytes - of.fixed_bytes)
    search = Search(view(of, budget))
    scores = {name: search.score(rule(search)) for name, rule in {**RULES, **RIVALS}.items()}
    assert min(scores.values()) == scores["oracle"]
    assert scores["hybrid"] <= min(score for name, score in scores.items() if name not in {"oracle", "hybrid", "auto"})
    assert scores["auto"] == scores["hybrid"]


@pytest.mark.thorough
@pytest.mark.parametrize("budget", [20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0])
@pytest.mark.parametrize("rate", [2.0, 5.0, 20.0])
def test_the_search_comes_near_the_oracle(budget, rate):
    """Within two parts of a hundred on steps small enough to try everything, where anything fits (bar C7)."""
    of = wide(6, link=SwapLink.of(rate))
    oracle, search = planned("oracle", of, budget)[1], planned("hybrid", of, budget)[1]
    assert search.fits == oracle.fits
    if oracle.fits:
        assert search.step_s <= 1.02 * oracle.step_s


def test_greedy_moves_until_it_fits_or_nothing_helps():
    """Squeezing costs nothing, so it comes first; where nothing can be moved, it stops."""
    of = wide(6, link=SwapLink.of(1.0))
    search = Search(view(of, 52.5))
    assert search.score(greedy(search, search.every(KEEP)))[0] == 0.0
    assert set(greedy(search, search.every(KEEP)).actions) == {KEEP, SQUEEZE}
    stuck = Search(view(of, 1.0), ())
    assert greedy(stuck, stuck.every(KEEP)) == stuck.every(KEEP)
    assert climbed(stuck, stuck.every(KEEP), 5) == stuck.every(KEEP)


@fewer(8)
@given(profiles(n_rows=5), st.floats(10.0, 200.0), st.integers(0, 3))
def test_climbing_never_goes_down(of, room, seed):
    """Whatever it starts from; the same seed makes the same moves."""
    search, again = (Search(view(of, of.fixed_bytes + room, seed=seed)) for _ in range(2))
    for start in (search.every(KEEP), search.every(SWAP)):
        top = climbed(search, start, 20)
        assert search.score(top) <= search.score(start)
    assert [climbed(again, start, 20) for start in (again.every(KEEP), again.every(SWAP))][-1] == top


def test_a_wanted_choice_is_made_possible():
    """What is derived needs its source; pins come first, and no block holds a pinned row."""
    of = wide(6)
    search = Search(view(of, 30.0, pins={"l2#0": KEEP, "l0#0": SWAP}))
    assert sorted(search.blocks) == ["b3"]
    choice = search.choice([KEEP] * 6, ["b3"])
    assert choice == Choice((SWAP, KEEP, KEEP, KEEP, BLOCK, KEEP), frozenset({"b3"}))
    rows = (replace(of.rows[0], squeeze_kind="mask", squeeze_left_frac=0.5), *of.rows[1:])
    squeezed = Search(view(replace(of, rows=rows), 30.0))
    assert squeezed.choice([SQUEEZE, DERIVE, KEEP, KEEP, KEEP, KEEP]).actions[:2] == (SQUEEZE, KEEP)
    assert squeezed.innermost() == ["b1", "b3"]


@pytest.mark.thorough
def test_the_best_plans_of_the_search_are_worth_a_trial():
    """Three of them, the best first."""
    of = wide(6, link=SwapLink.of(2.0))
    search = Search(view(of, 30.0, n_samples=1))
    assert list(candidates("auto", search.view)) == [search.plan(each) for each in fastest(search)[:3]]
    said = [predict(of, plan, 1, 30.0) for plan in candidates("auto", search.view)]
    assert [each.step_s for each in said] == sorted(each.step_s for each in said)
    assert candidates("all", view(of, 30.0)) == (planned("all", of, 30.0)[0],)
