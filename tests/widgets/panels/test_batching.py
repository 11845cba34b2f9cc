"""The batching panel: splits of simulated members, and those of a running task."""

import pytest

import drlnb
from drlnb.fleet.whatif import batching as whatif
from drlnb.records.errors import ConfigError
from drlnb.records.journal import line_of
from drlnb.runtime.files.run_directory import RunDir
from drlnb.views.folds.fold import fold_of
from drlnb.widgets import faces
from drlnb.widgets.panels.batching.running import Batching
from drlnb.widgets.panels.settings import UnknownSetting
from tests.fleet.conftest import header
from tests.views.batching import steps
from tests.views.batching.steps import FAST, SLOW, STORY
from tests.widgets.conftest import until
from tests.widgets.panels.test_distribution import press, told


@pytest.fixture
def panel():
    """Return the panel without a run: eight unequal members and no contention."""
    return faces.batching(family="static")


def sizes(panel):
    """Return the shares of each split, by its number."""
    points = panel.view("sizes").columns["points"]
    return {int(x): points["y"][points["x"] == x] for x in points["x"]}


def test_a_member_that_is_slowed_down_gets_less_and_the_others_more(panel):
    """From half time on, for 20 splits; every split's shares sum to the batch; reset, and nothing is left of it."""
    before = sizes(panel)
    assert press(panel, "slow") == "member 3 is slowed down"
    slowed = sizes(panel)
    assert all(split.sum() == 512 for split in slowed.values())
    assert all(slowed[at][3] < 0.65 * before[at][3] for at in range(53, 71))
    assert all(slowed[at][0] >= before[at][0] for at in range(53, 71))
    assert all((slowed[at] == before[at]).all() for at in range(1, 52))
    assert slowed[75][3] > 0.9 * before[75][3]
    assert press(panel, "reset") == "nobody is slowed down"
    assert all((sizes(panel)[at] == before[at]).all() for at in before)


def test_samples_that_are_not_used_stand_beside_every_picture(panel):
    """Where all are waited for there are none; of a quorum's late ones so many that they are red."""
    assert panel.view().value("lost") == 0
    panel.set(quorum=0.5, late="drop", planner="equal")
    for name in ("", "sizes", "shares", "speeds", "ledger"):
        view = panel.view(name)
        assert view.value("lost_frac") > 0.1
        assert view.header["bad"] == ["lost", "lost_frac"]
    ledger = panel.view("ledger").rows()
    assert sum(row[1] for row in ledger) == 512 * 100
    assert [row[0] for row in ledger] == ["used", "late"]


def test_planners_are_compared_on_the_same_speeds(panel):
    """No planner is faster than who knows the speeds before; a change of the fields makes it old."""
    assert panel.view("planners").sentence == "nothing yet: press Compare planners"
    assert press(panel, "compare") == "compared"
    rows = {row[0]: row for row in panel.view("planners").rows()}
    assert rows["clairvoyant"][2] == 1
    assert all(row[2] >= 1 for row in rows.values())
    assert rows["equal"][2] > 2.5
    assert rows["jump-reset"][2] < 1.1
    panel.set(family="memoryless")
    assert panel.content.facts()["notes"][-1] == "compared under former settings: press again"


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ({"planner": "equal"}, "by equal: A 64, B 64"),
        ({"speeds": (100.0, 50.0)}, "A 342, B 170 samples"),
        ({"speeds": (100.0,)}, "nothing to split: one member takes all"),
        ({"n_units": 8}, "A 2, B 1"),
        ({"quorum": 9}, "or a count from 2 to 8, got 9"),
        ({"slow": 8}, "slow must be from 0 to 7, or none, got 8"),
    ],
)
def test_every_control_moves_the_picture_and_the_code(panel, moves, said):
    """What cannot be is said in its place, and the copied lines give the same panel."""
    panel.set(**moves)
    assert said in panel.view().sentence.replace("A 341, B 171", "A 342, B 170")
    other = faces.batching(**panel.settings)
    for name in ("", "sizes", "shares", "speeds", "ledger"):
        assert other.view(name).digest() == panel.view(name).digest()
    panel.refresh()


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("speeds", "100, fast", "speeds must be 1 to 64 speeds > 0 in samples per second, got (100, 'fast')"),
        ("n_units", 0, "n_units must be a whole number in 1..1000000, got 0"),
        ("deadline_s", "-1", "deadline_s must be a number from 0 to 1e9, or none, got '-1'"),
        ("quorum", "1", "quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 64, got '1'"),
        ("times", 0.5, "times must be a number from 1 to 1000, got 0.5"),
    ],
)
def test_wrong_values_go_back_and_say_why(panel, field, typed, said):
    """Nothing is changed then."""
    before = panel.view().digest()
    panel.fields[field].field.value = typed
    assert panel.fields.facts()["refused"] == said
    assert panel.view().digest() == before
    with pytest.raises(UnknownSetting, match="did you mean 'planner'"):
        faces.batching(planer="equal")


def test_texts_are_read_as_what_they_mean(panel):
    """A quorum typed by hand is a fraction, or a count; none is nothing."""
    for field, typed, value in (("quorum", "0.75", 0.75), ("quorum", "6", 6), ("slow", "2", 2), ("slow", "none", None)):
        panel.fields[field].field.value = typed
        assert panel.settings[field] == value, panel.fields.facts()
    panel.fields["speeds"].field.value = "200, 100"
    panel.refresh()
    assert panel.settings["speeds"] == (200, 100)
    assert panel.fields["speeds"].field.value == "200, 100"


# ---------------------------------------------------------------------- of a run
def live(run, link, *records):
    """Return the panel of a run whose task `a` has said something."""
    panel = run.panel("batching")
    link.say(header("a"))
    told(link, "a", *records)
    until(lambda: panel.view() and panel.reader.fold.n_rows == 1 + len(records))
    return panel


def test_settings_are_tried_out_before_they_are_applied_to_the_task(run, link):
    """The fields follow the declarations; Apply sets what differs, once, and settles when it is in force."""
    panel = live(run, link, *STORY)
    assert panel.view().value("lost") == 60
    assert [one["reason"] for one in panel.content.facts()["buttons"]] == ["nothing was moved", "", ""]
    panel.fields["planner"].field.value = "equal"
    assert panel.content.case.wish == {"batching.planner": "equal"}
    assert panel.content.case.waits("planner")
    assert link.asked == []
    press(panel, "apply")
    assert link.asked == [("set", "batching.planner", "equal", "a")]
    told(link, "a", steps.changed(9.0, "planner", "equal"))
    until(lambda: panel.view() and panel.content.case.in_force("planner") == "equal")
    assert panel.settings == {}
    assert panel.content.case.in_force("planner") == "equal"
    assert not panel.content.case.waits("planner")
    assert panel.code().splitlines()[-1] == "run.set(\"batching.planner\", 'equal', task='a')"


def test_settings_of_few_values_are_choices(run):
    """As in the panel without a run; planners may have parameters behind their names, quorums are fractions or counts.

    Once a late mode and whether members steal were texts, which were wrong first and refused then.
    """
    fields = run.panel("batching").fields
    kinds = {name: type(fields[name].field).__name__ for name in ("late", "steal", "planner", "collect", "quorum")}
    assert kinds == {
        "late": "Dropdown",
        "steal": "Checkbox",
        "planner": "Combobox",
        "collect": "Combobox",
        "quorum": "Text",
    }
    assert fields["late"].field.options == ("cut", "drop")
    fields["steal"].field.value = True
    fields["late"].field.value = "drop"
    assert fields.values.wish == {"batching.steal": True, "batching.late": "drop"}


def test_a_member_of_a_run_is_slowed_down_by_mouse(run, link):
    """Whom the field names, or the last one; as long as the fields say; the line that does it is kept."""
    panel = run.panel("batching")
    assert panel.content.facts()["buttons"][1]["reason"] == "nobody has had a share yet"
    panel = live(run, link, *STORY)
    panel.refresh()
    slow = panel.content.facts()["buttons"][1]
    assert (slow["label"], slow["enabled"]) == (f"Slow learner {SLOW} x2 for 20 rounds", True)
    assert panel.fields["slow"].field.options == (FAST, SLOW)
    assert press(panel, "slow") == f"{SLOW} takes 2 x as long in 20 rounds, from the next one on (emulated)"
    panel.fields["slow"].field.value = FAST
    panel.fields["times"].field.value = 3.5
    panel.fields["n_slow"].field.value = 4
    assert panel.content.facts()["buttons"][1]["label"] == f"Slow learner {FAST} x3.5 for 4 rounds"
    press(panel, "slow")
    assert link.asked == [("slow", "a", SLOW, 2.0, 20), ("slow", "a", FAST, 3.5, 4)]
    assert panel.code().splitlines()[-1] == f"run.slow_down('{FAST}', 3.5, 4, task='a')"
    panel.fields["times"].field.value = 0.5
    assert panel.fields.facts()["refused"] == "times must be a number from 1 to 100, got 0.5"
    told(link, "a", steps.slowed(9.0, FAST, 3.5, 4))
    until(lambda: panel.view() and panel.view().origin == "emulated")


def test_collectors_are_slowed_down_where_they_are_shown(run, link):
    """The field names those that are drawn."""
    panel = live(run, link, *STORY, steps.steps_planned(30, 10), steps.arrived(9.0, 0, 2.5))
    panel.refresh()
    panel.fields["of"].field.value = "collectors"
    panel.refresh()
    assert panel.fields["slow"].field.options == ("0", "1")
    assert panel.content.facts()["buttons"][1]["label"] == "Slow collector 1 x2 for 20 rounds"
    press(panel, "slow")
    assert link.asked == [("slow", "a", "1", 2.0, 20)]


def test_learners_and_collectors_are_shown_apart(run, link):
    """Learners first, where several share; each kind has its own planner, which a comparison is of."""
    rounds = [steps.steps_planned(30, 10), steps.arrived(9.0, 0, 2.5), steps.arrived(9.5, 1, 3.0)]
    panel = live(run, link, *STORY, *rounds, steps.words.RoundClosed(round=0, n_samples=80))
    assert "among learners by jump-reset" in panel.view().sentence
    assert panel.content.case.planner == "jump-reset"
    panel.refresh()
    panel.fields["of"].field.value = "collectors"
    assert panel.view().sentence.startswith("a: split 1 among collectors by jump-reset: A 30, B 10 steps")
    assert panel.content.case.planner == "equal"
    assert panel.code() == "run.panel(\"batching\", of='collectors')"


def test_planners_are_tried_out_on_the_speeds_that_were_measured():
    """Two members, one four times as fast: equal shares take 2.5 times the optimum, as they would by hand."""
    records = []
    for n in range(1, 41):
        t = 2.0 * (n - 1)
        records += [
            steps.planned(n, 50, 50), steps.share(t + 0.5, n, FAST, 50, compute_s=0.5, elapsed_s=0.5),
            steps.share(t + 2.0, n, SLOW, 50, compute_s=2.0, elapsed_s=2.0), steps.closed(n, 100, 2.0),
        ]  # fmt: skip
    trace, gang = whatif.recorded(fold_of(steps.journal(records)).batchings["a"].roles["update"])
    assert trace.speeds == (100.0, 25.0)
    assert (gang.n_units, gang.overhead_s, gang.comm_s, trace.split_s) == (100, 0.0, 0.0, 2.0)
    came = {each.planner: each for each in whatif.compare(trace, gang)}
    assert came["equal"].split_s == pytest.approx(2.0)  # as it was recorded
    assert came["clairvoyant"].split_s == pytest.approx(0.8)
    assert came["jump-reset"].ratio == pytest.approx(1.0)


def test_the_calibration_is_of_what_is_in_force(run, link):
    """What the fields wish for is in the rows of the comparison, and not in how far it is from the record."""
    records = [steps.changed(0.0, "planner", "equal")]
    for n in range(1, 11):
        t = 2.0 * (n - 1)
        records += [
            steps.planned(n, 50, 50), steps.share(t + 0.5, n, FAST, 50, compute_s=0.5, elapsed_s=0.5),
            steps.share(t + 2.0, n, SLOW, 50, compute_s=2.0, elapsed_s=2.0), steps.closed(n, 100, 2.0),
        ]  # fmt: skip
    panel = live(run, link, *records)
    panel.set(planner="jump-reset", **({"quorum": 0.5, "late": "drop"} if "quorum" in panel.content.CHECKS else {}))
    assert press(panel, "compare") == "compared"
    assert panel.content.facts()["notes"][1] == (
        "the speeds of 9 recorded splits, played under each planner; as things are, equal comes out +0%"
    )


def test_what_cannot_be_tried_out_yet_is_said(run, link):
    """Before four splits, or with one member."""
    panel = live(run, link, *STORY[:4])
    assert "two members and 4 splits must have been measured, there are 0 and 0" in press(panel, "compare")


def test_a_recording_has_the_panel_and_cannot_be_changed(tmp_path, specs):
    """Its pictures are those of the journal; the button says what it is."""
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs]})
    stream = steps.journal(STORY).streams["task-a-a1"]
    text = "".join(map(line_of, (stream.header, *stream.records)))
    (folder.journal / "task-a-a1.jsonl").write_text(text, encoding="utf-8")
    play = drlnb.play(folder.path, speed=None)
    panel = play.panel("batching")
    assert isinstance(panel.content, Batching)
    assert panel.view("sizes").digest() == faces.panel(play, "batching").view("sizes").digest()
    assert panel.view().value("lost") == 60
    assert panel.content.facts()["buttons"][0]["reason"] == "this is a recording"


def test_a_task_without_splits_says_so(run):
    """In every picture."""
    panel = run.panel("batching")
    assert panel.view().sentence == "no split is over yet"
    panel.refresh()
    with pytest.raises(ConfigError, match="of must be one of learners, collectors"):
        panel.set(of="everybody")
