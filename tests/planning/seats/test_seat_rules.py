"""The rules of seats keep their laws for any numbers of a probe."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.seats.rules import (
    SeatsSettings,
    aggregate,
    choose,
    levels,
    n_seats_problem,
    percentile,
    slowed,
    virtual_limit,
    wait_s,
)

rates = st.lists(st.floats(0.01, 5.0), min_size=1, max_size=6).map(lambda more: [1.0, *more])
seconds = st.floats(0.001, 100.0)


@given(rates, st.floats(0.0, 0.5))
def test_the_fewest_seats_that_are_good_enough_are_chosen(rates, margin_frac):
    """No fewer would do, and no more are needed; the reason shows every other rate."""
    n_seats, reason = choose(rates, margin_frac)
    enough = (1 - margin_frac) * max(rates)
    assert rates[n_seats - 1] >= enough
    assert all(rate < enough for rate in rates[: n_seats - 1])
    assert all(f"{n}: " in reason for n in range(2, len(rates) + 1) if n != n_seats)


@given(rates, st.floats(0.1, 10.0), st.floats(0.0, 0.5))
def test_another_unit_of_work_chooses_alike(rates, factor, margin_frac):
    """Only ratios count, beyond the last digits."""
    chosen, _ = choose(rates, margin_frac)
    again, _ = choose([rate * factor for rate in rates], margin_frac)
    near = (1 - margin_frac) * max(rates)
    assert chosen == again or any(rate == pytest.approx(near) for rate in rates)


@given(st.integers(1, 9))
def test_a_probe_measures_each_number_twice_and_symmetrically(n_most):
    """So that a slow drift of the machine adds the same to every number."""
    order = levels(n_most)
    assert order == order[::-1]
    assert sorted(order) == sorted([*range(1, n_most + 1)] * 2)
    places = [[i for i, n in enumerate(order) if n == level] for level in range(1, n_most + 1)]
    assert {sum(pair) for pair in places} == {2 * n_most - 1}


@given(st.lists(seconds, min_size=1, max_size=40), st.floats(0.0, 1.0))
def test_a_percentile_is_the_smallest_value_that_covers_the_share(values, share):
    """It is one of the values."""
    value = percentile(values, share)
    assert value in values
    assert sum(each <= value for each in values) >= share * len(values) - 1e-9
    assert value == min(values) or sum(each < value for each in values) < share * len(values)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), seconds), min_size=1, max_size=4), seconds, seconds)
def test_the_work_of_seats_adds_up(seats, a_s, b_s):
    """Each seat's is its own; twice the rounds in the same time are twice the work; an idle one does none."""
    n_rounds = [{"a": a, "b": b} for a, b, _ in seats]
    elapsed = [each for _, _, each in seats]
    alone = {"a": a_s, "b": b_s}
    whole = aggregate(alone, n_rounds, elapsed)
    assert whole == pytest.approx(sum(aggregate(alone, [n], [s]) for n, s in zip(n_rounds, elapsed, strict=True)))
    twice = [{task: 2 * n for task, n in rounds.items()} for rounds in n_rounds]
    assert aggregate(alone, twice, elapsed) == pytest.approx(2 * whole)
    assert aggregate(alone, [*n_rounds, {"a": 5}], [*elapsed, 0.0]) == whole
    assert aggregate(alone, [*n_rounds, {"unknown": 5}], [*elapsed, 1.0]) == whole


@given(st.floats(0.1, 5.0), st.floats(0.1, 9.0), rates, st.data())
def test_a_seat_is_taken_away_only_where_rounds_are_slow_and_fewer_did_more(p50, p95, rates, data):
    """Both, never one alone."""
    settings, n_seats = SeatsSettings(), data.draw(st.integers(2, len(rates)))
    left, fewer = rates[n_seats - 1] / p50, rates[n_seats - 2]
    assert bool(slowed(p50, p95, rates, n_seats, settings)) == (p95 > settings.slow_factor and left < fewer)


@given(st.integers(0, 200), st.floats(0.1, 100.0), st.floats(1.0, 50.0))
def test_the_pause_after_a_probe_only_grows_and_is_bounded(n_idle, again_s, times):
    """It begins with the least, and never overflows."""
    settings = SeatsSettings(again_s=again_s, again_max_s=again_s * times)
    assert wait_s(0, settings) == again_s
    assert again_s <= wait_s(n_idle, settings) <= wait_s(n_idle + 1, settings) <= again_s * times


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 8))
def test_virtual_devices_never_ask_for_more_cores_than_there_are(n_cpus, n_devices, n_most):
    """Beyond one seat each; the reason says what bounds them."""
    n_seats, why = virtual_limit(n_cpus, n_devices, n_most)
    assert 1 <= n_seats <= n_most
    assert n_seats == 1 or n_seats * n_devices <= n_cpus
    assert n_seats == n_most or (n_seats + 1) * n_devices > n_cpus
    assert (why == f"at most {n_most} seats") == (n_seats == n_most)


@pytest.mark.parametrize(("seats", "good"), [
    ("auto", True), (1, True), (4, True), (0, False), (5, False), (-1, False), (2.0, False), (True, False),
    ("2", False), (None, False), ("Auto", False),
])  # fmt: skip
def test_a_number_of_seats_is_whole_or_left_to_the_probe(seats, good):
    """The limits and the value are named."""
    said = f"seats must be 'auto' or a whole number from 1 to 4, got {seats!r}"
    assert n_seats_problem(seats) == ("" if good else said)
    assert n_seats_problem(2, n_most=1) == "seats must be 'auto' or a whole number from 1 to 1, got 2"
