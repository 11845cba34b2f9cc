"""Schedules: numbers and lin_x, never below 0."""

import pytest

from drlnb.rl.schedules import parse_schedule, progress_remaining, sampled


def test_a_schedule_never_falls_below_zero():
    """128 steps made of 100 asked leave progress 0, and lin_0.001 is 0 there and 0.00075 after a quarter."""
    assert progress_remaining(128, 100) == 0.0
    rate = parse_schedule("lin_0.001")
    assert (rate(progress_remaining(128, 100)), rate(-0.28), rate(progress_remaining(25, 100))) == (0.0, 0.0, 0.00075)


def test_a_number_stays():
    """A constant does not look at the progress."""
    assert parse_schedule(3e-4)(0.1) == 3e-4


@pytest.mark.parametrize("value", ["lin_x", "lin_", "cos_0.1", "lin_-1", -0.1, float("nan"), True, "0.1", None])
def test_malformed_schedules_are_refused_with_their_value(value):
    """Whatever is not a number >= 0 or lin_NUMBER raises, naming it."""
    with pytest.raises(ValueError, match="a schedule must be a number >= 0 or lin_NUMBER") as caught:
        parse_schedule(value)
    assert repr(value) in str(caught.value)


def test_a_sampled_function_is_met_where_it_was_sampled_and_straight_between():
    """A square at 1/256 steps: exact at 3/4 and within 1e-5 between; a straight one is two points and exact."""
    at = parse_schedule(sampled(lambda p: p * p))
    assert at(0.75) == pytest.approx(0.5625, abs=1e-15)
    assert at(0.7505) == pytest.approx(0.7505**2, abs=1e-5)
    assert (at(0.0), at(1.0)) == (0.0, 1.0)
    assert sampled(lambda p: 0.1 + 0.2 * p)["points"] == [[0.0, 0.1], [1.0, pytest.approx(0.3)]]


def test_a_step_stays_a_step():
    """A rate that drops in the middle keeps both levels; the slope between is 1/256 of the budget wide."""
    found = sampled(lambda p: 1.0 if p >= 0.5 else 0.1)
    assert [round(p * 256) for p, _ in found["points"]] == [0, 127, 128, 256]
    assert [parse_schedule(found)(p) for p in (0.2, 0.49, 0.5, 0.9)] == [0.1, 0.1, 1.0, 1.0]


@pytest.mark.parametrize("points", [[], [[0.5, 1.0], [0.5, 2.0]], [[0.0, -1.0]], 3, [[1.0]]])
def test_points_that_are_no_schedule_are_refused(points):
    """Empty, not ascending, negative or malformed points raise."""
    with pytest.raises(ValueError, match=r"points|unpack"):
        parse_schedule({"points": points})
