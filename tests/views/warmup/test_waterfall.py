"""Warm-up in pictures: phases, causes and filters worked by hand, and equal to what the machine measured."""

import json

import numpy as np
import pytest

from drlnb.records.columns import warmup as words_of_warmup
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Journal
from drlnb.records.round import EndTask
from drlnb.sim.warmup.compare import WarmupWorkload, simulate_warmup
from drlnb.views.folds import warmup as fold_of_warmup
from drlnb.views.folds.fold import fold_of
from drlnb.views.warmup import waterfall
from tests.views.journals import Run
from tests.views.pictures import until
from tests.views.wire import decode

STREAM = "task-a-a1"


def two_rounds():
    """Round 1 is planned and early, round 2 cold and late; one collector, ended after sending.

    Acts 0..1, sent at 1; planned 2 s later; starts 3..4, parameters at 5: idle 1.  Acts 5..7; parameters at 9, starts
    9..9.5: late .5.
    """
    run = Run().task("a")
    run.sent("a", 1, 1.0, collect=1.0, action="start", start_after_s=2.0, lead_s=1.5, reason="saves 1 s", planner="saa")
    run.ready("a", 4.0, 1.0).arrived("a", 5.0, 2)
    run.say(STREAM, words_of_warmup.WarmupMeasured(
        round=2, wait_s=0.0, idle_s=1.0, collectors=(0,), early_s=(1.0,), late_s=(0.0,)
    ))  # fmt: skip
    run.sent("a", 2, 7.0, collect=2.0, reason="7 kept, 8 needed", planner="patent").arrived("a", 9.0, 3)
    run.starts("a", 2, 0.0)
    run.ready("a", 9.5, 0.5)
    run.say(STREAM, words_of_warmup.WarmupMeasured(
        round=3, wait_s=0.5, idle_s=0.0, collectors=(0,), early_s=(0.0,), late_s=(0.5,)
    ))  # fmt: skip
    return run


def phases(view):
    names = [series["name"] for series in view.facts["series"]]
    bars = view.columns["bars"]
    rows = zip(bars["series"].tolist(), bars["start"].tolist(), bars["stop"].tolist(), strict=True)
    return [(names[series], pytest.approx(start), pytest.approx(stop)) for series, start, stop in rows]


def test_what_a_collector_did_last_is_known_until_its_task_ended():
    """Task a is stopped at 2, its collector's process having ended at 1; b trains until 1000 and says nothing of a."""
    run = Run().task("a").task("b")
    run.sent("a", 1, 1.0, collect=1.0)
    run.say(STREAM, SettingChanged(t=2.0, key="x", value=0, task=None), EndTask(state="stopped", reason="asked for"))
    run.metrics("b", 1000.0, 1, 10)
    view = waterfall.waterfall(run.journal())
    assert phases(view) == [("acts", 0.0, 1.0), ("process ended", 1.0, 2.0)]


def test_phases_by_hand():
    """Acting, ended, starting, amber idle; and where the parameters come first, red."""
    view = waterfall.waterfall(two_rounds().journal())
    assert phases(view) == [
        ("acts", 0.0, 1.0), ("process ended", 1.0, 3.0), ("starts", 3.0, 4.0), ("idle", 4.0, 5.0),
        ("acts", 5.0, 7.0), ("process ended", 7.0, 9.0), ("late", 9.0, 9.5),
    ]  # fmt: skip
    names = [series["name"] for series in view.facts["series"]]
    dots = view.columns["dots"]
    assert [(names[s], t) for s, t in zip(dots["series"].tolist(), dots["start"].tolist(), strict=True)] == [
        ("planned start", pytest.approx(3.0)), ("parameters arrive", pytest.approx(5.0)),
        ("parameters arrive", pytest.approx(9.0)),
    ]  # fmt: skip
    assert view.facts["lanes"] == [{"label": "A a 0", "kind": "collector"}]


def test_it_is_plain_why_a_collector_started_when_it_did():
    """The bar of a start says what made it start, who planned it, its lead, and the planner's reason in words."""
    rows = waterfall.waterfall(two_rounds().journal()).rows()
    (start,) = [row for row in rows if row[1] == "starts"]
    (late,) = [row for row in rows if row[1] == "late"]
    assert start[4:] == [1, 2.0, 1.5, "its planned time", "saa", "saves 1 s"]
    assert late[4:] == [2, None, None, "the parameters' arrival: no time was planned", "patent", "7 kept, 8 needed"]
    (acts, _) = [row for row in rows if row[1] == "acts"]
    assert acts[7:] == ["", "", ""]


def test_a_start_that_was_overtaken_says_so():
    """Planned 4 s after sending, but the parameters come after 2: it starts then, and the plan stays visible."""
    run = Run().task("a").sent("a", 1, 1.0, action="start", start_after_s=4.0)
    run.arrived("a", 3.0, 2)
    run.starts("a", 1, 0.0)
    run.ready("a", 3.5, 0.5)
    view = waterfall.waterfall(run.journal())
    (late,) = [row for row in view.rows() if row[1] == "late"]
    assert late[7] == "the parameters' arrival: sooner than the planned time"
    assert view.columns["dots"]["start"].tolist() == pytest.approx([3.0, 5.0])


def test_a_start_that_is_taken_back_is_no_start():
    """Revoked before it happened: no mark of a start, and the collector rests until now."""
    run = Run().task("a").sent("a", 1, 1.0, action="start", start_after_s=2.0)
    run.say(
        STREAM,
        words_of_warmup.RevokeStart(collector=0, node="n0", round=2, reason="the task is paused"),
        SettingChanged(t=6.0, key="x", value=0, task=None),
    )
    assert phases(waterfall.waterfall(run.journal()))[1:] == [("process ended", 1.0, 6.0)]


def test_experience_that_is_told_twice_counts_once():
    """A repeated message makes no second rest; a plan of another round changes nothing."""
    run = two_rounds()
    run.sent("a", 1, 9.6)
    view = waterfall.waterfall(run.journal())
    assert len([name for name, *_ in phases(view) if name == "acts"]) == 2


def test_who_is_kept_idles_and_who_rests_is_grey():
    """Kept: amber from sending to the parameters.  At rest: until the parameters come; it is never late."""
    run = Run().task("a").sent("a", 1, 1.0, action="keep", end=None, reason="never stopped").arrived("a", 3.0, 2)
    assert [name for name, *_ in phases(waterfall.waterfall(run.journal()))] == ["acts", "idle"]
    run = Run().task("a").sent("a", 1, 1.0, end=None).arrived("a", 3.0, 2)
    run.sent("a", 2, 6.0, collect=2.5, end=None)
    drawn = phases(waterfall.waterfall(run.journal()))
    assert [one for one in drawn if one[0] != "acts"][:1] == [("parked", 1.0, 3.0)]
    assert {name for name, *_ in drawn} == {"acts", "parked"}


def test_nobody_is_late_after_the_last_round():
    """The parameters of the last round arrive, and nobody acts on them: the rest ends in nothing."""
    run = Run().task("a").sent("a", 1, 1.0, action="end", end=None, reason="no round follows this one: nobody rests")
    run.arrived("a", 3.0, 2)
    run.say(STREAM, SettingChanged(t=60.0, key="x", value=0, task=None))
    assert [name for name, *_ in phases(waterfall.waterfall(run.journal()))] == ["acts"]


def test_numbers_and_sentence_by_hand():
    """Two starts, one in time: means of what the journal measured."""
    view = waterfall.waterfall(two_rounds().journal())
    assert view.value("starts") == 2
    assert view.value("on_time") == pytest.approx(0.5)
    assert (view.value("wait"), view.value("idle")) == (pytest.approx(0.25), pytest.approx(0.5))
    assert (view.value("late_s"), view.value("early_s")) == (pytest.approx(0.5), pytest.approx(1.0))
    assert view.sentence.startswith("2 starts: 50 % ready in time; rounds waited 250 ms for the last collector")


def test_collectors_that_stay_are_said_to_stay():
    """Where nothing is started the sentence says so."""
    run = Run().task("a").sent("a", 1, 1.0, end=None).arrived("a", 2.0, 2)
    assert "nothing is started" in waterfall.waterfall(run.journal()).sentence


def many_rounds(n):
    """Return rounds of 10 s that end like round 1 of `two_rounds`, every 4th late; each has a reason of its own."""
    run = Run().task("a")
    for k in range(1, n + 1):
        t, late_s = 10.0 * k, float(k % 4 == 0)
        run.sent("a", k, t + 1.0, collect=1.0, action="start", start_after_s=2.0, reason=f"saves {k} s", planner="saa")
        run.arrived("a", t + 5.0 - 2 * late_s, k + 1).ready("a", t + 4.0, 1.0)
        run.say(STREAM, words_of_warmup.WarmupMeasured(
            round=k + 1, wait_s=late_s, idle_s=1.0 - late_s, collectors=(0,), early_s=(1.0,), late_s=(late_s,)
        ))  # fmt: skip
    return run.journal()


@pytest.mark.thorough
def test_a_long_history_is_bounded_and_drawn_as_a_short_one(monkeypatch):
    """The newest rounds look alike, whatever was forgotten; the numbers say of how many rests they are."""
    journal = many_rounds(100)
    views = (waterfall.waterfall, waterfall.rounds)
    whole = [view(journal) for view in views]
    for module in (fold_of_warmup, waterfall):
        monkeypatch.setattr(module, "NEWEST", 20)
    fold = fold_of(journal)
    (attempt,) = fold.warmups["a"].values()
    for rows in (attempt.rests, attempt.starts, attempt.measured, attempt.versions):
        assert len(rows) == 20
    after = [view(fold) for view in views]
    assert phases(after[0]) == phases(whole[0])
    assert after[0].names == whole[0].names
    assert (after[0].value("on_time"), after[0].value("wait")) == pytest.approx((0.75, 0.25), abs=0.05)
    assert "the numbers are of the newest 20 rests at least" in after[0].notes[-1]
    assert after[0].sentence.startswith(f"newest {len(attempt.rests)} starts: 7")
    points = after[1].columns["points"]
    assert points["x"][-20:].tolist() == whole[1].columns["points"]["x"][-20:].tolist()


def test_no_rounds_at_all_are_refused():
    """The message has limit and value."""
    with pytest.raises(ValueError, match="n_rounds must be >= 1, got 0"):
        waterfall.waterfall(two_rounds().journal(), n_rounds=0)


# -- wait and idle time by start --------------------------------------------------------------------------------------
CANDIDATES = ((1.0, 0.0, 3.0), (2.0, 0.5, 1.0), (3.0, 1.0, 0.25), (None, 4.0, 0.0))


def weighed(**plan):
    run = Run().task("a").sent("a", 1, 1.0, action="start", start_after_s=3.0, candidates=CANDIDATES, **plan)
    return run.ready("a", 4.5, 0.5).arrived("a", 6.0, 2)


def line_of(view, label):
    (k,) = [k for k, line in enumerate(view.facts["lines"]) if line["label"].startswith(label)]
    points = view.columns["points"]
    mine = points["line"] == k
    return points["x"][mine].tolist(), points["y"][mine].tolist()


@pytest.mark.parametrize(
    ("rho", "cost", "best", "cold"),
    [(None, [3.0, 1.5, 1.25], 3.0, 4.0), (2.0, [3.0, 2.0, 2.25], 2.0, 8.0), (10.0, [3.0, 6.0, 10.25], 1.0, 40.0)],
)
def test_the_curve_by_hand(rho, cost, best, cold):
    """Cost = rho x wait + idle: dearer waits are met by earlier starts, with no new plan."""
    view = waterfall.curve(weighed().journal(), rho=rho)
    assert line_of(view, "cost") == ([1.0, 2.0, 3.0], cost)
    assert line_of(view, "least cost") == ([best], [min(cost)])
    assert line_of(view, "cold")[1] == [cold, cold]
    assert line_of(view, "keep")[1] == [5.0, 5.0], "sent at 1, parameters at 6"
    assert view.value("best") == best
    assert view.facts["slider"]["cold"] == [4.0, 0.0]
    assert any("because" in note for note in view.notes)


#: Beside CANDIDATES: standard errors of wait saved and idle time, and their correlation.
ERRORS = ((0.3, 0.4, 0.0), (0.3, 0.4, 1.0), (0.5, 0.0, 0.0), (0.0, 0.0, 0.0))


@pytest.mark.parametrize(("rho", "errors"), [(None, [0.5, 0.1, 0.5]), (2.0, [52**0.5 / 10, 0.2, 1.0])])
def test_the_band_is_one_standard_error_by_hand(rho, errors):
    """Of rho x saved - idle: sqrt(.09 + .16) = .5, |.3 - .4| = .1 where both rise together, .5; at rho 2 likewise."""
    view = waterfall.curve(weighed(candidate_errors=ERRORS, saved_s=2.75, saved_error_s=0.5).journal(), rho=rho)
    (k,) = [k for k, line in enumerate(view.facts["lines"]) if line["label"].startswith("cost")]
    points = view.columns["points"]
    mine = points["line"] == k
    low, y, high = (points[name][mine] for name in ("lo", "y", "hi"))
    assert (y - low).tolist() == pytest.approx(errors)
    assert (high - y).tolist() == pytest.approx(errors)
    others = ~mine
    assert np.isnan(points["lo"][others]).all()
    assert view.facts["slider"]["errors"] == [list(one) for one in ERRORS[:3]]
    assert (view.value("saved"), view.value("error")) == (2.75, 0.5)
    assert any("the band is one standard error" in note for note in view.notes)


def test_what_the_plan_chose_stays_where_the_price_moves():
    """Chosen at the task's rho of 1: 3 s after sending; at rho 10 that start costs 10.25 s, and 1 s would be best."""
    view = waterfall.curve(weighed().journal(), rho=10.0)
    assert line_of(view, "chosen by the plan") == ([3.0], [10.25])
    assert line_of(view, "least cost")[0] == [1.0]
    assert (view.facts["slider"]["at"], view.facts["slider"]["errors"]) == (2, [])
    cold = Run().task("a").sent("a", 1, 1.0, action="cold", candidates=CANDIDATES).arrived("a", 6.0, 2)
    assert "chosen by the plan" not in [line["label"] for line in waterfall.curve(cold.journal()).facts["lines"]]


def test_a_journal_without_errors_has_no_band():
    """The journal has them only in the plan's words: said, not invented."""
    view = waterfall.curve(weighed().journal())
    assert np.isnan(view.columns["points"]["lo"]).all()
    assert any("no band is drawn" in note for note in view.notes)
    assert view.value("saved") is None


def test_where_stopping_does_not_pay_the_curve_says_so():
    """A gap of 5 s, a start of 4.5 s and a cost of 1.25 s: not to stop is cheaper."""
    run = Run().task("a").sent("a", 1, 1.0, action="keep", candidates=CANDIDATES, start_after_s=None)
    run.starts("a", 1, 0.0)
    run.ready("a", 5.5, 4.5).arrived("a", 6.0, 2)
    assert "not to stop is cheapest (5.0 s idle" in waterfall.curve(run.journal()).sentence


def test_the_tasks_own_rho_is_the_newest_that_was_set():
    """A person's change counts."""
    run = weighed()
    run.say(STREAM, SettingChanged(t=7.0, key="warmup.rho", value=2.0, task=None))
    assert waterfall.curve(run.journal()).value("rho") == 2.0
    assert waterfall.curve(until(run.journal(), 6.5)).value("rho") == 1.0


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan"), float("inf")])
def test_a_price_must_be_above_nothing(rho):
    """The message has limit and value."""
    with pytest.raises(ValueError, match=f"rho must be finite and > 0, got {rho}"):
        waterfall.curve(weighed().journal(), rho=rho)


@pytest.mark.parametrize("view", [waterfall.curve, waterfall.rounds])
def test_an_unknown_task_is_refused(view):
    """The message has the known ones."""
    with pytest.raises(ValueError, match="task must be one of a, got 'x'"):
        view(weighed().journal(), "x")


def test_without_candidates_the_reason_stands_there():
    """A planner that weighs nothing has no curve, but it has said why."""
    view = waterfall.curve(two_rounds().journal())
    assert view.sentence == "no plan has weighed start times yet: 7 kept, 8 needed"
    assert not len(view.columns["points"]["x"])


# -- history and filter -----------------------------------------------------------------------------------------------
def test_kept_and_dropped_rounds_by_hand():
    """The newest plan looked at the last 3 rounds and kept 1 to 2 s; the rounds took 1, 2, 9 and 1.5 s."""
    run, t = Run().task("a"), 0.0
    for n, gap in enumerate([1.0, 2.0, 9.0, 1.5], start=1):
        run.sent("a", n, t, collect=0.1, planner="mine").arrived("a", t + gap, n + 1)
        run.starts("a", n, 0.0)
        run.ready("a", t + gap + 0.1, 0.1)
        t += gap + 1.0
    run.say(STREAM, words_of_warmup.WarmupRegimeEnded(round=4, n_kept=1, reason="gaps have moved"))
    run.sent("a", 5, t, planner="mine", reason="2 kept, 8 needed", filtered=(3, 1.0, 2.0))
    view = waterfall.rounds(run.journal())
    assert line_of(view, "kept")[0] == [2.0, 4.0]
    assert line_of(view, "dropped") == ([3.0], [pytest.approx(9.0)])
    assert line_of(view, "not looked at")[0] == [1.0]
    assert line_of(view, "regime ends in round 4: gaps have moved; 1 round kept")[0] == [4.0, 4.0]
    assert view.sentence == "a: 2 rounds kept, 1 dropped; the newest plan says: 2 kept, 8 needed"


def test_the_seeds_filter_is_over_whole_rounds():
    """Planner seed filters round times: from one arrival of parameters to the next."""
    run = Run().task("a")
    for n, t in enumerate([0.0, 3.0, 7.0], start=1):
        run.arrived("a", t, n)
        run.sent("a", n, t + 1.0, planner="patent", filtered=(2, 3.0, 3.0) if n == 3 else None)
    view = waterfall.rounds(run.journal())
    assert line_of(view, "kept") == ([1.0], [pytest.approx(3.0)])
    assert line_of(view, "dropped") == ([2.0], [pytest.approx(4.0)])
    assert view.facts["y"]["label"] == "whole round"


# -- starts -----------------------------------------------------------------------------------------------------------
def test_every_start_is_in_its_histogram():
    """Per node, mode and number at once; the bars add up to the starts."""
    run = Run().task("a")
    for t, start_s in enumerate([0.1, 0.2, 0.2, 2.0], start=1):
        run.ready("a", float(t), start_s)
    view = waterfall.starts(run.journal())
    assert [line["label"] for line in view.facts["lines"]] == ["node n0, spawn, 1 at once"]
    assert view.columns["points"]["y"].sum() == 4
    assert view.sentence == "4 starts: median 200 ms, 95 % below 1.7 s"


# -- against the machine ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def simulated():
    """Forty rounds of three collectors under the planner that filters."""
    outcome = simulate_warmup(WarmupWorkload(n_rounds=40, n_workers=3, seed=3), "patent")
    return Journal(streams={"warmup-sim": outcome.stream})


def test_drawn_idle_and_late_times_are_what_the_machine_measured(simulated):
    """Per round: the longest red bar is the wait, the amber ones divided by the collectors the idle time."""
    view = waterfall.waterfall(simulated, n_rounds=100)
    bars, names = view.columns["bars"], [series["name"] for series in view.facts["series"]]
    measured = {one.round - 1: one for one in simulated.of(words_of_warmup.WarmupMeasured)}
    assert len(measured) == 40
    for round_, one in measured.items():
        mine = bars["round"] == round_
        late = bars["held"][mine & (bars["series"] == names.index("late"))]
        idle = bars["held"][mine & (bars["series"] == names.index("idle"))]
        assert np.max(late, initial=0.0) == pytest.approx(one.wait_s, abs=1e-5)
        assert idle.sum() / 3 == pytest.approx(one.idle_s, abs=1e-5)


def test_a_recorded_filter_says_what_the_reason_says(simulated):
    """Drawn kept rounds are as many as the words say: "... of the last ... kept"."""
    view = waterfall.rounds(simulated)
    newest = simulated.of(words_of_warmup.WarmupPlanned)[-1]
    kept, looked = len(line_of(view, "kept")[0]), newest.filtered[0]
    counts = [line_of(view, name)[0] for name in ("dropped",) if any(
        line["label"] == name for line in view.facts["lines"])]  # fmt: skip
    assert kept + sum(map(len, counts)) == looked == 32
    assert newest.filtered[1] <= newest.filtered[2]


@pytest.mark.parametrize("view", [waterfall.waterfall, waterfall.curve, waterfall.rounds, waterfall.starts])
def test_every_form_says_where_it_comes_from(simulated, view):
    """Payload, figure, SVG, table and text say simulated, and the payload survives its trip."""
    one = view(simulated)
    header, buffers = one.payload()
    drawn = decode(header, buffers)
    assert {table: set(columns) for table, columns in drawn.items()} == {t: set(c) for t, c in one.columns.items()}
    assert json.loads(one.figure().to_json())["layout"]["meta"]["origin"] == "simulated"
    for form in (one.svg(), one.json(), one.html(), one.text(), header["origin"]):
        assert "simulated" in form
    assert all(column.definition and (column.unit or column.label) for column in one.table)
    assert all(text for *_, text in one.numbers.values()), "every number has its definition"


def test_two_attempts_are_one_history():
    """Rounds of a task that was started again come after those before it, whichever stream is heard first."""
    run = two_rounds().task("a", attempt=2)
    run.sent("a", 3, 20.0, stream="task-a-a2", planner="patent").arrived("a", 21.0, 4, stream="task-a-a2")
    journal = run.journal()
    turned = Journal(streams=dict(reversed(journal.streams.items())))
    assert {row[4] for row in waterfall.waterfall(journal).rows()} == {1, 2, 3}
    assert waterfall.waterfall(turned).digest() == waterfall.waterfall(journal).digest()
    assert fold_of(journal).warmups["a"].keys() == {1, 2}
