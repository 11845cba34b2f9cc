"""The lease Gantt: numbers worked by hand, equal in every form, honest when bars merge."""

import json

import numpy as np
import pytest
from hypothesis import given, settings

from drlnb.records.columns import leasing as words_of_leasing
from drlnb.records.common import SettingChanged
from drlnb.records.effect import NEXT_ROUND
from drlnb.records.journal import Journal
from drlnb.sim.costs import Costs
from drlnb.sim.training.fleet import run_tasks
from drlnb.views.leasing import gantt
from tests.views.journals import Run, runs, two_tasks
from tests.views.pictures import boxes_of
from tests.views.wire import decode


def test_numbers_by_hand():
    """A holds 0..2 and computes 1, b holds 2..8 and computes 3, of one slot that is there for 10 s."""
    view = gantt.gantt(two_tasks().journal())
    assert view.value("held") == pytest.approx(0.8)
    assert view.value("computing") == pytest.approx(0.4)
    assert view.value("utilisation") == pytest.approx(4 / 8)
    assert view.value("fairness") == pytest.approx(3.0)
    assert view.value("longest_wait_s") == pytest.approx(1.0)
    assert view.sentence == "0 of 1 slots busy; held 80 %, computing 40 % of the time shown"


def test_a_window_counts_what_lies_in_it():
    """Of the last 4 s (6..10), b held 2 and computed 2."""
    view = gantt.gantt(two_tasks().journal(), window_s=4.0)
    assert view.value("held") == pytest.approx(0.5)
    assert view.value("computing") == pytest.approx(0.5)
    assert [row[1] for row in view.rows()] == ["b"]


def test_every_slot_of_a_gangs_lease_counts():
    """Five rounds of four gradients of 1 s on two slots, then .5 s on the first: 2.5 s and 2 s of 2.5 s, by slot.

    One lease of one slot before, .5 s, makes the first parameters; leases take 2 ms more, for messages.
    """
    costs = Costs(collect_s=0.01, compute_s=4.0, finish_s=0.5, publish_s=0.001, collect_cv=0.0, service_cv=0.0)
    pool, (task,) = run_tasks(
        range(1), n_slots=2, n_rounds=5, n_collectors=4, hold="round", seed=1, costs=costs, config={"n_learners": 2}
    )
    journal = Journal(streams={each.host.stream.header.stream: each.host.stream for each in (pool, task)})
    view = gantt.gantt(journal)
    starts, stops = (view.columns["bars"][name] for name in ("start", "stop"))
    assert len(starts) == 1 + 2 * 5, "a bar for each slot"
    assert (stops - starts).sum() == pytest.approx(0.502 + 10 * 2.502, abs=0.001)
    span_s = stops.max() - starts.min()
    assert view.value("utilisation") == pytest.approx((0.5 + 5 * 4.5) / (2 * span_s), abs=0.001)
    work = view.columns["work"]
    by_lane = [float((work["stop"] - work["start"])[work["lane"] == lane].sum()) for lane in (0, 1)]
    assert by_lane == [pytest.approx(0.5 + 5 * 2.5, abs=0.001), pytest.approx(5 * 2.0, abs=0.001)]
    assert view.notes[0].endswith("100 % after the last"), "the second slot waits .5 s for the first one's parameters"
    assert [view.value(name) for name in ("bound", "expected")] == [None, None], "theory is of one slot a task"


def test_sentence_of_the_first_minute():
    """While a holds the only slot, b waits: the sentence of the tour."""
    run = Run().slot().task("a").task("b")
    run.grant("a", 0.0, 0.0, run.ask("a", 0.0))
    run.ask("b", 0.5)
    view = gantt.gantt(run.journal())
    assert view.sentence == "1 of 1 slots busy, 1 task waiting; held 100 %, computing 0 % of the time shown"
    assert len(view.columns["open"]["start"]) == len(view.columns["waiting"]["start"]) == 1
    assert view.value("longest_wait_s") == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [(Run(), "no leases yet: no slots yet"), (Run().slot(), "no leases yet: 0 of 1 slots busy")],
)
def test_sentences_before_the_first_lease(run, sentence):
    """Nothing to show is said in words."""
    assert gantt.gantt(run.journal()).sentence == sentence


def test_table_row_is_the_journals():
    """Fence, task, slot, granted, waited, held and computed in ms, as the records say."""
    view = gantt.gantt(two_tasks().journal())
    assert view.rows()[1] == ["#2", "b", "n0/cpu0", 2.0, 1000.0, 6000.0, 3000.0, "returned"]


def test_a_drain_is_drawn_and_ends():
    """An expired lease's slot is hatched until it is free again."""
    run = two_tasks()
    fence = run.grant("a", 11.0, 10.0, run.ask("a", 10.0, 5))
    run.say(
        run.pool,
        SettingChanged(t=12.0, key="x", value=0, task=None),
        words_of_leasing.LeaseExpired(fence=fence, task="run/a", slots=("n0/cpu0",), held_s=1.0, silent_s=1.0),
        words_of_leasing.SlotDrained(slot="n0/cpu0", reason="expired"),
        words_of_leasing.ExecutorIdled(t=13.0, slot="n0/cpu0"),
        words_of_leasing.SlotFreed(slot="n0/cpu0"),
    )
    view = gantt.gantt(run.journal())
    drains = view.columns["drains"]
    assert (drains["start"].tolist(), drains["stop"].tolist()) == ([12.0], [13.0])
    assert view.rows()[-1][-1] == "expired"


def test_what_the_browser_needs_to_count_a_part_of_the_picture_is_there():
    """Its shares are of all slots' seconds, so it must know how many slots there were."""
    facts = gantt.gantt(two_tasks().journal()).facts
    assert facts["slots"] == sum(lane["kind"] == "slot" for lane in facts["lanes"]) > 0


def test_a_changed_setting_is_a_mark():
    """A person's change stands in the picture at its time."""
    marks = gantt.gantt(two_tasks().journal()).facts["marks"]
    said = "hold: yield, from the next round on"
    assert {"t": 10.0, "label": "hold: yield", "said": said, "task": ""} in marks


def test_a_slot_that_is_gone_counts_no_more():
    """Seconds without a slot are in no share."""
    run = two_tasks()
    run.say(
        run.pool,
        words_of_leasing.SlotFailed(t=10.0, slot="n0/cpu0", reason="lost"),
        SettingChanged(t=20.0, key="x", value=0, task=None),
    )
    view = gantt.gantt(run.journal())
    assert view.value("held") == pytest.approx(0.8)
    assert view.value("slots") == 0


def test_a_slot_counts_from_when_it_came_up():
    """Two slots in 10 s, the second there from 4 to 9: 15 slot-seconds, of which 6 are held and 3 computed."""
    run = Run().slot().task("a")
    run.lease("a", 0.0, 0.0, 2.0, computed=1.0)
    run.slot("n1/cpu0", t=4.0)
    run.lease("a", 5.0, 5.0, 9.0, computed=2.0, slot="n1/cpu0", n=1)
    run.say(run.pool, words_of_leasing.SlotFailed(t=9.0, slot="n1/cpu0", reason="lost"))
    run.say(run.pool, SettingChanged(t=10.0, key="x", value=0, task=None))
    view = gantt.gantt(run.journal())
    absent = view.columns["absent"]
    assert (absent["start"].tolist(), absent["stop"].tolist()) == ([0.0, 9.0], [4.0, 10.0])
    assert absent["lane"].tolist() == [view.facts["lanes"].index({"label": "n1/cpu0", "kind": "slot"})] * 2
    assert view.value("held") == pytest.approx(6 / 15)
    assert view.value("computing") == pytest.approx(3 / 15)
    assert view.sentence.endswith("held 40 %, computing 20 % of the time that slots were there")


def test_shares_of_a_slot_that_came_late():
    """There from 4 to 12, held 6 to 8, of which 1 is computed: 2/8 and 1/8; from first grant to last release 1/2."""
    run = Run().slot(t=4.0).task("a")
    run.lease("a", 6.0, 6.0, 8.0, computed=1.0)
    run.say(run.pool, SettingChanged(t=12.0, key="x", value=0, task=None))
    view = gantt.gantt(run.journal())
    assert view.value("held") == pytest.approx(2 / 8)
    assert view.value("computing") == pytest.approx(1 / 8)
    assert view.value("utilisation") == pytest.approx(1 / 2)
    assert view.columns["absent"]["stop"].tolist() == [4.0]
    assert view.sentence == "0 of 1 slots busy; held 25 %, computing 13 % of the time that slots were there"


def test_marks_at_one_time_are_one_mark_in_print():
    """Three settings changed at once: one line, their number, and all of them as its title."""
    run = two_tasks()
    for key in ("a.b", "a.c"):
        run.say(run.pool, SettingChanged(t=10.0, key=key, value=1, task=None))
    picture = gantt.gantt(run.journal()).svg()
    assert "<title>b: 1, at once; c: 1, at once; hold: yield, from the next round on</title>" in picture
    assert picture.count("stroke-dasharray") == 1


def test_two_bars_of_a_millisecond_stay_apart_after_a_million_seconds():
    """Times travel relative to the first: nothing melts together late in a long run."""
    run = Run(start=1e6).slot(t=100.0).task("a")
    run.lease("a", 100.0, 100.0, 100.001).lease("a", 100.002, 100.002, 100.003, n=1)
    header, buffers = gantt.gantt(run.journal(), window_s=1.0).payload()
    bars = decode(header, buffers)["bars"]
    assert bars["start"][1] - bars["stop"][0] == pytest.approx(0.001, rel=0.02)


@settings(max_examples=5)
@given(run=runs())
def test_every_form_carries_equal_numbers(run):
    """Payload, figure, table and SVG draw the same bars and say the same origin."""
    view = gantt.gantt(run.journal())
    header, buffers = view.payload()
    bars = decode(header, buffers)["bars"]
    figure = json.loads(view.figure().to_json())
    traces = [trace for trace in figure["data"] if trace["meta"] == "bars"]
    plotted = sorted((base, width) for trace in traces for base, width in zip(trace["base"], trace["x"], strict=True))
    drawn = sorted(zip(bars["start"], bars["stop"] - bars["start"], strict=True))
    assert np.allclose(np.array(plotted), np.array(drawn), atol=1e-4)
    assert [row[3] for row in view.rows()] == pytest.approx(bars["start"].tolist(), abs=1e-4)
    assert [row[5] for row in view.rows()] == pytest.approx((bars["held"] * 1000).tolist(), rel=1e-5)
    assert len(boxes_of(view.svg())) >= len(bars["start"])
    for form in (
        header["origin"],
        figure["layout"]["meta"]["origin"],
        view.svg(),
        view.json(),
        view.html(),
    ):
        assert run.origin in form


@settings(max_examples=10)
@given(run=runs())
def test_shares_stay_between_nothing_and_all(run):
    """Held and computing are shares; nobody computes more than is held."""
    view = gantt.gantt(run.journal())
    held, computing = view.value("held"), view.value("computing")
    assert held is None or 0.0 <= computing <= held + 1e-6 <= 1.0 + 2e-6


@settings(max_examples=10)
@given(run=runs())
def test_work_lies_within_its_lease(run):
    """Bars of a lane do not overlap, and what was computed lies inside one of them."""
    columns = gantt.gantt(run.journal()).columns
    for lane in np.unique(columns["bars"]["lane"]):
        mine = columns["bars"]["lane"] == lane
        start, stop = columns["bars"]["start"][mine], columns["bars"]["stop"][mine]
        assert np.all(start[1:] >= stop[:-1] - 1e-6)
    for start, stop in zip(columns["work"]["start"], columns["work"]["stop"], strict=True):
        assert np.any((columns["bars"]["start"] <= start + 1e-6) & (start < stop))


def test_more_leases_than_bars_become_shares_and_say_so():
    """Of 400 leases the newest 40 are bars; of the others each task's seconds stay, and a note says how."""
    run = Run().slot().task("a").task("b")
    for n in range(400):
        run.lease("ab"[n % 2], n * 0.01, n * 0.01, n * 0.01 + 0.001 * (1 + n % 2), n=n)
    run.say(run.pool, SettingChanged(t=4000.0, key="x", value=0, task=None))
    view = gantt.gantt(run.journal(), max_bars=40)
    bars, shares = view.columns["bars"], view.columns["shares"]
    assert len(bars["start"]) == 40
    for task in (0, 1):
        widths = [float((of["stop"] - of["start"])[of["series"] == task].sum()) for of in (bars, shares)]
        assert widths == pytest.approx([0.02 * (1 + task), 0.18 * (1 + task)], abs=180 * 2.0**-20)  # ticks
    assert view.notes[0] == "up to 3.6 s, columns of 3.6 s to 3.6 s show each task's share of the time"


@pytest.mark.parametrize("window_s", [0.0, -1.0, float("nan")])
def test_a_window_must_be_above_nothing(window_s):
    """The message has limit and value."""
    with pytest.raises(ValueError, match=f"window_s must be > 0 s, got {window_s}"):
        gantt.gantt(two_tasks().journal(), window_s=window_s)


def test_a_loop_of_its_own_is_drawn_with_what_the_pool_knows():
    """A holder without a stream here: its seconds count as computed, drawn at the end of its lease, and it is named."""
    run = Run().slot().task("a")
    run.lease("a", 0.0, 0.0, 2.0, computed=1.0)
    fence = run.grant("mine", 2.0, 2.0, run.ask("mine", 2.0))
    run.give_back("mine", fence, 8.0, 2.0, 3.0)
    run.say(run.pool, SettingChanged(t=10.0, key="leasing.hold", value="yield", task=None, counts=NEXT_ROUND))
    view = gantt.gantt(run.journal())
    assert [style["name"] for style in view.facts["series"]] == ["a", "mine"]
    assert view.columns["work"]["start"].tolist() == [1.0, 5.0]
    assert view.columns["work"]["stop"].tolist() == [2.0, 8.0]
    assert view.value("computing") == pytest.approx(0.4)
    assert view.notes[0].startswith("mine: no task of this run; ")


def test_a_pool_without_a_run_is_drawn():
    """Only a loop's leases: the slot, its bar, its seconds."""
    run = Run().slot()
    fence = run.grant("mine", 0.0, 0.0, run.ask("mine", 0.0))
    run.give_back("mine", fence, 4.0, 0.0, 1.0)
    view = gantt.gantt(run.journal())
    assert view.rows()[0] == ["#1", "mine", "n0/cpu0", 0.0, 0.0, 4000.0, 1000.0, "returned"]
    assert view.value("computing") == pytest.approx(0.25)
