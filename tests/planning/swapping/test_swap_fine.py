"""The learner that corrects the cost model: moves, rollbacks, and a link that is not what the profile says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.swapping import SWAPPING, SwapView
from drlnb.planning.swapping.cost import Walker, predict
from drlnb.planning.swapping.fine import QFine
from drlnb.planning.swapping.heuristics import fastest
from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, SwapLink
from drlnb.planning.swapping.search import Search
from tests.planning.swapping.swap_words import SECOND, chain, profile, profiles, row, wide
from tests.strategies import fewer

ROOM = 45.0


def derivable(rate):
    """Return a chain in which two rows can be swapped or made again from the first, for three seconds each."""
    rows = [row("l0", -1, 0), *[row(f"l{i}", i - 1, i) for i in range(1, 12)]]
    more = {"derive_from": ("l0", 0), "derive_s_per_sample": 3.0}
    rows[2], rows[3] = replace(rows[2], **more), replace(rows[3], **more)
    return profile(rows, [SECOND] * 12, link=SwapLink.of(rate))


def search_of(of, budget=ROOM, **more):
    return Search(SwapView(profile=of, n_samples=1, memory_budget_bytes=budget, **more))


def measure(of, choice, room=ROOM):
    """Return the seconds of a step on a device, relative to one that keeps everything."""
    numbers = Walker(of, 1)
    walk = numbers.walk(choice.actions, choice.blocks, room)
    return walk.t / (sum(numbers.forward_s) + sum(numbers.backward_s))


# ------------------------------------------------------------------ by hand
def test_the_plan_in_force_has_to_be_measured_first():
    """Its steps say what a trial is compared with."""
    search = search_of(chain(6), 60.0)
    fine = QFine(search, search.every(KEEP), epsilon=0.0)
    assert fine.observe([1.0, 1.0]) is False
    trial = fine.propose()
    assert trial != fine.kept
    assert fine.observe([0.5]) is True
    assert fine.kept == trial


@pytest.mark.parametrize(("costs", "stays"), [([0.97], False), ([0.7], True), ([1.0], False), ([0.9] * 4, True)])
def test_a_trial_must_be_better_by_two_spreads(costs, stays):
    """Of the plan in force: 0.05 per median, so 0.15 for one step and half of it for four."""
    search = search_of(chain(6), 60.0)
    fine = QFine(search, search.every(KEEP), epsilon=0.0)
    fine.observe([0.95, 1.0, 1.05, 0.95, 1.05])
    before, trial = fine.kept, fine.propose()
    assert fine.observe(costs) is stays
    assert fine.kept == (trial if stays else before)


def test_a_move_that_disappoints_is_not_made_again_at_once():
    """What it cost beyond its prediction stays with it, for every plan."""
    search = search_of(chain(9), 90.0)
    fine = QFine(search, search.every(KEEP), epsilon=0.0)
    fine.observe([1.0])
    first = fine.propose()
    assert fine.observe([3.0]) is False
    (move,) = fine.errors
    assert fine.errors[move] == pytest.approx(0.5 * (2.0 - (measure(chain(9), first, 90.0) - 1.0)))
    assert fine.propose() != first


def test_where_no_move_is_allowed_the_plan_goes_on():
    """All rows are pinned."""
    of = chain(3)
    search = search_of(of, 60.0, pins={each.name: KEEP for each in of.rows})
    fine = QFine(search, search.every(KEEP))
    assert fine.propose() == fine.kept
    assert fine.observe([1.0]) is False
    assert fine.propose() == fine.kept


def test_units_are_blocks_and_runs_of_other_rows():
    """A move changes all rows of one, as far as they allow it."""
    search = search_of(wide(6), 60.0)
    fine = QFine(search, search.every(KEEP), epsilon=0.0)
    fine.observe([9.0])
    changed = set()
    for _ in range(6):
        trial = fine.propose()
        changed.add(tuple(i for i, (a, b) in enumerate(zip(trial.actions, fine.kept.actions, strict=True)) if a != b))
        fine.observe([99.0])
    assert changed <= {(2,), (4,), (0, 1, 3, 5), (1, 3, 5)}
    assert len(changed) > 1


def test_exploring_is_the_seeds():
    """Every move at random makes the same trials with the same seed, others with another one."""

    def trials(seed):
        search = search_of(wide(9), 200.0, seed=seed)
        fine = QFine(search, search.every(KEEP), epsilon=1.0)
        fine.observe([1.0])
        out = []
        for _ in range(8):
            out.append(fine.propose())
            fine.observe([2.0])
        return out

    assert trials(1) == trials(1)
    assert len({tuple(trials(seed)) for seed in range(4)}) > 1


# ------------------------------------------------------------------ with a wrong model
@fewer(8)
@given(profiles(n_rows=5), st.floats(0.05, 20.0), st.integers(0, 99))
def test_it_never_ends_below_where_it_began(of, factor, seed):
    """Whatever the real link, as long as steps are measured without noise (bar C7)."""
    room = 100.0
    real = replace(of, link=SwapLink.of(of.link.d2h[0][1] * factor))
    search = search_of(of, of.fixed_bytes + room, seed=seed)
    start = fastest(search)[0]
    fine = QFine(search, start)
    fine.observe([measure(real, start, room)])
    for _ in range(10):
        fine.observe([measure(real, fine.propose(), room)])
    assert measure(real, fine.kept, room) <= measure(real, start, room) + 1e-9


def test_a_slower_link_is_learned():
    """Sixteen times slower than the profile says: what is made again is then faster than what is swapped."""
    said, real = derivable(20.0), derivable(1.25)
    search, truth = search_of(said, 100.0), search_of(real, 100.0)
    start = search.choice([KEEP, KEEP, SWAP, SWAP, *[KEEP] * 8])
    assert search.score(start)[0] == 0.0
    fine = QFine(search, start, epsilon=0.3)
    fine.observe([measure(real, start, 100.0)])
    for _ in range(20):
        fine.observe([measure(real, fine.propose(), 100.0)])
    before, after = measure(real, start, 100.0), measure(real, fine.kept, 100.0)
    best = measure(real, fastest(truth)[0], 100.0)
    assert best <= after <= before
    assert DERIVE in fastest(truth)[0].actions


def test_noise_does_not_lead_it_astray():
    """Steps that spread by a twentieth, three per trial: after forty trials it is at most a tenth slower."""
    of, generator = wide(9, link=SwapLink.of(5.0)), np.random.default_rng(5)
    search = search_of(of, 60.0)
    start = fastest(search)[0]
    fine = QFine(search, start)

    def steps(choice, n):
        return list(measure(of, choice, 60.0) * np.exp(0.05 * generator.standard_normal(n)))

    fine.observe(steps(start, 12))
    for _ in range(40):
        fine.observe(steps(fine.propose(), 3))
    assert measure(of, fine.kept, 60.0) <= 1.1 * measure(of, start, 60.0)


# ------------------------------------------------------------------ as a planner
@pytest.mark.thorough
def test_as_a_planner_it_is_never_slower_than_the_search():
    """On the cost model itself, which is right about itself."""
    for rate in (2.0, 20.0):
        of = wide(8, link=SwapLink.of(rate))
        view = SwapView(profile=of, n_samples=1, memory_budget_bytes=ROOM)
        fine, search = (SWAPPING.ask(SWAPPING.build(name), view) for name in ("qfine:n_trials=5", "hybrid"))
        assert predict(of, fine, 1, ROOM).step_s <= predict(of, search, 1, ROOM).step_s + 1e-9


@pytest.mark.thorough
def test_the_more_the_memory_weighs_the_less_of_it_is_used():
    """At the price of time: with w = 1 more is swapped than must be, with w = 0 no more than that."""
    of = wide(8, link=SwapLink.of(20.0))
    view = SwapView(profile=of, n_samples=1, memory_budget_bytes=70.0)
    said = {}
    for w in (0.0, 1.0):
        plan = SWAPPING.ask(SWAPPING.build(f"qfine:n_trials=40,w={w}"), view)
        said[w] = predict(of, plan, 1, 70.0)
    assert said[1.0].peak_bytes < said[0.0].peak_bytes
    assert said[1.0].step_s > said[0.0].step_s


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n_trials=0", "n_trials must be a whole number from 1 to 100000, got 0"),
        ("w=1.1", "w must be a number from 0 to 1, got 1.1"),
        ("epsilon=-1.0", "epsilon must be a number from 0 to 1, got -1.0"),
        ("alpha=2.0", "alpha must be a number from 0 to 1, got 2.0"),
    ],
)
def test_parameters_have_limits(text, said):
    """In one line; a trial is made at least."""
    with pytest.raises(ValueError, match=f"^swapping planner qfine:{text}: {said}$"):
        SWAPPING.build(f"qfine:{text}")
