"""The stability filter keeps the rounds that are a guide to the next one (S9a)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.planning.warmup import stable_window

durations = st.lists(st.floats(0.05, 100.0), min_size=5, max_size=40)


def test_s9_the_worked_example():
    """2.0 2.1 2.0 1.9 2.0 2.1 2.0 9.0: median 2, MAD .05, width .0741; 9.0 is dropped, 7 kept are too few."""
    verdict = stable_window([2.0, 2.1, 2.0, 1.9, 2.0, 2.1, 2.0, 9.0])
    assert (verdict.stable, verdict.reason) == (False, "7 kept, 8 needed")
    assert verdict.median_s == 2.0
    assert verdict.width_s == pytest.approx(0.07413)
    assert verdict.kept_s == (2.0, 2.1, 2.0, 1.9, 2.0, 2.1, 2.0)
    assert verdict.dropped_s == (9.0,)
    assert not verdict.shifted


def test_one_more_round_makes_it_stable():
    """Median 2.0, MAD .1, width .148: eight of nine are kept, 8/9 of the window, width .074 of the median."""
    verdict = stable_window([2.0, 2.1, 2.0, 1.9, 2.0, 2.1, 2.0, 9.0, 1.9])
    assert verdict.stable
    assert verdict.reason == "8 of the last 9 kept, median 2 s"


def test_equal_durations_have_a_width():
    """The MAD of ties is 0 (virtual clock): the floor of 1 % keeps neighbours in, 3.1 % away is out."""
    verdict = stable_window([1.0] * 8 + [1.02, 1.031])
    assert verdict.width_s == pytest.approx(0.01)
    assert verdict.dropped_s == (1.031,)
    assert verdict.stable


def test_very_short_durations_have_a_width_of_a_millisecond():
    """1 % of 10 ms would be a tenth of a millisecond: the clock's own noise."""
    assert stable_window([0.010] * 8).width_s == pytest.approx(1e-3)
    assert stable_window([0.0] * 8).reason == "spread 0.001 s above a quarter of the median 0 s"


def test_a_window_of_mostly_other_rounds_is_not_stable():
    """Ten rounds of 1 s, eight of 1.5 s and more: ten of eighteen are kept, 56 %."""
    verdict = stable_window([1.0] * 10 + [1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2], min_rounds=4)
    assert not verdict.stable
    assert "only 10 of 18 kept" in verdict.reason


def test_a_wide_spread_is_not_stable():
    """Median 3, MAD 1, width 1.48: half the median."""
    verdict = stable_window([2.0, 4.0, 2.0, 4.0, 3.0, 2.0, 4.0, 3.0, 3.0])
    assert verdict.reason == "spread 1.48 s above a quarter of the median 3 s"


#: Median 2.0, width 1.4826 x .1 = .148 with five more beside them.
STEADY = [2.0, 1.9, 2.1] * 8


def test_where_only_the_latest_drift_the_latest_are_taken():
    """The last 5 have median 2.35, 2.4 widths off; the last 8, 7 and 6 still hold older ones: 5 alone are stable."""
    verdict = stable_window([*STEADY, 2.34, 2.36, 2.35, 2.37, 2.35])
    assert verdict.stable
    assert verdict.kept_s == (2.34, 2.36, 2.35, 2.37, 2.35)
    assert verdict.reason == "5 of the last 5 kept, median 2.35 s"
    assert not verdict.shifted


def test_a_drift_that_has_not_settled_stays_unstable():
    """An outlier among the latest is in each short window; the reason tells where durations are and were."""
    verdict = stable_window([*STEADY, 2.35, 2.36, 2.35, 2.34, 4.9])
    assert not verdict.stable
    assert verdict.reason == "the last 5 rounds drift: median 2.35 s, before 2 s"
    assert verdict.dropped_s == (4.9,)


def test_three_widths_off_is_another_regime():
    """Ten rounds of 6 s with a width of .06, then three of 9 s: the median of the last 5 is 9."""
    verdict = stable_window([6.0] * 10 + [9.0] * 3)
    assert verdict.shifted
    assert not stable_window([6.0] * 10 + [9.0] * 2).shifted


def test_only_the_window_is_looked_at():
    """What lies before it changes nothing."""
    values = [2.0, 2.1, 2.0, 1.9, 2.0, 2.1, 2.0, 2.0]
    assert stable_window([50.0, 70.0, *values], window=8) == stable_window(values, window=8)


@pytest.mark.parametrize("n", range(5))
def test_fewer_than_five_are_never_stable(n):
    """The reason counts them."""
    verdict = stable_window([1.0] * n, min_rounds=2)
    assert (verdict.stable, verdict.reason) == (False, f"{n} kept, 5 needed")


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([1.0, float("nan")], {}, r"duration_s\[1\] must be finite and >= 0 s, got nan"),
        ([-1.0], {}, r"duration_s\[0\] must be finite and >= 0 s, got -1.0"),
        ([1.0], {"window": 1}, "window must be >= 2, got 1"),
        ([1.0], {"min_rounds": 0}, "min_rounds must be >= 2, got 0"),
    ],
)
def test_bad_input_is_refused(values, options, message):
    """Name, limit, value."""
    with pytest.raises(ValueError, match=message):
        stable_window(values, **options)


@settings(max_examples=40)
@given(durations)
def test_every_round_of_the_window_is_kept_or_dropped(values):
    """None is lost or invented; without a drift the kept lie within three widths."""
    verdict = stable_window(values)
    both = sorted(verdict.kept_s + verdict.dropped_s)
    looked_at = values[-len(both) :]
    assert both == sorted(looked_at)
    assert all(abs(x - verdict.median_s) <= 3 * verdict.width_s for x in verdict.kept_s)
    assert all(abs(x - verdict.median_s) > 3 * verdict.width_s for x in verdict.dropped_s)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 64), min_size=5, max_size=40), st.sampled_from([2.0, 4.0, 1024.0]))
def test_another_unit_gives_the_same_verdict(values, factor):
    """Times x a give times x a, above the floor of a millisecond."""
    one, other = stable_window(values), stable_window([factor * x for x in values])
    assert (one.stable, one.shifted, len(one.kept_s)) == (other.stable, other.shifted, len(other.kept_s))
    assert other.kept_s == tuple(factor * x for x in one.kept_s)
