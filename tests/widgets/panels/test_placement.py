"""The placement panel: gangs that are played under a planner, and those of a run."""

import os
import re
from functools import partial

import pytest

from drlnb.fleet.cluster.breaking import NOT_OWN, break_slot
from drlnb.fleet.whatif import placement as whatif
from drlnb.records.errors import ConfigError
from drlnb.views.placement import measured
from drlnb.widgets import faces
from drlnb.widgets.panels.settings import UnknownSetting
from tests.views.journals import EPOCH
from tests.views.placement import steps
from tests.widgets.conftest import until
from tests.widgets.panels.test_distribution import press

PICTURES = ("", "gantt", "ratios", "choice", "regimes", "health", "seats", "hand")


@pytest.fixture
def panel(monkeypatch):
    """Return the panel without a run; few windows are played, on few paths."""
    monkeypatch.setattr(whatif, "_HINDSIGHT", 2)
    monkeypatch.setattr(whatif, "Windows", partial(whatif.Windows, n_windows=2, n_paths=1))
    return faces.placement(n_jobs=16)


def test_gangs_are_placed_at_once_and_planners_are_compared_at_a_click(panel):
    """Board and Gantt follow the fields; the sentence, and the badge, are of the settings as they are."""
    assert panel.view().sentence.startswith("after ")
    assert panel.view("gantt").sentence.startswith("16 jobs over after ")
    assert panel.view("ratios").sentence == "nothing yet: press Run"
    assert "sentence" not in panel.content.facts()
    assert press(panel, "run") == "compared"
    facts = panel.content.facts()
    assert facts["sentence"].startswith("at these settings failure awareness is worth ")
    assert facts["sentence"] == panel.view("ratios").sentence
    assert facts["notes"][1].startswith("ect takes 0.")
    assert [row[0] for row in panel.view("ratios").rows()] == [*whatif.PLANNERS, "best of 2 random"]
    panel.set(mtbf_days=337.0)
    facts = panel.content.facts()
    assert "sentence" not in facts
    assert "compared under former settings: press Run again" in facts["notes"]


def test_where_awareness_is_worth_nothing_there_is_a_badge(panel):
    """At published rates, with hourly checkpoints."""
    panel.set(mtbf_days=1e5, checkpoint="1 h", locality_frac=0.0)
    press(panel, "run")
    assert panel.content.facts()["chips"] == ["null regime"]
    assert panel.content.facts()["sentence"].startswith("null regime: at these settings")
    panel.set(mtbf_days=3.0, checkpoint="none", lemons=0.1, spread=0.9)
    press(panel, "run")
    assert panel.content.facts()["chips"] == []


def test_the_map_has_a_cell_per_regime(panel):
    """Twelve of them; later settings make it old."""
    assert press(panel, "map") == "mapped"
    assert len(panel.view("regimes").rows()) == 12
    panel.set(spread=0.5)
    assert "the map of regimes is of former settings: press again" in panel.content.facts()["notes"]


@pytest.mark.parametrize(
    "moves",
    [
        {"planner": "random"},
        {"order": "largest"},
        {"family": "all"},
        {"window": 20},
        {"n_jobs": 24},
        {"mtbf_days": 7.5},
        {"spread": 2.0},
        {"lemons": 0.2},
        {"checkpoint": "1 h"},
        {"locality_frac": 0.3},
    ],
    ids=lambda moves: next(iter(moves)),
)
def test_every_control_moves_the_pictures_and_the_code(panel, moves):
    """The copied lines give the same panel."""
    before = panel.view("gantt").digest()
    panel.set(**moves)
    assert panel.view("gantt").digest() != before
    panel.refresh()
    other = faces.placement(**panel.settings)
    for name in PICTURES:
        assert other.view(name).digest() == panel.view(name).digest()
    ((key, value),) = moves.items()
    assert (
        panel.code()
        == f"from drlnb.widgets.faces import placement\n\nplacement(n_jobs=16, {key}={value!r})".replace(
            "n_jobs=16, n_jobs", "n_jobs"
        )
    )


def test_the_moment_of_the_board_moves_the_board_alone(panel):
    """At the end nothing is busy any more."""
    digest = panel.view("gantt").digest()
    panel.set(at_frac=1.0)
    assert " 0 of 64 slots busy" in panel.view().sentence
    assert panel.view("gantt").digest() == digest


def test_the_next_placement_is_the_first_from_the_moment_of_the_board(panel):
    """A rule's slots with their failures; later moments have later plans, the end has none."""
    panel.set(at_frac=0.0)
    first = panel.view("choice")
    assert re.match(r"job \S+, at the start, by ect: n", first.sentence)
    assert "failures expected in 100 days" in first.sentence
    rows = first.rows()
    assert len(rows) == 64, "all are free at the start"
    assert {row[2] for row in rows} == {"of the gang", "could have been"}
    assert all(row[4] > 0 and row[3] is None for row in rows)
    panel.set(at_frac=0.5)
    assert panel.view("choice").sentence.split(" by ")[0] not in first.sentence
    panel.set(at_frac=1.0)
    assert panel.view("choice").sentence == "no gang is placed any more"


def test_a_network_says_with_which_probability_it_chose_each_slot(panel):
    """Of slots that a gang does not get they are those of its last member's choice: less than 1 with that one's."""
    panel.set(planner="learned", at_frac=0.0)
    view = panel.view("choice")
    taken, others = ([row[3] for row in view.rows() if row[2] == what] for what in ("of the gang", "could have been"))
    assert taken
    assert others
    assert all(0.0 < chance <= 1.0 for chance in taken)
    assert sum(chance or 0.0 for chance in others) < 1.0
    assert "(probability)" in view.sentence


def test_slots_are_typed_for_four_jobs_and_scored(panel):
    """The planner's own are there at first; wrong ones are said in the picture."""
    assert panel.view("hand").sentence.startswith("by hand ")
    before = panel.view("hand").rows()
    assert before[0][1] == before[1][1]
    panel.fields["hand"].field.value = "n0/0-9"
    assert panel.view("hand").sentence == "slots are n0/0 to n7/7, several as n0/0-3, got 'n0/8'"
    panel.fields["hand"].field.value = "n0/0-7, n7/0-7"
    assert "x the best of 2 random, same faults" in panel.view("hand").sentence
    assert "n0/0" not in str(panel.content.facts()["notes"])
    panel.content.tabs.selected_index = 4
    sentence, jobs = panel.content.facts()["notes"][-2:]
    assert sentence == panel.view("hand").sentence
    assert jobs.startswith("jobs to place: 1. 8 slots for ")
    assert panel.view("hand").rows()[1:] == before[1:]


def click(panel, name, slot):
    """Click a cell of a board as the page tells it; the pump takes the choice back, so that it can be made again."""
    node, _, i = slot.partition("/")
    widget = panel.pictures[name].widget
    lane = [lane["label"] for lane in panel.view(name).facts["lanes"]].index(node)
    widget._selection = f"{lane}@{int(i.removeprefix('cpu')) - 0.46:.3f}"
    panel.refresh()
    assert widget._selection == ""


def test_slots_are_clicked_for_the_first_job_that_lacks_one_and_taken_back(panel):
    """The text follows, and what was typed before; the first job wants eight slots."""
    click(panel, "seats", "n1/2")
    assert panel.settings["hand"] == "n1/2"
    assert panel.view("seats").sentence.startswith("job 1 needs 7 more, job 2 needs ")
    assert {row[1]: row[3] for row in panel.view("seats").rows() if row[3]} == {"n1/2": "job 1"}
    assert panel.view("hand").sentence == "job 1 needs 8 different slots, got n1/2"
    panel.set(hand="n0/0-7")
    click(panel, "seats", "n1/2")
    assert panel.settings["hand"] == "n0/0 n0/1 n0/2 n0/3 n0/4 n0/5 n0/6 n0/7, n1/2"
    click(panel, "seats", "n0/0")
    click(panel, "seats", "n1/2")
    assert panel.settings["hand"] == "n0/1 n0/2 n0/3 n0/4 n0/5 n0/6 n0/7"
    n = [job.n_slots for job in panel.content.case.tried.jobs[:4]]
    sets = [f"n{2 * i}/0-7 n{2 * i + 1}/0-{k - 9}" if k > 8 else f"n{2 * i}/0-{k - 1}" for i, k in enumerate(n)]
    panel.set(hand=", ".join(sets))
    assert panel.view("seats").sentence == "all jobs have their slots"
    click(panel, "seats", "n7/7")
    assert panel.fields.facts()["refused"] == "all 4 jobs have their slots: click one of them to take it back"
    assert panel.settings["hand"] == ", ".join(sets)
    panel.pictures["seats"].widget._selection = "9@-0.460"
    panel.pictures["seats"].widget._selection = "a bar"
    assert [*panel.messages] == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": 10**6}, "philly_sample.csv has 1734 jobs of a minute or more in family gang: no window of 16 from"),
        ({"trace": "no/such.csv"}, "no/such.csv cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_played_is_said_in_every_picture(panel, settings, said):
    """And in the answer of the button."""
    panel.set(**settings)
    for name in ("", "gantt", "choice", "seats", "hand"):
        assert said in panel.view(name).sentence
    panel.refresh()
    panel.set(trace="no/such.csv")
    assert "no/such.csv cannot be read" in press(panel, "run")


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("spread", 4.0, "spread must be a number from 0 to 3, got 4.0"),
        ("n_jobs", 4.0, "n_jobs must be a whole number in 8..512, got 4.0"),
        ("window", -1, "window must be a whole number in 0..1000000, got -1"),
    ],
)
def test_wrong_values_go_back_and_say_why(panel, field, typed, said):
    """Nothing is changed then."""
    control = panel.fields[field]
    (control._fields[-1]).value = typed
    assert panel.fields.facts()["refused"] == said
    assert field not in panel.settings or panel.settings[field] == 16
    with pytest.raises(UnknownSetting, match="did you mean 'planner'"):
        faces.placement(planer="ect")


# ---------------------------------------------------------------------- of a run
@pytest.fixture
def live(run, link):
    """Return the panel of a run whose pool has told the story of a gang that loses a slot."""
    panel = run.panel("placement")
    of = steps.journal(*steps.STORY).streams
    link.say(*({"s": name, **record.to_row()} for name in of for record in (of[name].header, *of[name].records)))
    until(lambda: panel.view() and panel.reader.fold.n_rows == 1 + len(steps.STORY))
    panel.refresh()
    return panel


def reasons(panel):
    """Return why each button is off, empty where it is on."""
    return {each["name"]: each["reason"] for each in panel.content.facts()["buttons"]}


def test_a_run_shows_its_gangs_and_why_they_are_where_they_are(live):
    """Board, Gantt, plans and reasons are those of the journal."""
    assert live.view().digest() == measured.board(live.reader.fold).digest()
    assert live.view("gantt").value("lost") == pytest.approx(0.3)
    assert live.content.facts()["notes"][0].startswith("a: n0/cpu0 n1/cpu0 by ect, after n0/cpu1 failed: executor died")
    assert len(live.view("plans").rows()) == 2
    assert live.view("choice").digest() == measured.choice(live.reader.fold, "a").digest()
    live.fields["task"].field.value = "b"
    assert live.view("why").sentence == "no gang is placed yet"


def test_a_cell_that_is_clicked_is_the_slot_of_the_buttons_and_its_gang_the_task(live):
    """A free one changes the slot alone."""
    live.fields["task"].field.value = "b"
    click(live, "", "n1/cpu1")
    assert (live.fields["slot"].field.value, live.steering.task) == ("n1/cpu1", "b")
    click(live, "", "n0/cpu0")
    assert (live.fields["slot"].field.value, live.steering.task) == ("n0/cpu0", "a")
    assert {each["name"]: each["label"] for each in live.content.facts()["buttons"]}["drain"] == "Drain n0/cpu0"


def test_the_planner_of_a_task_is_changed_once_it_is_applied(live, link):
    """Shown is what the newest plan was by; what waits has a mark, and is dropped when it is in force."""
    assert live.fields["planner"].field.value == "ect"
    assert reasons(live)["apply"] == "nothing was moved"
    live.fields["planner"].field.value = "pack"
    assert live.content.chosen.waits("planner")
    assert link.asked == []
    assert press(live, "apply") == "changed, from the next placement on"
    assert link.asked == [("set", "placement.planner", "pack", "a")]
    assert live.code().splitlines()[-1] == "run.set(\"placement.planner\", 'pack', task='a')"
    plan = steps.planned(3, "n1/cpu0", "n1/cpu1", planner="pack")
    rows = (steps.added(12.0, "n2/cpu0"), plan)
    link.say(*({"s": f"broker-e{EPOCH}", **record.to_row()} for record in rows))
    until(lambda: live.view() and live.content.chosen.in_force("planner") == "pack")
    assert live.settings == {}


def test_a_setting_of_the_pool_is_for_all_tasks(live, link):
    """Typed as text, applied as a number."""
    live.fields["locality_frac"].field.value = "0.2"
    live.fields["allowed"].field.value = "gang"
    press(live, "apply")
    assert sorted(link.asked) == [
        ("set", "placement.allowed", "gang", None),
        ("set", "placement.locality_frac", 0.2, None),
    ]
    live.fields["locality_frac"].field.value = "2"
    assert live.fields.facts()["refused"] == "locality_frac must be a number from 0 to 1, got '2'"


def test_slots_are_taken_out_and_put_back_and_only_own_ones_are_broken(live, link):
    """Draining asks first; the slot is the one of the field."""
    buttons = {each["name"]: each for each in live.content.facts()["buttons"]}
    assert buttons["drain"]["label"] == "Drain n0/cpu0"
    assert buttons["drain"]["confirm"] == "Lend n0/cpu0 no more?"
    assert buttons["break"]["confirm"]
    assert not buttons["undrain"]["confirm"]
    live.fields["slot"].field.value = "n1/cpu1"
    assert press(live, "drain") == "n1/cpu1 is lent no more"
    live.fields["slot"].field.value = "n0/cpu1"
    assert press(live, "undrain") == "n0/cpu1 is lent again"
    assert link.asked == [("set", "slot.drain", "n1/cpu1", None), ("set", "slot.undrain", "n0/cpu1", None)]
    assert reasons(live)["break"] == NOT_OWN
    assert NOT_OWN in press(live, "break")


def test_a_slot_without_a_process_is_not_broken():
    """Of a cluster of our own below which nobody computes on it."""

    class Handle:
        pid = os.getpid()

    class Own:
        handle = Handle()

    with pytest.raises(ConfigError, match="nothing is up on slot n7/cpu7 now"):
        break_slot(Own(), "n7/cpu7")
    with pytest.raises(ConfigError, match="only slots of a cluster that this process has started"):
        break_slot(None, "n7/cpu7")


def test_before_there_is_a_slot_the_panel_says_so(run):
    """Nothing can be taken out then."""
    panel = run.panel("placement")
    assert panel.view().sentence == "no slots yet"
    assert reasons(panel)["drain"] == "there is no slot yet"
    panel.refresh()
