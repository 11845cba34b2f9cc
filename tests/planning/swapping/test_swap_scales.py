"""Laws of units and of names: another second, another byte, another order or another name changes nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.swapping import SWAPPING, SwapView
from drlnb.planning.swapping.capacity import largest, max_batch
from drlnb.planning.swapping.cost import predict, room
from drlnb.planning.swapping.heuristics import RULES
from drlnb.planning.swapping.learned import predicted_cost, swapped_types
from drlnb.planning.swapping.profile import KEEP, SQUEEZE, SWAP, SwapLink, SwapPlan, Tick
from drlnb.planning.swapping.search import Search
from drlnb.planning.swapping.table import plan_rows, plan_table
from tests.planning.swapping.swap_words import SECOND, acting, chain, planned, profile, profiles, row
from tests.strategies import fewer

#: Powers of two: products are exact, so that even ties stay ties.
factors = st.sampled_from([0.25, 0.5, 2.0, 8.0])
#: Planners whose plans must not depend on units; ``qtable`` is tried below.
PLANNERS = ("all", "vdnn_conv", "capuchin", "greedy")


def times(pair, factor):
    return pair[0] * factor, pair[1] * factor


def in_seconds(of, factor):
    """Return the same step with seconds that are so much longer, on a link that is as much slower."""
    ticks = [
        replace(tick, forward_s=times(tick.forward_s, factor), backward_s=times(tick.backward_s, factor))
        for tick in of.ticks
    ]
    rows = [replace(each, derive_s_per_sample=each.derive_s_per_sample * factor) for each in of.rows]
    link = SwapLink.of(of.link.d2h[0][1] / factor)
    return replace(of, ticks=tuple(ticks), rows=tuple(rows), link=link)


def in_bytes(of, factor):
    """Return the same step with so many times the bytes, on a link that is as much faster."""
    ticks = [
        replace(
            tick,
            forward_transient_bytes=times(tick.forward_transient_bytes, factor),
            backward_transient_bytes=times(tick.backward_transient_bytes, factor),
        )
        for tick in of.ticks
    ]
    rows = [replace(each, bytes_per_sample=each.bytes_per_sample * factor) for each in of.rows]
    link = SwapLink.of(of.link.d2h[0][1] * factor)
    fixed = of.fixed_bytes * factor
    return replace(of, ticks=tuple(ticks), rows=tuple(rows), link=link, fixed_bytes=fixed)


def in_samples(of, n):
    """Return the profile of one sample that is as large as `n`, all that does not grow taken off beforehand."""
    ticks = [
        Tick(
            forward_s=(0.0, n * tick.forward_s[0]),
            backward_s=(0.0, n * tick.backward_s[0]),
            forward_transient_bytes=(0.0, n * tick.forward_transient_bytes[0]),
            backward_transient_bytes=(0.0, n * tick.backward_transient_bytes[1]),
        )
        for tick in of.ticks
    ]
    rows = [
        replace(each, bytes_per_sample=n * each.bytes_per_sample, derive_s_per_sample=n * each.derive_s_per_sample)
        for each in of.rows
    ]
    return replace(of, ticks=tuple(ticks), rows=tuple(rows))


def renamed(of):
    """Return the same step with other names of rows and blocks."""

    def other(key):
        return None if key is None else (f"net.{key[0]}", key[1] + 3)

    rows = [replace(each, key=other(each.key), derive_from=other(each.derive_from)) for each in of.rows]
    blocks = [replace(each, path=f"net.{each.path}", rows=tuple(other(key) for key in each.rows)) for each in of.blocks]
    return replace(of, rows=tuple(rows), blocks=tuple(blocks))


def budget_of(of, share):
    plain = predict(of, SwapPlan.keeping(of), 1).peak_bytes
    return of.fixed_bytes + share * (plain - of.fixed_bytes)


def plan_of(name, of, budget, n=1):
    return SWAPPING.ask(SWAPPING.build(name), SwapView(profile=of, n_samples=n, memory_budget_bytes=budget))


# ------------------------------------------------------------------ of the cost model
@fewer(3)
@given(planned(), factors, st.none() | st.floats(0.3, 1.2))
def test_longer_seconds_make_longer_steps_of_the_same_bytes(pair, factor, share):
    """Work, copies and stalls alike."""
    of, plan = pair
    budget = share and budget_of(of, share)
    one, other = predict(of, plan, 1, budget), predict(in_seconds(of, factor), plan, 1, budget)
    assert other.step_s == pytest.approx(factor * one.step_s)
    assert other.stall_s == pytest.approx(factor * one.stall_s)
    assert (other.peak_bytes, other.fits) == (pytest.approx(one.peak_bytes), one.fits)
    assert other.hidden_frac == pytest.approx(one.hidden_frac)


@fewer(3)
@given(planned(), factors, st.none() | st.floats(0.3, 1.2))
def test_more_bytes_take_the_same_time_on_a_faster_link(pair, factor, share):
    """Rows, transients, what stays anyway, and the budget."""
    of, plan = pair
    budget = share and budget_of(of, share)
    one, other = predict(of, plan, 1, budget), predict(in_bytes(of, factor), plan, 1, budget and budget * factor)
    assert other.step_s == pytest.approx(one.step_s)
    assert other.peak_bytes == pytest.approx(factor * one.peak_bytes)
    assert [stall[:2] for stall in other.stalls] == [stall[:2] for stall in one.stalls]


@fewer(3)
@given(planned(), st.integers(2, 5))
def test_a_large_sample_is_as_good_as_many_small_ones(pair, n):
    """As far as all grows with the batch."""
    of, plan = pair
    small = in_samples(of, 1)
    one, other = predict(in_samples(of, n), plan, 1), predict(small, plan, n)
    assert other.step_s == pytest.approx(one.step_s)
    assert other.peak_bytes == pytest.approx(one.peak_bytes)
    assert other.stall_s == pytest.approx(one.stall_s, abs=1e-6)


@fewer(3)
@given(planned(), st.floats(1.0, 100.0), st.none() | st.floats(0.3, 1.2))
def test_what_stays_anyway_is_on_top_of_everything(pair, more, share):
    """Of the peak and of the budget, and of nothing else."""
    of, plan = pair
    budget = share and budget_of(of, share)
    heavy = replace(of, fixed_bytes=of.fixed_bytes + more)
    one, other = predict(of, plan, 1, budget), predict(heavy, plan, 1, budget and budget + more)
    assert other.peak_bytes == pytest.approx(one.peak_bytes + more)
    assert other.step_s == pytest.approx(one.step_s)
    assert room(heavy, 500.0) == pytest.approx(room(of, 500.0) - more)


@fewer(3)
@given(planned(), st.integers(0, 5))
def test_a_tick_that_does_nothing_changes_nothing(pair, at):
    """Wherever it stands: no time, no bytes, nothing made or read."""
    of, plan = pair
    at = min(at, len(of.ticks))

    def shifted(tick):
        return tick + (tick >= at)

    ticks = [*of.ticks[:at], Tick(forward_s=(0.0, 0.0), backward_s=(0.0, 0.0)), *of.ticks[at:]]
    rows = [
        replace(each, born_tick=shifted(each.born_tick), packed_ticks=tuple(map(shifted, each.packed_ticks)))
        for each in of.rows
    ]
    blocks = [
        replace(each, first_tick=shifted(each.first_tick), last_tick=shifted(each.last_tick)) for each in of.blocks
    ]
    idle = replace(of, ticks=tuple(ticks), rows=tuple(rows), blocks=tuple(blocks))
    one, other = predict(of, plan, 1), predict(idle, plan, 1)
    assert other.step_s == pytest.approx(one.step_s)
    assert other.peak_bytes == pytest.approx(one.peak_bytes)


@fewer(3)
@given(planned(actions=(KEEP, SQUEEZE)), st.randoms(use_true_random=False))
def test_the_order_of_rows_is_only_a_list(pair, random):
    """Without copies, which queue in it where they are needed at once."""
    of, plan = pair
    order = list(range(len(of.rows)))
    random.shuffle(order)
    mixed = replace(of, rows=tuple(of.rows[i] for i in order))
    again = replace(SwapPlan.keeping(mixed), actions=tuple(plan.actions[i] for i in order))
    one, other = predict(of, plan, 1), predict(mixed, again, 1)
    assert other.step_s == pytest.approx(one.step_s)
    assert other.peak_bytes == pytest.approx(one.peak_bytes)


# ------------------------------------------------------------------ of planners
@pytest.mark.parametrize("name", PLANNERS)
def test_plans_do_not_depend_on_units(name):
    """Neither on seconds nor on bytes nor on names."""

    @fewer(6)
    @given(profiles(n_rows=5), factors, st.floats(0.3, 1.1))
    def check(of, factor, share):
        budget = budget_of(of, share)
        plan = plan_of(name, of, budget)
        assert plan_of(name, in_seconds(of, factor), budget).actions == plan.actions
        assert plan_of(name, in_bytes(of, factor), budget * factor).actions == plan.actions
        assert plan_of(name, renamed(of), budget).actions == plan.actions

    check()


@fewer(8)
@given(profiles(n_rows=4), factors, st.floats(0.3, 1.1))
def test_the_search_scores_alike_in_any_unit(of, factor, share):
    """Its moves are drawn by number, so it makes the same ones."""
    budget = budget_of(of, share)
    one = Search(SwapView(profile=of, n_samples=1, memory_budget_bytes=budget))
    other = Search(SwapView(profile=in_bytes(of, factor), n_samples=1, memory_budget_bytes=budget * factor))
    (over, kept, seconds), (more, stays, same) = (search.score(RULES["hybrid"](search)) for search in (one, other))
    assert more == pytest.approx(over * factor, abs=1e-6)
    assert stays == pytest.approx(kept * factor, abs=1e-6)
    assert same == pytest.approx(seconds)


@fewer(6)
@given(profiles(n_rows=5), factors, st.floats(0.4, 1.1), st.floats(0.0, 1.0))
def test_costs_of_sets_of_types_have_no_unit(of, factor, share, w):
    """The learner sees the same numbers whatever a second is."""
    budget = budget_of(of, share)
    one = Search(SwapView(profile=of, n_samples=1, memory_budget_bytes=budget), (SWAP,))
    other = Search(SwapView(profile=in_seconds(of, factor), n_samples=1, memory_budget_bytes=budget), (SWAP,))
    for bits in range(2 ** len(of.types)):
        mine, theirs = (predicted_cost(search, swapped_types(search, bits), w) for search in (one, other))
        assert mine == pytest.approx(theirs)


# ------------------------------------------------------------------ of how much fits
@given(st.integers(0, 5000))
def test_bisection_finds_what_counting_finds(most):
    """And asks at most twice the logarithm of it."""
    asked = []

    def fits(n):
        asked.append(n)
        return n <= most

    assert largest(fits) == most
    assert len(asked) <= 2 * max(1, most).bit_length() + 2
    assert len(set(asked)) == len(asked), "no batch is asked for twice"


@pytest.mark.parametrize("planner", ["none", "all", "capuchin", "greedy"])
def test_the_largest_batch_is_that_of_a_count_from_one(planner):
    """At any speed: the next one does not fit, this one does; more memory never holds less."""
    of, before = chain(3, link=SwapLink.of(50.0), fixed_bytes=7.0), 0
    for budget in (40.0, 67.0, 100.0, 207.0, 300.0):
        n = max_batch(of, budget, planner, 0.0)

        def fits(samples, budget=budget):
            return predict(of, plan_of(planner, of, budget, samples), samples, budget).fits

        counted = 0
        while fits(counted + 1):
            counted += 1
        assert n == counted
        assert n >= before
        before = n


def test_a_faster_step_is_asked_for_by_a_larger_share():
    """The more of plain's speed is wanted, the smaller the largest batch; plain's own is always allowed."""
    of = chain(6, link=SwapLink.of(8.0))
    found = [max_batch(of, 600.0, "capuchin", share) for share in (0.0, 0.5, 0.9, 1.0, 1.5)]
    assert found == sorted(found, reverse=True)
    assert min(found) >= max_batch(of, 600.0, "none") == 10


# ------------------------------------------------------------------ of tables
@fewer(4)
@given(planned(), st.integers(1, 4))
def test_a_table_says_each_row_once_with_its_size(pair, n):
    """In the profile's order; gaps are never negative, and the inputs of the step wait longest."""
    of, plan = pair
    rows = plan_rows(of, plan, n)
    assert [each["layer"] for each in rows] == [each.name for each in of.rows]
    assert [each["action"] for each in rows] == list(plan.actions)
    assert sum(each["MiB"] for each in rows) * 2**20 == pytest.approx(sum(each.bytes(n) for each in of.rows))
    assert min(each["gap_s"] for each in rows) >= 0.0
    later = sorted(zip(rows, of.rows, strict=True), key=lambda pair: pair[1].packed_ticks[-1])
    gaps = [each["gap_s"] for each, _ in later]
    assert gaps == sorted(gaps, reverse=True), "what is used early waits long"
    assert len(plan_table(of, plan, n).splitlines()) == len(of.rows) + 1


def test_reasons_name_the_numbers_behind_them():
    """Of a swap: the time in which nobody needs it, and both copies, as the lanes have them."""
    of = chain(4, link=SwapLink.of(5.0))
    said = predict(of, acting(of, l0=SWAP), 1, lanes=True)
    copies = sum(end - start for lane, _, start, end in said.lanes if lane != "compute")
    (first, *others) = plan_rows(of, acting(of, l0=SWAP), 1)
    assert copies == 4.0
    assert first["why"] == "gap 9 s, copies 4 s"
    assert {each["why"] for each in others} == {"it stays"}


def test_two_layers_of_one_type_have_one_bit():
    """Types are numbered by their first row; a set swaps all rows of its types and no other."""
    rows = [row(f"l{i}", i - 1, i, layer_type=kind) for i, kind in enumerate("abcab")]
    of = profile(rows, [SECOND] * 5)
    search = Search(SwapView(profile=of, n_samples=1, memory_budget_bytes=100.0), (SWAP,))
    for bits in range(8):
        swapped = {i for i, action in enumerate(swapped_types(search, bits).actions) if action == SWAP}
        assert swapped == {i for i in range(5) if bits >> "abc".index("abcab"[i]) & 1}
