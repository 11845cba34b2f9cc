"""The placement panel: gangs that are played under a planner, and those of a run."""

import pytest

from drlnb.fleet.whatif import placement as whatif
from drlnb.widgets import faces
from drlnb.widgets.panels.settings import UnknownSetting
from tests.widgets.panels.test_distribution import press

PICTURES = ("", "gantt", "ratios", "regimes", "health", "hand")


@pytest.fixture
def panel(monkeypatch):
    """Return the panel without a run; few windows are played, on few paths."""
    for name, few in (("_MOST", 2), ("_PATHS", 1), ("_IN_MAP", 1), ("_HINDSIGHT", 2)):
        monkeypatch.setattr(whatif, name, few)
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
    assert facts["notes"][-1] == "compared under former settings: press Run again"


def test_where_awareness_is_worth_nothing_there_is_a_badge(panel):
    """At published rates, with hourly checkpoints."""
    panel.set(mtbf_days=1e5, checkpoint="1 h", locality_frac=0.0)
    press(panel, "run")
    assert panel.content.facts()["chips"] == ["null regime"]
    assert panel.content.facts()["sentence"].endswith(": null regime")
    panel.set(mtbf_days=3.0, checkpoint="none", lemons=0.1, spread=0.9)
    press(panel, "run")
    assert panel.content.facts()["chips"] == []


def test_the_map_has_a_cell_per_regime(panel):
    """Twelve of them; later settings make it old."""
    assert press(panel, "map") == "mapped"
    assert len(panel.view("regimes").rows()) == 12
    panel.set(spread=0.5)
    assert panel.content.facts()["notes"][-1] == "the map of regimes is of former settings: press again"


@pytest.mark.parametrize(
    "moves",
    [
        {"planner": "random"},
        {"order": "largest"},
        {"family": "all"},
        {"window": 200},
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


def test_slots_are_typed_for_four_jobs_and_scored(panel):
    """The planner's own are there at first; wrong ones are said in the picture."""
    assert panel.view("hand").sentence.startswith("by hand ")
    before = panel.view("hand").rows()
    assert before[0][1] == before[1][1]
    panel.fields["hand"].field.value = "n0/0-9"
    assert panel.view("hand").sentence == "slots are n0/0 to n7/7, several as n0/0-3, got 'n0/8'"
    panel.fields["hand"].field.value = "n0/0-7, n7/0-7"
    assert "x the best of 2 random, same faults" in panel.view("hand").sentence
    assert panel.view("hand").rows()[1:] == before[1:]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": 10**6}, "philly_sample.csv has 1734 jobs of a minute or more in family gang: no window of 16 from"),
        ({"trace": "no/such.csv"}, "no/such.csv cannot be read: No such file or directory"),
        ({"n_jobs": 512, "window": 1000}, "must have two windows of 512 jobs of family gang from job 1000 on"),
    ],
)
def test_what_cannot_be_played_is_said_in_every_picture(panel, settings, said):
    """And in the answer of the button."""
    panel.set(**settings)
    for name in {*PICTURES} - {"ratios", "regimes"}:
        assert said in panel.view(name).sentence
    assert said in press(panel, "run")
    panel.refresh()


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
