"""The expected completion of a gang, and bounds of a batch."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.placement.closed_form import (
    best_checkpoint_s,
    expected_completion_s,
    least_makespan_s,
    log_completion,
    n_checkpoints,
)
from drlnb.records.errors import ConfigError

DAY = 86_400.0


@pytest.mark.parametrize(("n_slots", "hours"), [(1, 24.6), (16, 36.8)])
def test_a_days_work_without_checkpoints(n_slots, hours):
    """Worked by hand: (exp(L t) - 1) / L with L of one failure in 20 days per slot."""
    rates = [1 / (20 * DAY)] * n_slots
    assert expected_completion_s(DAY, rates, checkpoint_s=None, restart_s=0) / 3600 == pytest.approx(hours, abs=0.05)


@pytest.mark.parametrize(
    ("work_s", "every_s", "n"), [(7200, 3600, 1), (7201, 3600, 2), (3600, 3600, 0), (10, 3600, 0), (7200, None, 0)]
)
def test_no_checkpoint_is_made_at_the_end(work_s, every_s, n):
    """A job whose work is a multiple of the interval ends without a last one."""
    assert n_checkpoints(work_s, every_s) == n


@pytest.mark.parametrize(
    ("every_s", "expected_s"),
    # 3 h at slowdown 2: 6 h; with checkpoints of 10 s after the first and the second hour of work 20 s more.
    [(None, 6 * 3600), (3600.0, 6 * 3600 + 20)],
)
def test_what_never_fails_takes_its_work_and_its_checkpoints(every_s, expected_s):
    """With a total rate of 0 nothing is lost and nothing starts again."""
    assert expected_completion_s(3 * 3600, [0.0, 0.0], checkpoint_s=every_s, slowdown=2.0) == pytest.approx(expected_s)


def test_work_of_nothing_takes_nothing():
    """Its logarithm is that of 0."""
    assert expected_completion_s(0.0, [0.0]) == expected_completion_s(0.0, [1e-6]) == 0.0


def test_it_is_dalys_exact_form():
    """Two intervals and a rest of half an hour, each term written out."""
    rate, restart, every, cost = 1 / 30_000, 300.0, 3600.0, 20.0
    work = 2 * every + 1800.0
    by_hand = math.exp(rate * restart) / rate * (2 * (math.exp(rate * (every + cost)) - 1) + math.exp(rate * 1800) - 1)
    given = expected_completion_s(work, [rate / 2] * 2, checkpoint_s=every, checkpoint_cost_s=cost, restart_s=restart)
    assert given == pytest.approx(by_hand, rel=1e-12)


def test_a_slot_that_must_come_back_costs_its_downtime():
    """Each of the (exp(L t) - 1) failures to be expected costs it once more."""
    rate, work = 1 / 5_000, 4_000.0
    without, with_ = (
        expected_completion_s(work, [rate], checkpoint_s=None, restart_s=0, downtime_s=down_s) for down_s in (0, 700)
    )
    assert with_ - without == pytest.approx(700 * math.expm1(rate * work), rel=1e-12)


def test_nothing_overflows():
    """A year's work on a thousand slots that fail each day is infinite as a number, and finite as a logarithm."""
    rates = [1 / DAY] * 1_000
    assert expected_completion_s(365 * DAY, rates, checkpoint_s=None) == math.inf
    shorter, longer = (
        log_completion(days * DAY, sum(rates), checkpoint_s=None, checkpoint_cost_s=10, restart_s=600)
        for days in (364, 365)
    )
    assert longer - shorter == pytest.approx(1_000)


@given(
    st.floats(60, 30 * DAY),
    st.lists(st.floats(1e-9, 1e-5), min_size=1, max_size=16),
    st.none() | st.floats(60, DAY),
    st.floats(0, 3600),
    st.floats(1, 2),
)
def test_it_grows_with_rates_restarts_and_slowdown(work_s, rates, every_s, restart_s, slowdown):
    """Each of them can only cost, and the work itself is the least."""
    how = {"checkpoint_s": every_s, "restart_s": restart_s, "slowdown": slowdown}
    expected = expected_completion_s(work_s, rates, **how)
    assert expected >= work_s * slowdown * (1 - 1e-9)
    for worse in ({"restart_s": restart_s + 60}, {"slowdown": slowdown + 0.1}):
        assert expected_completion_s(work_s, rates, **{**how, **worse}) >= expected
    assert expected_completion_s(work_s, [*rates, 1e-6], **how) >= expected


def test_played_at_random_it_is_the_mean():
    """4,000 lives of a gang by its definition: within 4 standard errors."""
    draw, rate, work, every, cost, restart = random.Random(5), 1 / 6_000, 9_000.0, 2_000.0, 50.0, 300.0

    def life():
        took, left, start = 0.0, work, 0.0
        while True:
            n_full = n_checkpoints(left, every)
            whole = start + left + n_full * cost
            fails = draw.expovariate(rate)
            if fails >= whole:
                return took + whole
            took, left = took + fails, left - every * min(n_full, max(0, int((fails - start) // (every + cost))))
            start = restart

    times = [life() for _ in range(4_000)]
    mean = sum(times) / len(times)
    error = math.sqrt(sum((t - mean) ** 2 for t in times)) / len(times)
    expected = expected_completion_s(work, [rate], checkpoint_s=every, checkpoint_cost_s=cost, restart_s=restart)
    assert abs(mean - expected) < 4 * error


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"work_s": math.nan}, "work_s must be a finite number >= 0, got nan"),
        ({"rates_hz": [1e-6, -1.0]}, "rates_hz[1] must be a finite number >= 0, got -1.0"),
        ({"checkpoint_s": 0}, "checkpoint_s must be seconds above 0, or None for no checkpoints, got 0"),
        ({"slowdown": math.inf}, "slowdown must be a finite number >= 0, got inf"),
    ],
)
def test_numbers_that_cannot_be(given, line):
    """One line with the name and the value."""
    with pytest.raises(ConfigError) as error:
        expected_completion_s(**{"work_s": 1.0, "rates_hz": [1e-6], **given})
    assert str(error.value) == line


def test_young_has_the_interval_of_least_cost():
    """sqrt(2 C / L); without failures none is worth its cost."""
    assert best_checkpoint_s(10.0, 1 / 72_000) == pytest.approx(1200)
    assert best_checkpoint_s(10.0, 0.0) == math.inf


def test_no_batch_ends_before_its_longest_job_or_its_area():
    """10 slot seconds on 4 slots, and one job of 5 s."""
    assert least_makespan_s([(4, 1.0), (6, 1.0)], 4) == 2.5
    assert least_makespan_s([(4, 1.0), (1, 5.0)], 4) == 5.0
    assert least_makespan_s([], 4) == 0.0
