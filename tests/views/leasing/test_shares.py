"""What sharing saved and cost, the queue, what each task was lent, and why: worked by hand."""

from dataclasses import replace

import pytest

from drlnb.records import round as words_of_round
from drlnb.records.columns import leasing as words
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal
from drlnb.sim.training.report import simulate_train
from drlnb.views.leasing import gantt
from tests.views.journals import Run


def three_leases():
    """One slot: a 0..2, b (asks at 1) 2..8, a again (asks at 3) 8..10; computed 1, 3, 1."""
    run = Run().slot().task("a").task("b")
    first = run.grant("a", 0.0, 0.0, run.ask("a", 0.0))
    waiting = run.ask("b", 1.0)
    _returned(run, "a", first, (0.0, 2.0), 1.0)
    second = run.grant("b", 2.0, 1.0, waiting)
    waiting = run.ask("a", 3.0, 1)
    _returned(run, "b", second, (2.0, 8.0), 3.0)
    _returned(run, "a", run.grant("a", 8.0, 3.0, waiting), (8.0, 10.0), 1.0)
    return run


def _returned(run, task, fence, span, computed):
    run.work(task, fence, span[1], computed)
    run.give_back(task, fence, span[1], span[0], computed)


def test_saved_seconds_and_their_price_by_hand():
    """A takes 10 s with 5 of waiting, b 6 s without: alone 5 + 6 = 11 s; rounds take (10/5 + 6/6) / 2 as long."""
    view = gantt.shares(three_leases().journal())
    assert view.value("shared_s") == pytest.approx(10.0)
    assert view.value("exclusive_s") == pytest.approx(11.0)
    assert view.value("times") == pytest.approx(1.1)
    assert view.value("inflation") == pytest.approx(1.5)
    assert view.value("saved") == pytest.approx(1.0 - 10.0 / 11.0)
    assert view.value("utilisation") == pytest.approx(0.5)
    assert view.sentence.startswith(
        "10.0 s shared, 11.0 s with a device per task in sequence (1.1x), 7.0 s co-located, time-sliced, modelled "
        "(0.7x); saved 9 %"
    )


def test_exclusive_never_stands_alone():
    """Co-located by hand, all from 0: a rests 1, computes 1, rests 2, computes 1; b rests 3, computes 3.

    Both compute from 4 on, at half speed: b has 2 s left then, so a ends at 6 and b, alone again, at 7.
    """
    view = gantt.shares(three_leases().journal())
    assert view.value("colocated_s") == pytest.approx(7.0)
    assert view.value("times_colocated") == pytest.approx(0.7)
    assert view.value("saved_colocated") == pytest.approx(1.0 - 10.0 / 7.0)
    label, _, _, definition = view.numbers["colocated_s"]
    assert label == "co-located, time-sliced, modelled"
    assert "share it evenly" in definition
    rows = {row[0]: row for row in view.rows() if row[0].startswith("co-located")}
    assert {name: row[1:4] for name, row in rows.items()} == {
        "co-located A": ["a co-located", 0.0, pytest.approx(6.0)],
        "co-located B": ["b co-located", 0.0, pytest.approx(7.0)],
    }
    assert all(row[4].startswith("modelled, time-sliced") for row in rows.values())


def test_co_located_on_two_devices_nobody_waits():
    """A device each: all that is left is the time alone."""
    run = three_leases().slot("n0/cpu1")
    assert gantt.shares(run.journal()).value("colocated_s") == pytest.approx(6.0)


def test_ghosts_stand_one_after_the_other():
    """Below the slot one row: a for 5 s, then b for 6, each marked as alone."""
    view = gantt.shares(three_leases().journal())
    ghosts = [row[:4] for row in view.rows() if row[0] == "exclusive 1"]
    assert ghosts == [["exclusive 1", "a alone", 0.0, 5.0], ["exclusive 1", "b alone", 5.0, 6.0]]
    assert [lane["kind"] for lane in view.facts["lanes"]] == ["slot", "ghost", "ghost", "ghost"]


def test_what_the_model_leaves_out_is_said():
    """Kernels side by side are not in it; virtual CPU devices and seats say so."""
    run = three_leases()
    notes = gantt.shares(run.journal()).notes
    assert any("kernels that a device runs side by side are not in it" in note for note in notes)
    assert any("virtual CPU devices" in note for note in notes)
    assert not any("several seats" in note for note in notes)


@pytest.mark.parametrize(("device", "virtual"), [("cuda:x", False), ("cpu:0", True)])
def test_seats_of_one_device_are_said(device, virtual):
    """What seats cost each other is in the recorded seconds."""
    run = Run().task("a")
    for i in range(2):
        run.say(
            run.pool, words.SlotAdded(t=0.0, slot=f"n0/s/{i}", node="n0", device=device, executor_epoch=1)
        )  # fmt: skip
    notes = gantt.shares(run.lease("a", 0.0, 0.0, 2.0, slot="n0/s/0").journal()).notes
    assert any("several seats" in note for note in notes)
    assert any("virtual CPU devices" in note for note in notes) == virtual


def test_two_devices_have_two_rows_and_two_seats_of_one_device_have_one():
    """Exclusive is a device per task: seats of a device are no more devices."""
    for devices, rows in ((("cuda:x", "cuda:y"), 2), (("cuda:x", "cuda:x"), 1), (("cpu", "cpu"), 2)):
        run = Run().task("a").task("b")
        for i, device in enumerate(devices):
            slot = words.SlotAdded(t=0.0, slot=f"n0/s/{i}", node="n0", device=device, executor_epoch=1)
            run.say(run.pool, slot)
        run.lease("a", 0.0, 0.0, 2.0, slot="n0/s/0").lease("b", 2.0, 2.0, 6.0, slot="n0/s/1")
        view = gantt.shares(run.journal())
        assert sum(lane["label"].startswith("exclusive") for lane in view.facts["lanes"]) == rows
        assert view.value("exclusive_s") == pytest.approx(4.0 if rows == 2 else 6.0)


def test_a_gang_alone_has_all_its_slots():
    """A task that takes two slots at a time has two rows alone."""
    run = Run().slot("n0/cpu0").slot("n0/cpu1").task("a")
    request = run.ask("a", 0.0)
    run.token += 1
    fence = Fence(epoch=1_000_000_000, token=run.token)
    slots = ("n0/cpu0", "n0/cpu1")
    run.say(
        run.pool,
        words.LeaseGranted(
            fence=fence, request_id=request, task="run/a", attempt=1, round=0, slots=slots, waited_s=0.0
        ),
        words.LeaseReturned(t=4.0, fence=fence, clean=True, computed_s=(2.0,)),
        words.LeaseReleased(fence=fence, task="run/a", slots=slots, held_s=4.0, computed_s=(2.0,), reason="returned"),
    )
    ghosts = [row for row in gantt.shares(run.journal()).rows() if row[0].startswith("exclusive")]
    assert [(row[0], row[3]) for row in ghosts] == [("exclusive 1", 4.0), ("exclusive 2", 4.0)]


def test_a_pause_is_no_part_of_a_round():
    """Paused from 2 to 6 in 0..8: a takes 4 s, not 8."""
    run = Run().slot().task("a").lease("a", 0.0, 0.0, 2.0)
    for t, phase in ((2.0, "paused"), (6.0, "collecting")):
        run.say("task-a-a1", words_of_round.PauseAsked(t=t), words_of_round.PhaseEntered(phase=phase, round=1))
    run.lease("a", 6.0, 6.0, 8.0, n=1)
    assert gantt.shares(run.journal()).value("exclusive_s") == pytest.approx(4.0)


def estimate(bound, utilisation, inflation):
    return words.LoadEstimated(
        n_tasks=2, n_slots=1, d_mean=0.4, bound_frac=bound, expected_utilisation_frac=utilisation,
        expected_inflation=inflation,
    )  # fmt: skip


@pytest.mark.parametrize("view", [gantt.shares, gantt.gantt])
def test_what_theory_expects_is_the_records_weighted_by_time(view):
    """Bound .8 for 2 s, then .4 for 6 s: .5; expected .6 and .2: .3; 2x and 1.2x: 1.4x."""
    run = Run().slot().task("a").task("b")
    run.say(run.pool, estimate(0.8, 0.6, 2.0))
    run.lease("a", 0.0, 0.0, 1.0).lease("b", 1.0, 1.0, 2.0)
    run.say(run.pool, SettingChanged(t=2.0, key="x", value=0, task=None), estimate(0.4, 0.2, 1.2))
    run.lease("a", 2.0, 2.0, 8.0, n=1)
    one = gantt.shares(run.journal())
    assert one.value("bound") == pytest.approx(0.5)
    assert one.value("expected") == pytest.approx(0.3)
    assert one.value("expected_inflation") == pytest.approx(1.4)


def test_without_estimates_nothing_is_expected():
    """No number is made up."""
    view = gantt.gantt(three_leases().journal())
    assert [view.value(key) for key in ("bound", "expected", "expected_inflation")] == [None, None, None]
    assert view.value("inflation") == pytest.approx(1.5)


def test_against_the_simulator():
    """Utilisation as the simulator reports it, and a price that is not below the one against tasks run alone."""
    result = simulate_train(3, 1, 12, hold="yield", seed=2)
    view = gantt.shares(Journal(streams=dict(result.streams)))
    assert view.value("utilisation") == pytest.approx(result.utilisation_frac, abs=1e-6)
    assert view.value("inflation") >= result.inflation * 0.98
    assert max(view.value("shared_s") / 3, view.value("shared_s") * 0.5) <= view.value("colocated_s")
    assert view.value("colocated_s") <= view.value("exclusive_s")


# -- forms -------------------------------------------------------------------------------------------------------------


def test_every_form_says_where_it_comes_from():
    """Figure, SVG, table and text say the origin; each number and column has a definition."""
    run = three_leases()
    run.streams = {name: (replace(header, origin="emulated"), of) for name, (header, of) in run.streams.items()}
    one = gantt.shares(run.journal())
    for form in (one.svg(), one.json(), one.html(), one.text(), one.figure().to_json()):
        assert "emulated" in form
    assert all(column.definition for column in one.table)
    assert all(text for *_, text in one.numbers.values())
