"""The sample average approximation (S9b, S9c)."""

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.planning.warmup import saa_plan
from drlnb.planning.warmup.saa import stopping_pays

#: Rounds of 1 to 5 workers with one gap each, in hundredths of a second.
histories = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.tuples(st.integers(0, 900), st.lists(st.integers(1, 400), min_size=n, max_size=n)), min_size=2, max_size=20
    )
)
rhos = st.sampled_from([0.1, 1.0, 3.0, 10.0])


def arrays(history, factor=0.01):
    return [factor * gap for gap, _ in history], [[factor * s for s in row] for _, row in history]


def outcome(gaps, starts, u):
    """Mean wait and idle time of a start after u seconds, by plain loops."""
    waits, idles = [], []
    for gap, row in zip(gaps, starts, strict=True):
        ready = [min(u, gap) + s - gap for s in row]
        waits.append(max(0.0, *ready))
        idles.append(sum(max(0.0, -x) for x in ready) / len(row))
    return statistics.fmean(waits), statistics.fmean(idles)


# ------------------------------------------------------------------ SAA by hand
def test_sure_times_leave_nothing_to_chance():
    """Parameters always after 5 s, starts always 1 s: start after 4 s, nobody waits, nobody is idle."""
    plan = saa_plan([5.0] * 8, [[1.0, 1.0]] * 8)
    assert (plan.action, plan.start_after_s, plan.lead_s) == ("start", 4.0, 1.0)
    assert (plan.expected_wait_s, plan.expected_idle_s) == (0.0, 0.0)
    assert plan.candidates == ((0.0, 0.0, 4.0), (4.0, 0.0, 0.0), (None, 1.0, 0.0))
    assert plan.reason == "saves 1 s +- 0 s a round over 8 rounds"


def test_prices_decide_between_late_and_idle():
    """Gaps 4 and 6 in turn, starts of 1: u = 3 is idle 1 s on average, u = 5 waits .5; rho 1 takes the wait."""
    gaps, starts = [4.0, 6.0] * 4, [[1.0]] * 8
    assert saa_plan(gaps, starts, 1.0).start_after_s == 5.0
    assert saa_plan(gaps, starts, 1.0).expected_wait_s == 0.5
    assert saa_plan(gaps, starts, 10.0).start_after_s == 3.0
    assert saa_plan(gaps, starts, 10.0).expected_idle_s == 1.0


def test_workers_that_send_at_other_times_start_together():
    """Worker 1 sends 2 s later, so its gap is 2 s shorter: both start at the same moment."""
    plan = saa_plan([[6.0, 4.0]] * 8, [[1.0, 1.0]] * 8)
    assert plan.offsets_s == (1.0, -1.0)
    assert [plan.start_s(i) for i in (0, 1)] == [5.0, 3.0]
    assert plan.lead_s == 1.0


def test_a_start_before_sending_is_one_at_once():
    """An offset that leads below 0 is cut."""
    plan = saa_plan([[10.0, 0.5]] * 8, [[1.0, 1.0]] * 8, 1.0)
    assert plan.start_s(1) == 0.0


def test_fast_starts_leave_nothing_to_win():
    """A forked process is there in 38 ms: no planned time beats the arrival on gaps that differ by a second."""
    rng = np.random.default_rng(0)
    plan = saa_plan(6 + rng.standard_normal(64), np.full((64, 8), 0.038))
    assert plan.action == "cold"
    assert plan.start_after_s is None
    assert plan.lead_s is None
    assert plan.start_s(0) is None
    assert plan.reason.startswith("512 starts of 38 ms: ")
    assert plan.reason.endswith(", pre-warming off")


def test_a_short_gap_is_not_worth_a_stop():
    """Gap 60 ms, start 40 ms: to stop costs idle + wait + start > gap; kept, a collector is idle for the gap."""
    plan = saa_plan([0.06] * 8, [[0.04]] * 8, kappa=2.0)
    assert plan.action == "keep"
    assert (plan.expected_wait_s, plan.expected_idle_s) == (0.0, 0.06)
    assert plan.reason == "stopping costs more than the gap of 60 ms: not stopped"
    assert saa_plan([0.06] * 8, [[0.04]] * 8, kappa=1.0).action == "start"


def test_stopping_pays_below_the_gap_only():
    """.5 + 10 x .2 + 2 x 1 = 4.5 s."""
    prices = {"rho": 10.0, "kappa": 2.0}
    assert stopping_pays(0.5, 0.2, 1.0, 4.6, **prices)
    assert not stopping_pays(0.5, 0.2, 1.0, 4.5, **prices)


# ------------------------------------------------------------------ traps
def test_a_saving_within_its_error_is_not_planned():
    """Rho 3.5, start after 2 s: saves 3.5, 3.5 and -2.5 s, so 1.5 on average, with a standard error of 2."""
    gaps, starts = [3.0, 3.0, 9.0], [[1.0]] * 3
    plan = saa_plan(gaps, starts, 3.5)
    assert plan.action == "cold"
    assert plan.reason == "3 starts of 1 s: saving 1.5 s +- 2 s is noise, pre-warming off"
    assert (plan.saved_s, plan.saved_error_s) == (1.5, 2.0)
    assert saa_plan(gaps, starts, 3.5, margin=False).start_after_s == 2.0


def test_few_rounds_overfit_without_the_margin():
    """Fast starts, 32 rounds: the margin says cold, the bare minimum plans, and costs more on fresh rounds (trap 6)."""
    rng = np.random.default_rng(5)
    bare = held = 0.0
    for _ in range(20):
        gaps, starts = 6 + 0.6 * rng.standard_normal(32), rng.lognormal(math.log(0.038), 0.19, (32, 8))
        fresh = 6 + 0.6 * rng.standard_normal(400), rng.lognormal(math.log(0.038), 0.19, (400, 8))
        for margin in (False, True):
            plan = saa_plan(gaps, starts, 10.0, margin=margin)
            u = math.inf if plan.start_after_s is None else plan.start_after_s
            late, idle = outcome(*fresh, u)
            if margin:
                held += 10 * late + idle
            else:
                bare += 10 * late + idle
    assert held <= bare


def test_filtered_gaps_would_hide_what_costs():
    """Two rounds in five are 4 s shorter: at rho 10 an early start costs 2.4 s, one for the long ones 4 (trap 6)."""
    gaps = [6.0, 2.0, 6.0, 2.0, 6.0] * 4
    whole = saa_plan(gaps, [[1.0]] * 20, 10.0)
    filtered = saa_plan([6.0] * 12, [[1.0]] * 12, 10.0)
    assert (whole.start_after_s, filtered.start_after_s) == (1.0, 5.0)
    assert outcome(gaps, [[1.0]] * 20, 1.0) == (0.0, 2.4)
    assert outcome(gaps, [[1.0]] * 20, 5.0) == (0.4, 0.0)


# ------------------------------------------------------------------ standard errors
def test_errors_of_candidates_by_hand():
    """Gaps 4 and 6 in turn, starts of 1 s: a start after 4 s saves 0 or 1 s of waiting, and is then 1 s idle.

    Of eight rounds both have variance 2/7, so a standard error of 1/sqrt(28); they rise together.
    """
    plan = saa_plan([4.0, 6.0] * 4, [[1.0]] * 8, 1.0)
    by_start = dict(zip([u for u, _, _ in plan.candidates], plan.candidate_errors, strict=True))
    error = 0.189  # three significant digits, as every error of a candidate
    assert by_start[4.0] == (error, error, 1.0)
    assert by_start[5.0] == (error, 0.0, 0.0), "saves 0 or 1 s, is never idle"
    assert by_start[None] == (0.0, 0.0, 0.0), "cold saves nothing over itself"
    assert (plan.saved_s, plan.saved_error_s) == (0.5, 0.188982)


@settings(max_examples=10)
@given(histories, rhos)
def test_errors_are_free_of_rho(history, rho):
    """From the three numbers of a candidate comes the paired standard error of its saving, at any price."""
    gaps, starts = arrays(history)
    plan = saa_plan(gaps, starts, 1.0)
    rounds = list(zip(gaps, starts, strict=True))

    def costs(u):
        return [rho * wait + idle for wait, idle in (outcome([gap], [row], u) for gap, row in rounds)]

    cold = costs(math.inf)
    for (u, _, _), (of_wait, of_idle, along) in zip(plan.candidates, plan.candidate_errors, strict=True):
        savings = [a - b for a, b in zip(cold, costs(math.inf if u is None else u), strict=True)]
        variance = (rho * of_wait) ** 2 + of_idle**2 - 2 * along * rho * of_wait * of_idle
        expected = statistics.variance(savings) / len(savings)
        # Half a unit of the third digit of each error, and of the third decimal of the correlation.
        assert variance == pytest.approx(expected, abs=0.011 * (rho * of_wait + of_idle) ** 2 + 1e-9)


# ------------------------------------------------------------------ laws
@settings(max_examples=10)
@given(histories, rhos)
def test_candidates_tell_what_loops_find(history, rho):
    """Each candidate's wait and idle time are those of plain loops, and the plan is one of them."""
    gaps, starts = arrays(history)
    plan = saa_plan(gaps, starts, rho)
    for u, wait_s, idle_s in plan.candidates:
        late, idle = outcome(gaps, starts, math.inf if u is None else u)
        assert wait_s == pytest.approx(late, abs=2e-6)
        assert idle_s == pytest.approx(idle, abs=2e-6)
    assert plan.candidates[-1][0] is None
    assert plan.start_after_s is None or plan.start_after_s in [u for u, _, _ in plan.candidates]


@settings(max_examples=10)
@given(histories, rhos)
def test_never_dearer_than_cold_on_its_own_sample(history, rho):
    """Cold is a candidate."""
    gaps, starts = arrays(history)
    plan = saa_plan(gaps, starts, rho)
    if plan.action != "keep":
        cold_s, _ = outcome(gaps, starts, math.inf)
        assert rho * plan.expected_wait_s + plan.expected_idle_s <= rho * cold_s + 1e-5


@settings(max_examples=10)
@given(histories)
def test_dearer_waits_are_never_longer(history):
    """Without the margin, larger rho never gives a longer expected wait."""
    gaps, starts = arrays(history)
    plans = [saa_plan(gaps, starts, rho, margin=False, kappa=1e-9) for rho in (0.5, 2.0, 20.0)]
    waits = [plan.expected_wait_s for plan in plans]
    assert all(later <= sooner + 2e-6 for sooner, later in pairwise(waits))


@settings(max_examples=10)
@given(histories, rhos, st.randoms(use_true_random=False))
def test_the_order_of_workers_changes_nothing(history, rho, random):
    """Workers of one gap are alike."""
    gaps, starts = arrays(history)
    order = list(range(len(starts[0])))
    random.shuffle(order)
    one, other = saa_plan(gaps, starts, rho), saa_plan(gaps, [[row[i] for i in order] for row in starts], rho)
    assert (one.action, one.start_after_s) == (other.action, other.start_after_s)
    for mine, theirs in zip(one.candidates, other.candidates, strict=True):
        assert mine[1:] == pytest.approx(theirs[1:], abs=2e-6)


@settings(max_examples=10)
@given(histories, rhos)
def test_another_unit_gives_the_same_plan(history, rho):
    """Times x 4 give u x 4; where stopping costs just what it saves, rounding may decide either way."""
    one, other = (saa_plan(*arrays(history, factor), rho) for factor in (0.25, 1.0))
    if "keep" in (one.action, other.action) and one.action != other.action:
        stops = one if other.action == "keep" else other
        gaps, starts = arrays(history, 0.25 if stops is one else 1.0)
        spent_s = stops.expected_idle_s + rho * stops.expected_wait_s + np.mean(starts)
        assert spent_s == pytest.approx(np.mean(gaps), abs=(2 + rho) * 1e-6)
        return
    assert one.action == other.action
    if one.start_after_s is not None:
        assert other.start_after_s == pytest.approx(4 * one.start_after_s, abs=1e-5)


@pytest.mark.parametrize(
    ("gaps", "starts", "options", "message"),
    [
        ([1.0, math.nan], [[1.0], [1.0]], {}, r"gap_s\[1\] must be finite and >= 0 s, got nan"),
        ([1.0, 1.0], [[1.0], [-2.0]], {}, r"start_s\[1, 0\] must be finite and >= 0 s, got -2.0"),
        ([1.0, 1.0], [1.0, 1.0], {}, r"start_s \(k, n\), got \(2,\) and \(2,\)"),
        ([1.0], [[1.0], [1.0]], {}, r"as many rounds as start_s, got shapes \(1,\) and \(2, 1\)"),
        ([[1.0, 1.0]] * 2, [[1.0]] * 2, {}, r"got shapes \(2, 2\) and \(2, 1\)"),
        ([1.0], [[1.0]], {}, "gap_s must hold >= 2 rounds, got 1"),
        ([1.0] * 2, [[1.0]] * 2, {"rho": 0.0}, "rho must be finite and > 0, got 0.0"),
        ([1.0] * 2, [[1.0]] * 2, {"kappa": -1.0}, "kappa must be finite and > 0, got -1.0"),
        ([1.0] * 2, [[1.0]] * 2, {"n_candidates": 1}, "n_candidates must be >= 2, got 1"),
    ],
)
def test_bad_input_is_refused(gaps, starts, options, message):
    """Name, limit, value."""
    with pytest.raises(ValueError, match=message):
        saa_plan(gaps, starts, **options)
