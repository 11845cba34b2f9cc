"""Schedules: numbers and lin_x, never below 0."""

import pytest

from drlnb.rl.schedules import parse_schedule, progress_remaining


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
