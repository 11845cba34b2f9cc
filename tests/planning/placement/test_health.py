"""Rates that are believed of slots, by hand; how long one that failed is out of use."""

import pytest

from drlnb.planning.placement.health import hold_s, n_since, rates_hz

DAY_S = 86_400.0
#: 0.8 failures in 0.8 times 337 days: before anything was seen.
K, BEFORE_S = 0.8, 0.8 * 337 * DAY_S


def test_before_anything_was_seen_every_slot_fails_once_in_337_days():
    """Wherever it is."""
    assert rates_hz([0, 0, 0], [0.0] * 3, [0, 1, 1]) == pytest.approx([1 / (337 * DAY_S)] * 3)


def test_a_slot_is_believed_between_what_was_seen_of_it_of_its_node_and_of_all():
    """Two slots of one node, seen for ten days each, of which one failed twice; one of another that never did."""
    seen_s = [10 * DAY_S] * 3
    mean = (K + 2) / (BEFORE_S + 30 * DAY_S)
    node = (K + 2) / (K / mean + 20 * DAY_S)
    other = K / (K / mean + 10 * DAY_S)
    ill = (K + 2) / (K / mean + 10 * DAY_S)
    expected = [0.7 * node + 0.3 * ill, 0.7 * node + 0.3 * other, other]
    assert rates_hz([2, 0, 0], seen_s, [0, 0, 1]) == pytest.approx(expected)


def test_a_slot_that_was_not_watched_is_not_healthier_for_it():
    """The time in which nothing could have been seen counts for nothing: only seen seconds lower a rate."""
    idle, busy = rates_hz([0, 0], [0.0, 30 * DAY_S], [0, 1])
    assert idle > busy


def test_failures_are_counted_from_a_time_on():
    """The time itself counts."""
    assert [n_since([1.0, 5.0, 9.0], t) for t in (0.0, 5.0, 9.5)] == [3, 2, 0]


def test_each_failure_doubles_a_hold_up_to_two_hours():
    """30 s, 60 s, 120 s ... 7,200 s."""
    assert [hold_s(30.0, n) for n in (1, 2, 3, 8, 9, 60)] == [30.0, 60.0, 120.0, 3840.0, 7200.0, 7200.0]
