"""A step under a plan: three layers worked by hand, and what holds of any step."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.swapping.capacity import largest, max_batch
from drlnb.planning.swapping.cost import Walker, predict
from drlnb.planning.swapping.profile import BLOCK, DERIVE, KEEP, SQUEEZE, SWAP, SwapBlock, SwapLink, SwapPlan
from tests.planning.swapping.swap_words import SECOND, acting, chain, planned, profile, profiles, row
from tests.strategies import fewer

ALL = {"l0": SWAP, "l1": SWAP, "l2": SWAP}


# ------------------------------------------------------------------ by hand
def test_bytes_in_use_are_told_from_each_operation_on():
    """Two inputs at first, three in the second tick; without being asked, nothing is told; the peak is the greatest."""
    plan = acting(chain(), l0=SWAP)
    said = predict(chain(fixed_bytes=5.0, slack_frac=1.0), plan, 1, lanes=True)
    assert said.memory == ((0, 50), (1, 70), (2, 50), (3, 70), (5, 50), (7, 30))
    assert said.peak_bytes == 70.0
    assert predict(chain(), plan, 1).memory == ()


def test_a_step_without_a_plan_is_the_sum_of_its_ticks():
    """Three seconds forward, six backward; all thirty bytes are there at once."""
    said = predict(chain(fixed_bytes=5.0), SwapPlan.keeping(chain()), 1, 35.0, lanes=True)
    assert (said.step_s, said.peak_bytes, said.fits, said.stalls, said.hidden_frac) == (9.0, 35.0, True, (), 1.0)
    assert said.lanes == (
        ("compute", "f0", 0.0, 1.0), ("compute", "f1", 1.0, 2.0), ("compute", "f2", 2.0, 3.0),
        ("compute", "b2", 3.0, 5.0), ("compute", "b1", 5.0, 7.0), ("compute", "b0", 7.0, 9.0),
    )  # fmt: skip
    assert not predict(chain(fixed_bytes=5.0), SwapPlan.keeping(chain()), 1, 34.9).fits


def test_what_is_needed_at_once_is_waited_for():
    """The last input leaves from 3 to 4 and is back at 5: two seconds in which nothing is done."""
    said = predict(chain(), acting(chain(), **ALL), 1, lanes=True)
    assert (said.step_s, said.stalls, said.stall_s) == (11.0, (("backward", 2, 2.0),), 2.0)
    assert said.hidden_frac == pytest.approx(2 / 3)
    assert [lane for lane in said.lanes if lane[0] != "compute"] == [
        ("d2h", "l0#0", 1.0, 2.0), ("d2h", "l1#0", 2.0, 3.0), ("d2h", "l2#0", 3.0, 4.0),
        ("h2d", "l2#0", 4.0, 5.0), ("h2d", "l1#0", 5.0, 6.0), ("h2d", "l0#0", 6.0, 7.0),
    ]  # fmt: skip


def test_a_budget_makes_the_forward_pass_wait_for_room():
    """The second layer's result has room once the first input has left; what comes back waits for room, too."""
    said = predict(chain(), acting(chain(), **ALL), 1, 20.0)
    assert said.stalls == (("forward", 1, 1.0), ("backward", 2, 2.0))
    assert (said.step_s, said.peak_bytes, said.fits) == (12.0, 20.0, True)
    assert not predict(chain(), acting(chain(), **ALL), 1, 19.0).fits


def test_what_comes_too_late_is_waited_for():
    """Of a copy that takes four seconds, both ways: the input is back at 11, two seconds after it is needed."""
    slow = chain(link=SwapLink.of(2.5))
    said = predict(slow, acting(slow, l0=SWAP), 1)
    assert said.stalls == (("backward", 0, 2.0),)
    assert said.step_s == 11.0


def test_copies_of_both_ways_have_rates_of_their_own():
    """While something still leaves, what comes back is slower; small copies are slower than large ones."""
    link = SwapLink(
        d2h=((0, 5.0), (10, 10.0)), h2d=((0, 10.0),), d2h_both=((0, 10.0),), h2d_both=((0, 1.0), (5, 2.0), (11, 9.0))
    )
    three = chain(link=link)
    numbers = Walker(three, 1)
    assert (numbers.out_s, numbers.in_s, numbers.in_both_s) == ([1.0] * 3, [1.0] * 3, [5.0] * 3)
    assert Walker(chain(link=replace(link, d2h=((20, 4.0), (40, 8.0)))), 1).out_s == [2.5] * 3
    said = predict(three, acting(three, l1=SWAP, l2=SWAP), 1, lanes=True)
    assert ("h2d", "l2#0", 4.0, 5.0) in said.lanes, "the last one has left by then"
    later = predict(three, acting(three, **ALL), 1, lanes=True)
    assert next(each for each in later.lanes if each[0] == "h2d") == ("h2d", "l2#0", 4.0, 5.0)


def test_a_squeezed_row_widens_where_it_is_read():
    """A quarter of it stays from its last use forward; its ten bytes are there beside it for its own tick."""
    rows = [row("l0", -1, 0), row("l1", 0, 1, squeeze_kind="mask", squeeze_left_frac=0.25), row("l2", 1, 2)]
    three = profile(rows, [SECOND] * 3)
    plan = acting(three, l1=SQUEEZE)
    said = predict(three, plan, 1)
    assert (said.step_s, said.peak_bytes) == (9.0, 30.0), "in the second tick all three are there"
    walk = Walker(three, 1).walk(plan.actions, (), math.inf)
    assert walk.resident == pytest.approx(0.0)
    four = profile([*rows, row("l3", 2, 3)], [SECOND] * 4)
    assert predict(four, acting(four, l1=SQUEEZE), 1).peak_bytes == 32.5
    assert predict(four, SwapPlan.keeping(four), 1).peak_bytes == 40.0


def test_a_derived_row_is_made_again_from_one_that_is_back():
    """Half a second before the tick that needs it; its source must have come before."""
    rows = [row("l0", -1, 0), row("l1", 0, 1), row("l2", 1, 2, derive_from=("l1", 0), derive_s_per_sample=0.5)]
    three = profile(rows, [SECOND] * 3)
    said = predict(three, acting(three, l2=DERIVE), 1, lanes=True)
    assert (said.step_s, said.peak_bytes) == (9.5, 30.0)
    assert ("compute", "again l2#0", 3.0, 3.5) in said.lanes
    both = predict(three, acting(three, l1=SWAP, l2=DERIVE), 1)
    # l1 leaves from 2 to 3, is back at 4, a second after it is needed for l2
    assert (both.step_s, both.stalls) == (10.5, (("backward", 2, 1.0),))


def test_a_block_is_made_again_before_its_last_tick():
    """Two more forward seconds; what is within it is absent in between, what comes from outside is needed at once."""
    rows = [row("l0", -1, 0), row("l1", 0, 1), row("l2", 1, 2), row("l3", 2, 3)]
    block = SwapBlock(path="part", first_tick=1, last_tick=2, rows=(("l2", 0),))
    four = profile(rows, [SECOND] * 4, blocks=(block,))
    plan = replace(acting(four, l2=BLOCK), blocks=("part",))
    said = predict(four, plan, 1, lanes=True)
    assert (said.step_s, said.peak_bytes) == (14.0, 40.0), "in its last tick its result is there beside it"
    assert ("compute", "again part", 6.0, 8.0) in said.lanes, "after the backward tick of the fourth layer"
    held = replace(four, blocks=(replace(block, input_bytes=(1.0, 6.0)),))
    assert predict(held, plan, 1).peak_bytes == 47.0, "its input, which no row has, stays from the second tick on"
    swapped = replace(acting(four, l1=SWAP, l2=BLOCK), blocks=("part",))
    slow = replace(four, link=SwapLink.of(2.5))
    # l1 leaves from 2 to 6, is back at 10, four seconds after the block is to be made again
    assert predict(slow, swapped, 1).stalls == (("backward", 2, 4.0),)
    derived = replace(four, rows=(rows[0], replace(rows[1], derive_from=("l0", 0), derive_s_per_sample=0.5), *rows[2:]))
    twice = replace(acting(derived, l0=SWAP, l1=DERIVE, l2=BLOCK), blocks=("part",))
    assert predict(derived, twice, 1).step_s == 14.5, "its input is derived before it"


def test_what_the_allocator_holds_on_top_counts():
    """A tenth more than is in use, of the fixed bytes too."""
    three = chain(fixed_bytes=10.0, slack_frac=0.1)
    assert predict(three, SwapPlan.keeping(three), 1).peak_bytes == pytest.approx(44.0)
    assert predict(three, SwapPlan.keeping(three), 1, 44.01).fits
    assert not predict(three, SwapPlan.keeping(three), 1, 43.9).fits


def test_a_plan_of_another_profile_is_refused():
    """In a line, as is a step without samples."""
    with pytest.raises(ValueError, match="the plan is of 3 rows, not of the 2 of net"):
        predict(chain(2), SwapPlan.keeping(chain(3)), 1)
    with pytest.raises(ValueError, match="n_samples must be >= 1, got 0"):
        predict(chain(), SwapPlan.keeping(chain()), 0)


# ------------------------------------------------------------------ of any step
@fewer(3)
@given(planned(), st.integers(1, 4))
def test_every_byte_that_is_taken_is_given_back(pair, n):
    """Whatever the plan and the room: nothing is left at the end, and lanes never run backwards."""
    of, plan = pair
    for budget in (None, of.fixed_bytes + 50.0 * n):
        walk = Walker(of, n).walk(plan.actions, plan.blocks, math.inf if budget is None else 50.0 * n, logged=True)
        assert walk.resident == pytest.approx(0.0, abs=1e-6)
        for lane in ("compute", "d2h", "h2d"):
            times = [(start, end) for name, _, start, end in walk.log if name == lane]
            assert all(start <= end for start, end in times)
            assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(times))
        said = predict(of, plan, n, budget)
        assert said.step_s == pytest.approx(walk.t)
        assert 0.0 <= said.hidden_frac <= 1.0
        assert said.fits == (budget is None or said.peak_bytes <= budget + 1e-6)


@fewer(3)
@given(planned())
def test_time_is_work_and_stalls(pair):
    """What each lane of work did, and where it waited, is the whole step."""
    of, plan = pair
    said = predict(of, plan, 1, lanes=True)
    work = sum(end - start for lane, _, start, end in said.lanes if lane == "compute")
    assert said.step_s == pytest.approx(work + said.stall_s)
    plain = predict(of, SwapPlan.keeping(of), 1)
    assert plain.step_s == pytest.approx(sum(each.forward_s[0] + each.backward_s[0] for each in of.ticks))
    assert said.step_s >= plain.step_s - 1e-9, "no plan is faster than none where all fits"


@fewer(3)
@given(planned(actions=(KEEP, SWAP)), st.floats(10.0, 200.0), st.floats(0.0, 200.0))
def test_more_room_makes_no_plan_slower(pair, room, more):
    """Nor does it fit less."""
    of, plan = pair
    small, large = (predict(of, plan, 1, of.fixed_bytes + each) for each in (room, room + more))
    if small.fits:
        assert large.fits
        assert large.step_s <= small.step_s + 1e-9


@fewer(3)
@given(planned(actions=(KEEP, SWAP)))
def test_swapping_never_raises_the_peak(pair):
    """What leaves and comes back is there at most once."""
    of, plan = pair
    assert predict(of, plan, 1).peak_bytes <= predict(of, SwapPlan.keeping(of), 1).peak_bytes + 1e-6


# ------------------------------------------------------------------ how much fits
def test_the_largest_batch_is_found_by_bisection():
    """Of none, one, many, and any number."""
    assert [largest(lambda n, most=most: n <= most) for most in (0, 1, 2, 77, 1024)] == [0, 1, 2, 77, 1024]
    assert largest(lambda n: True) == 2**25 - 1


def test_a_batch_is_as_large_as_the_budget_allows():
    """30 bytes per sample without a plan; two of three rows at once with one, at whatever speed."""
    three = chain(link=SwapLink.of(1000.0))
    assert max_batch(three, 300.0, "none") == 10
    assert max_batch(three, 300.0, "all", 0.0) == 15
    assert max_batch(three, 300.0, "all", 0.999) == 15, "twice the samples in little more time"
    slow = replace(three, link=SwapLink.of(0.1))
    assert max_batch(slow, 300.0, "all", 0.9) == 10
    assert max_batch(three, 29.0, "none") == 0
    assert max_batch(three, 29.0, "all", 0.0) == 1


@pytest.mark.parametrize("share", [-0.1, math.nan, math.inf, "fast"])
def test_a_share_of_the_speed_is_a_number_from_zero_up(share):
    """What cannot be compared with a speed is refused before anything is predicted."""
    with pytest.raises(ValueError, match=f"^min_throughput_frac must be a number from 0 up, got {share!r}$"):
        max_batch(chain(), 300.0, "none", share)


@fewer(3)
@given(profiles(blocks=False), st.integers(1, 3))
def test_a_profile_counts_its_samples(of, n):
    """Rows and transients grow with the batch, times stay where they are fixed."""
    one, many = Walker(of, 1), Walker(of, n)
    assert many.size == pytest.approx([n * size for size in one.size])
    assert many.forward_s == one.forward_s
    assert many.ahead_bytes[-1] == pytest.approx(n * max(one.backward_bytes))
