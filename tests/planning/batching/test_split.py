"""Sizes of a split: numbers worked by hand, bounds, who has a share, bad input."""

import pytest

from drlnb.planning.batching import Member, plan_split
from drlnb.planning.batching.proportional import by_largest_remainder
from drlnb.records.errors import ConfigError


def members(*speeds_hz, o=0.0, **more):
    return [Member(id=name, speed_hz=hz, overhead_s=o, **more) for name, hz in zip("abcdefgh", speeds_hz, strict=False)]


def sizes(n_units, those, **more):
    return list(plan_split(n_units, those, **more))


def test_documented_numbers():
    """512 units, 200 and 50 a second: 409.6 and 102.4; the rest goes where it is done first, at 2.06 s, not 2.07."""
    assert plan_split(512, members(200, 50, o=0.01)) == (410, 102)


def test_2_1_sizes_follow_speed_and_sum_to_the_batch():
    """Mechanism 2-1: three speeds as 1 : 2 : 5 split 80 units as 10, 20, 50: whole numbers, so nothing is rounded."""
    assert sizes(80, members(1, 2, 5)) == [10, 20, 50]


def test_2_12_a_share_may_be_empty():
    """Mechanism 2-12: a member whose first unit would be done after all others have none left gets none."""
    assert plan_split(10, members(10, 10, 0.5)) == (5, 5, 0)
    assert sizes(10, [*members(10), Member(id="b", speed_hz=1e9, overhead_s=2.0)]) == [10, 0]


def test_one_member_takes_all():
    """There is nobody to share with."""
    assert plan_split(7, members(2)) == (7,)


def test_bounds_hold():
    """What a bound keeps from a member goes to the others."""
    assert sizes(100, [*members(9), Member(id="b", speed_hz=1, n_max=5)]) == [95, 5]
    assert sizes(100, [Member(id="a", speed_hz=9, n_max=60), *members(1, 1)[1:]]) == [60, 40]
    assert sizes(12, members(1, 1, 100, n_min=4), allow_idle=False) == [4, 4, 4]
    assert sizes(13, members(1, 1, 100, n_min=4), allow_idle=False) == [4, 4, 5]


def test_equal_finish_times_go_by_id():
    """So that a plan does not depend on the order in which members are listed."""
    assert plan_split(3, members(1, 1)) == (2, 1)
    assert plan_split(3, members(1, 1)[::-1]) == (1, 2)


def test_overheads_that_no_float_can_tell_apart():
    """1e6 s beside shares of nanoseconds: the sizes still add up."""
    assert sum(sizes(150, members(1e12, 1e12, o=1e6))) == 150


@pytest.mark.parametrize(
    ("n_units", "those", "more", "message"),
    [
        (9, members(1, 1, n_max=4), {}, "9 units cannot be split: the members' bounds allow 0 to 8"),
        (9, members(1, 1, n_max=4), {"allow_idle": False}, "9 units .* bounds allow 2 to 8"),
        (5, members(1, 1, n_min=3), {"allow_idle": False}, "5 units .* bounds allow 6 to "),
    ],
)
def test_bounds_that_cannot_add_up(n_units, those, more, message):
    """One line says what would fit."""
    with pytest.raises(ConfigError, match=message):
        plan_split(n_units, those, **more)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed_hz": 0}, "member 'b': speed_hz must be finite and > 0, got 0"),
        ({"speed_hz": -1.0}, "member 'b': speed_hz must be finite and > 0, got -1.0"),
        ({"speed_hz": float("nan")}, "member 'b': speed_hz must be finite and > 0, got nan"),
        ({"speed_hz": float("inf")}, "member 'b': speed_hz must be finite and > 0, got inf"),
        ({"speed_hz": 1e-308}, "member 'b': speed_hz is too small for 12 units, got 1e-308"),
        ({"overhead_s": -0.1}, "member 'b': overhead_s must be finite and >= 0 s, got -0.1"),
        ({"overhead_s": float("nan")}, "member 'b': overhead_s must be finite and >= 0 s, got nan"),
        ({"id": "a"}, "two members have the id 'a'"),
        ({"n_min": -1}, "member 'b': n_min must be a whole number >= 0, got -1"),
        ({"n_min": 1.5}, "member 'b': n_min must be a whole number >= 0, got 1.5"),
        ({"n_min": True}, "member 'b': n_min must be a whole number >= 0, got True"),
        ({"n_max": 0}, "member 'b': n_max must be None or a whole number >= 1, got 0"),
        ({"n_min": 3, "n_max": 2}, "member 'b': n_max must be None or a whole number >= 3, got 2"),
    ],
)
def test_a_member_that_cannot_be(change, message):
    """The message names it."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        plan_split(12, [*members(1), Member(**{"id": "b", "speed_hz": 1.0, **change})])


@pytest.mark.parametrize("n_units", [0, 2.0])
def test_numbers_that_cannot_be(n_units):
    """One line, with the value and what would do."""
    with pytest.raises(ValueError, match=f"^n_units must be a whole number >= 1, got {n_units}$"):
        plan_split(n_units, members(1, 1))


def test_the_largest_remainder_keeps_to_bounds_too():
    """8 : 1 : 1 of 20 are 16, 2, 2; with 10 at most for the first 5 each for the others; ties by id."""
    those = members(8, 1, 1)
    assert by_largest_remainder(20, those) == (16, 2, 2)
    assert by_largest_remainder(20, [Member(id="a", speed_hz=8, n_max=10), *those[1:]]) == (10, 5, 5)
    assert by_largest_remainder(21, [Member(id="a", speed_hz=8, n_max=10), *those[1:]]) == (10, 6, 5)
    assert by_largest_remainder(20, members(8, 1, 1, n_min=4), allow_idle=False) == (12, 4, 4)
    with pytest.raises(ConfigError, match="9 units cannot be split: the members' bounds allow 0 to 4"):
        by_largest_remainder(9, members(1, 1, n_max=2))


def test_nobody_can_take_a_share():
    """An empty list is a mistake of the caller."""
    with pytest.raises(ValueError, match="a split needs one member at least"):
        plan_split(1, [])
