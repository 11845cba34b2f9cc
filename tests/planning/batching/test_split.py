"""Sizes of a split: numbers worked by hand, bounds, who has a share, bad input."""

import pytest

from drlnb.planning.batching import Member, plan_split
from drlnb.planning.batching.proportional import by_largest_remainder
from drlnb.records.errors import InfeasibleSplit, InputError


def members(*speeds_hz, o=0.0, **more):
    return [Member(id=name, speed_hz=hz, overhead_s=o, **more) for name, hz in zip("abcdefgh", speeds_hz, strict=False)]


def sizes(n_units, those, **more):
    return [n for _, n in plan_split(n_units, those, **more).sizes]


def test_documented_numbers():
    """512 units, 200 and 50 a second: 409.6 and 102.4; the rest goes where it is done first, at 2.06 s, not 2.07."""
    plan = plan_split(512, members(200, 50, o=0.01))
    assert plan.sizes == (("a", 410), ("b", 102))
    assert plan.predicted_s == pytest.approx(2.06)


def test_2_1_sizes_follow_speed_and_sum_to_the_batch():
    """Mechanism 2-1: three speeds as 1 : 2 : 5 split 80 units as 10, 20, 50: whole numbers, so nothing is rounded."""
    assert sizes(80, members(1, 2, 5)) == [10, 20, 50]


def test_2_12_a_share_may_be_empty():
    """Mechanism 2-12: a member whose first unit would be done after all others have none left gets none."""
    plan = plan_split(10, members(10, 10, 0.5))
    assert plan.sizes == (("a", 5), ("b", 5), ("c", 0))
    assert plan.predicted_s == pytest.approx(0.5)
    assert sizes(10, [*members(10), Member(id="b", speed_hz=1e9, overhead_s=2.0)]) == [10, 0]


def test_one_member_takes_all():
    """And pays no communication but its own."""
    plan = plan_split(7, members(2), comm_base_s=9.0, comm_each_s=0.25)
    assert (plan.sizes, plan.predicted_s) == ((("a", 7),), 3.75)


def test_bounds_hold():
    """What a bound keeps from a member goes to the others."""
    assert sizes(100, [*members(9), Member(id="b", speed_hz=1, n_max=5)]) == [95, 5]
    assert sizes(100, [Member(id="a", speed_hz=9, n_max=60), *members(1, 1)[1:]]) == [60, 40]
    assert sizes(12, members(1, 1, 100, n_min=4), allow_idle=False) == [4, 4, 4]
    assert sizes(13, members(1, 1, 100, n_min=4), allow_idle=False) == [4, 4, 5]


def test_a_share_is_nothing_or_its_least():
    """4 units of 4 at least: either member alone, not 2 and 2; the faster one."""
    assert sizes(4, members(1, 1.5, n_min=4)) == [0, 4]
    assert sizes(9, members(1, 1.5, n_min=4)) == [4, 5]


def test_quanta_stay_together():
    """Fragments of 16 rows: 6 of them as 4 and 2; 5 as 3 and 2, where rows would go 50 and 30; 7 as 5 and 2."""
    assert sizes(96, members(2, 1), quantum=16) == [64, 32]
    assert sizes(80, members(5, 3), quantum=16) == [48, 32]
    assert sizes(112, members(2, 1), quantum=16) == [80, 32]
    assert sizes(8, [Member(id="a", speed_hz=9, n_max=7), *members(1, 1)[1:]], quantum=4) == [4, 4]
    assert sizes(8, [Member(id="a", speed_hz=9, n_max=3), *members(1, 1)[1:]], quantum=4) == [0, 8]


def test_equal_finish_times_go_by_id():
    """So that a plan does not depend on the order in which members are listed."""
    assert plan_split(3, members(1, 1)).sizes == (("a", 2), ("b", 1))
    assert plan_split(3, members(1, 1)[::-1]).sizes == (("b", 1), ("a", 2))


@pytest.mark.parametrize(
    ("comm", "expected", "seconds"),
    [
        # 100 units at 10 and 5 a second: both 6.67 s, one 10 s.
        ({"comm_base_s": 3.0}, [67, 33], 9.7),
        ({"comm_base_s": 4.0}, [100, 0], 10.0),
        ({"comm_each_s": 3.0}, [67, 33], 12.7),
        ({"comm_each_s": 4.0}, [100, 0], 14.0),
    ],
)
def test_members_are_used_if_that_pays(comm, expected, seconds):
    """Communication is weighed against the work that another member takes over."""
    plan = plan_split(100, members(10, 5), **comm)
    assert ([n for _, n in plan.sizes], plan.predicted_s) == (expected, pytest.approx(seconds))


def test_overheads_that_no_float_can_tell_apart():
    """1e6 s beside shares of nanoseconds: the sizes still add up."""
    assert sum(sizes(150, members(1e12, 1e12, o=1e6))) == 150


@pytest.mark.parametrize(
    ("n_units", "those", "more", "message"),
    [
        (9, members(1, 1, n_max=4), {}, r"9 units .* bounds \(a 1 to 4, b 1 to 4\); the nearest number that fits is 8"),
        (3, members(1, 1, n_min=4), {}, r"3 units .* \(a 4 to any, b 4 to any\); the nearest number that fits is 4"),
        (5, members(1, 1, n_min=3), {"allow_idle": False}, r"\(a 3 to any, b 3 to any\); the nearest .* is 6"),
        (9, members(1, 1, n_max=4), {"allow_idle": False}, "the nearest number that fits is 8"),
        (40, members(1, 1, n_max=9), {"quantum": 4}, "40 units cannot be split in whole 4s .* nearest .* is 16"),
        (8, members(1, n_max=3), {"quantum": 4}, r"\(a 1 to 3\)$"),
        (8, members(1, 1, n_max=3), {"quantum": 4, "allow_idle": False}, r"\(a 1 to 3, b 1 to 3\)$"),
        (5, members(1, 1, n_min=3, n_max=3), {}, "the nearest number that fits is 6"),
    ],
)
def test_bounds_that_cannot_add_up(n_units, those, more, message):
    """One line lists every bound and what would fit."""
    with pytest.raises(InfeasibleSplit, match=message) as raised:
        plan_split(n_units, those, **more)
    assert isinstance(raised.value, InputError)
    assert isinstance(raised.value, ValueError)


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


@pytest.mark.parametrize(
    ("n_units", "more", "message"),
    [
        (0, {}, "n_units must be a whole number >= 1, got 0"),
        (2.0, {}, r"n_units must be a whole number >= 1, got 2\.0"),
        (10, {"quantum": 4}, "n_units must be a multiple of 4, such as 8 or 12, got 10"),
        (3, {"quantum": 4}, "n_units must be a multiple of 4, such as 4, got 3"),
        (4, {"quantum": 0}, "quantum must be a whole number >= 1, got 0"),
        (4, {"comm_base_s": -1.0}, r"comm_base_s must be finite and >= 0 s, got -1\.0"),
        (4, {"comm_each_s": float("nan")}, "comm_each_s must be finite and >= 0 s, got nan"),
    ],
)
def test_numbers_that_cannot_be(n_units, more, message):
    """One line, with the value and what would do."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        plan_split(n_units, members(1, 1), **more)


def test_the_largest_remainder_keeps_to_bounds_too():
    """8 : 1 : 1 of 20 are 16, 2, 2; with 10 at most for the first 5 each for the others; ties by id."""
    those = members(8, 1, 1)
    assert by_largest_remainder(20, those) == (16, 2, 2)
    assert by_largest_remainder(20, [Member(id="a", speed_hz=8, n_max=10), *those[1:]]) == (10, 5, 5)
    assert by_largest_remainder(21, [Member(id="a", speed_hz=8, n_max=10), *those[1:]]) == (10, 6, 5)
    assert by_largest_remainder(20, members(8, 1, 1, n_min=4), allow_idle=False) == (12, 4, 4)
    with pytest.raises(InfeasibleSplit, match=r"\(a 1 to 2, b 1 to 2\); the nearest number that fits is 4"):
        by_largest_remainder(9, members(1, 1, n_max=2))


def test_nobody_can_take_a_share():
    """An empty list is a mistake of the caller."""
    with pytest.raises(ValueError, match="a split needs one member at least"):
        plan_split(1, [])
