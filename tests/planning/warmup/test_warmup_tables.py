"""The parts of warm-up by table: a collector's status, known starts, what a round's starts came to, its regime."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.warmup.history import History, RoundRow, StartBook
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.processes import is_guide
from drlnb.planning.warmup.saa import saa_plan, stopping_pays
from drlnb.planning.warmup.stability import stable_window
from drlnb.planning.warmup.state import Member
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records.columns.warmup import CollectorReady

seconds = st.floats(0.001, 100.0)


# ------------------------------------------------------------------ one collector
@pytest.mark.parametrize("status", ["absent", "up", "resting", "starting"])
@pytest.mark.parametrize("planned_t", [None, 3.0])
def test_who_goes_up_or_is_lost_has_nothing_planned(status, planned_t):
    """Who is lost is not due either: whoever starts the lost anew starts it at once."""
    values = {"status": status, "planned_t": planned_t, "ended": True, "due": True, "mode": "spawn"}
    up, lost = (Member(env_indices=(0,), node="n0", **values) for _ in range(2))
    up.goes_up()
    lost.is_lost()
    assert (up.status, up.planned_t, up.ended, up.due) == ("up", None, False, True)
    assert (lost.status, lost.planned_t, lost.ended, lost.due) == ("absent", None, False, False)
    assert {up.node, lost.node, up.mode, lost.mode} == {"n0", "spawn"}


def ready(t, start_s, *, node="n0", mode="zygote"):
    return CollectorReady(t=t, collector=0, node=node, start_s=start_s, n_starting=1, start_mode=mode)


def test_a_start_that_waited_for_its_zygote_is_no_guide():
    """The first child of a node, and those that began before it was ready; a later start is one, and any spawn."""
    warm = {}
    assert not is_guide(warm, ready(5.0, 2.0))
    assert warm == {"n0": 5.0}
    assert not is_guide(warm, ready(6.0, 1.5))
    assert is_guide(warm, ready(6.0, 1.0))
    assert is_guide(warm, ready(9.0, 0.5))
    assert is_guide(warm, ready(9.0, 8.0, mode="spawn"))
    assert not is_guide(warm, ready(9.0, 0.5, node="n1"))
    assert warm == {"n0": 5.0, "n1": 9.0}


@given(
    st.lists(st.tuples(st.sampled_from(["n0", "n1"]), st.sampled_from(["spawn", "park"]), st.integers(1, 5), seconds))
)
def test_the_nearest_number_at_once_is_a_guide(starts):
    """The larger of two that are as near; of the same node and mode only; no more than are kept."""
    book = StartBook()
    for start in starts:
        book.add(*start)
    for node, mode, at_once in {(node, mode, n) for node, mode, _, _ in starts for n in range(1, 6)}:
        known = {n for at, of, n, _ in starts if (at, of) == (node, mode)}
        nearest = max(known, key=lambda n: (-abs(n - at_once), n))
        wanted = tuple(s for at, of, n, s in starts if (at, of, n) == (node, mode, nearest))
        assert book.samples(node, mode, at_once) == wanted
    assert book.samples("n9", "spawn", 1) == ()


def test_only_the_latest_starts_are_kept():
    """8 workers in 32 rounds."""
    book = StartBook()
    for i in range(300):
        book.add("n0", "spawn", 1, float(i))
    assert book.samples("n0", "spawn", 1) == tuple(float(i) for i in range(44, 300))


# ------------------------------------------------------------------ one round
def trace(**changes):
    """Return a whole round of two: sent at 1 and 2 s, parameters at 5 s, both started, ready at 4 and 7 s."""
    return RoundTrace(
        **{
            "round": 3, "n_workers": 2, "start_t": 0.0, "sent_t": {0: 1.0, 1: 2.0}, "n_samples": {0: 8, 1: 8},
            "arrival_t": {0: 5.0, 1: 5.0}, "ready_t": {0: 4.0, 1: 7.0}, "start_s": {0: 1.0, 1: 1.0},
        }
        | changes
    )  # fmt: skip


def test_a_collector_is_early_or_late_never_both():
    """By hand: 1 s early and 2 s late; the round waits 2 s, a collector is idle for half a second."""
    outcome = trace().outcome()
    assert (outcome.round, outcome.collectors) == (4, (0, 1))
    assert (outcome.early_s, outcome.late_s) == ((1.0, 0.0), (0.0, 2.0))
    assert (outcome.wait_s, outcome.idle_s) == (2.0, 0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"broken": True},
        {"sent_t": {0: 1.0}},
        {"arrival_t": {0: 5.0}},
        {"ready_t": {}},
        {"ready_t": {0: 4.0}},
        {"kept": [0], "ready_t": {}},
    ],
)
def test_a_round_with_something_open_has_no_outcome(changes):
    """Disturbed, not complete, or a start still out."""
    assert trace(**changes).outcome() is None


@pytest.mark.parametrize(
    ("changes", "early_s", "late_s"),
    [
        ({"kept": [0], "ready_t": {1: 7.0}}, (4.0, 0.0), (0.0, 2.0)),  # who is kept idles from its sending on
        ({"kept": [0, 1], "ready_t": {}}, (4.0, 3.0), (0.0, 0.0)),
        ({"ready_t": {0: 5.0, 1: 5.0}}, (0.0, 0.0), (0.0, 0.0)),
    ],
)
def test_what_starts_came_to(changes, early_s, late_s):
    """Seconds before and after the arrival, by collector."""
    outcome = trace(**changes).outcome()
    assert (outcome.early_s, outcome.late_s) == (early_s, late_s)


@given(st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=5))
def test_the_outcome_of_any_round_adds_up(workers):
    """The wait is the latest one's, the idle time the mean."""
    n = range(len(workers))
    outcome = RoundTrace(
        round=1, n_workers=len(workers), start_t=0.0, sent_t=dict.fromkeys(n, 0.0), n_samples=dict.fromkeys(n, 1),
        arrival_t={i: workers[i][0] for i in n}, ready_t={i: workers[i][1] for i in n},
    ).outcome()  # fmt: skip
    assert all(early == 0 or late == 0 for early, late in zip(outcome.early_s, outcome.late_s, strict=True))
    assert outcome.wait_s == max(outcome.late_s)
    assert outcome.idle_s == pytest.approx(sum(outcome.early_s) / len(workers), abs=1e-6)
    for i in n:
        assert outcome.early_s[i] - outcome.late_s[i] == pytest.approx(workers[i][0] - workers[i][1], abs=2e-6)


@pytest.mark.parametrize("changes", [{"start_t": None}, {"sent_t": {}}, {"arrival_t": {0: 5.0}}])
def test_a_round_that_is_not_whole_has_no_row(changes):
    """Nor one whose start is not known, because this attempt began after it."""
    assert trace(**changes).row({}) is None


def test_a_row_has_the_times_that_a_plan_looks_at():
    """Gaps from each sending to the parameters, the whole round, and what must not change."""
    row = trace().row({"hold": "yield"})
    assert (row.gap_s, row.round_s) == ((4.0, 3.0), 5.0)
    assert row.key == {"hold": "yield", "samples": (8, 8)}
    assert (row.start_s, row.whole, row.mean_gap_s) == ([None, None], False, 3.5)


# ------------------------------------------------------------------ the regime
def row(round_, gap_s, **key):
    return RoundRow(
        round=round_, gap_s=(gap_s,), round_s=gap_s + 1.0, key={"hold": "yield", **key}, start_s=[1.0],
    )  # fmt: skip


def kept(history):
    return [each.round for each in history.rows]


def test_a_changed_word_ends_the_regime_with_the_round_that_has_it():
    """Each change is named with both values; a word that was not known before is no change."""
    history = History(window=4, filter_window=4, min_rounds=2)
    assert history.append(row(1, 5.0)) == ""
    assert history.append(row(2, 5.0, slots=2)) == ""
    reason = history.append(row(3, 5.0, slots=3, hold="last"))
    assert reason == "hold changed from yield to last; slots changed from 2 to 3"
    assert kept(history) == [3]
    assert history.append(row(4, 5.0, hold="last", slots=3, nodes=("a", "b"))) == ""
    assert history.append(row(5, 5.0, hold="last", slots=3, nodes=("a", "c"))) == "nodes changed from a, b to a, c"


@given(st.lists(st.floats(4.9, 5.1), max_size=30), st.integers(2, 8), st.integers(2, 8))
def test_a_quiet_history_keeps_its_latest_rounds(gaps, window, filter_window):
    """As many as the wider of its two windows; a plan looks at the narrower one's."""
    history = History(window=window, filter_window=filter_window, min_rounds=2)
    for i, gap in enumerate(gaps):
        assert history.append(row(i, gap)) == ""
    rounds = [*range(len(gaps))]
    assert kept(history) == rounds[-max(window, filter_window) :]
    assert [each.round for each in history.latest] == rounds[-window:]
    history.end()
    assert history.rows == history.latest == []


def test_gaps_that_move_end_the_regime_and_the_new_ones_stay():
    """Eleven rounds of 5 s, then 20 s: once three of the latest five are of it, the old ones are no guide."""
    history = History(window=16, filter_window=16, min_rounds=2)
    reasons = [history.append(row(i, 5.0 if i < 11 else 20.0)) for i in range(14)]
    assert reasons[:13] == [""] * 13
    assert reasons[13] == "gaps have moved from 5 s to 20 s (spread 0.05 s)"
    assert kept(history) == [11, 12, 13]


# ------------------------------------------------------------------ the rules
@given(seconds, seconds, seconds, seconds, st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_stopping_pays_or_not_by_one_sum(idle_s, wait_s, start_s, gap_s, rho, kappa):
    """A longer gap never makes it pay less, a longer start never more."""
    pays = stopping_pays(idle_s, wait_s, start_s, gap_s, rho=rho, kappa=kappa)
    assert pays == (idle_s + rho * wait_s + kappa * start_s < gap_s)
    assert not pays or stopping_pays(idle_s, wait_s, start_s, gap_s * 2, rho=rho, kappa=kappa)
    assert pays or not stopping_pays(idle_s, wait_s, start_s * 2, gap_s, rho=rho, kappa=kappa)


@given(st.floats(2.0, 50.0), st.floats(0.01, 1.0), st.integers(2, 20), st.integers(1, 4))
def test_sure_times_are_planned_to_the_point(gap_s, start_s, k, n):
    """A start as long as ever before an arrival as late as ever is ready at the arrival."""
    plan = saa_plan([gap_s] * k, [[start_s] * n] * k)
    assert plan.action == "start"
    assert plan.start_after_s == pytest.approx(gap_s - start_s, abs=2e-6)
    assert plan.lead_s == pytest.approx(start_s, abs=2e-6)


@given(st.lists(seconds, min_size=5, max_size=40), st.integers(2, 8))
def test_what_is_stable_is_so_in_any_order_but_for_its_drift(durations, min_rounds):
    """The kept and the dropped are together the window; a stable one keeps enough of it."""
    verdict = stable_window(durations, min_rounds=min_rounds)
    looked_at = sorted([*verdict.kept_s, *verdict.dropped_s])
    assert looked_at == sorted(durations[-len(looked_at) :])
    if verdict.stable:
        assert len(verdict.kept_s) >= max(0.7 * len(looked_at), min(min_rounds, len(looked_at)))
        assert verdict.width_s <= 0.25 * verdict.median_s + 1e-12
        assert not math.isnan(verdict.median_s)
    assert verdict.reason


@given(st.none() | seconds, st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=4))
def test_the_start_of_a_worker_is_the_plans_and_its_own_offset(after_s, offsets):
    """Never before the reference; without a planned time there is none."""
    plan = WarmupPlan(action="start", reason="", start_after_s=after_s, offsets_s=tuple(offsets))
    bare = WarmupPlan(action="start", reason="", start_after_s=after_s)
    for i, offset in enumerate(offsets):
        assert plan.start_s(i) == (None if after_s is None else max(0.0, after_s + offset))
        assert bare.start_s(i) == after_s


def test_what_is_told_once_a_round_is_left_out_of_its_repeats():
    """And the filter of a worker is its own, or the one for all."""
    told = WarmupPlan(
        action="start", reason="r", start_after_s=1.0, candidates=((None, 1.0, 0.0),),
        candidate_errors=((0.1, 0.1, 0.0),), saved_s=1.0, saved_error_s=0.1,
        filtered=((8, 1.0, 2.0), (7, 1.0, 3.0)),
    )  # fmt: skip
    again = told.repeated()
    assert (again.candidates, again.candidate_errors, again.saved_s, again.saved_error_s) == ((), (), None, None)
    assert (again.reason, again.start_after_s) == ("r", 1.0)
    assert [told.filter_of(i) for i in range(3)] == [(8, 1.0, 2.0), (7, 1.0, 3.0), (7, 1.0, 3.0)]
    assert WarmupPlan(action="cold", reason="").filter_of(0) is None
