"""The swapping panel: plans of a network that is not there, and those of a running task."""

import threading

import pytest
from ipywidgets.widgets import widget as ipywidgets_widget

import drlnb
from drlnb.fleet.whatif import swapping as whatif
from drlnb.records.columns import swapping as words
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.widgets import faces
from drlnb.widgets.panels.settings import UnknownSetting
from drlnb.widgets.transport.live import Live
from tests.fleet.conftest import header, opened
from tests.planning.swapping.swap_words import SECOND, chain, profile, row
from tests.views.swapping.steps import MIB, planned, profiled, step
from tests.widgets.conftest import until
from tests.widgets.panels.test_distribution import press, told
from tests.widgets.panels.test_recorded_panels import recorded  # noqa: F401 - a fixture

#: A small network, so that planning it takes little: 2 GiB hold 5,161 samples, and these are two fifths more.
SMALL = {"net": "nature_cnn", "budget_mib": 2048.0, "planner": "capuchin", "batch": 7225}


@pytest.fixture
def panel():
    """Return the panel without a run, on a small network."""
    return faces.swapping(**SMALL)


def rows(panel, name="plan"):
    return {row[0]: row for row in panel.view(name).rows()}


def test_it_says_what_is_planned_and_every_picture_is_of_that_plan(panel):
    """All computed; what a button computes says which button before."""
    said = panel.view().sentence
    assert said.startswith("nature_cnn, 7,225 samples, capuchin: ")
    assert all(panel.view(name).sentence == said for name in ("plan", "lanes", "types"))
    assert panel.content.facts()["origin"] == "computed"
    assert panel.view("choices").sentence == "nothing yet: press Compare planners"
    assert panel.view("more").sentence == "nothing yet: press Time over budget"
    assert panel.view("time").sentence == "nothing yet: press Simulate drift"


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ({"planner": "all"}, "nature_cnn, 7,225 samples, all: swap "),
        ({"batch": 2580}, "nature_cnn, 2,580 samples, capuchin: keep "),
        ({"budget_mib": 4096.0}, "of 4.0 GiB"),
        ({"preset": "h200_tf32"}, "nature_cnn, 7,225 samples, capuchin: "),
        ({"pins": {"net.features.cnn.0#0": "keep"}}, "nature_cnn, 7,225 samples, capuchin: "),
        ({"net": "impala", "planner": "none"}, "impala, 7,225 samples, none: keep "),
        ({"show": "lanes"}, "show must be one of"),
        ({"show": "memory"}, "nature_cnn"),
    ],
)
def test_every_control_moves_pictures_and_code(panel, moves, said):
    """By hand and by `set` it is the same picture, and the copied lines give it once more."""
    if said.startswith("show must"):
        with pytest.raises(ConfigError, match=said):
            panel.set(**moves)
        return
    before, fields = panel.view("lanes").digest(), moves.keys() - {"pins"}
    for name, value in moves.items():
        if name in fields:
            panel.fields[name].field.value = value
        else:
            panel.set(**{name: value})
    assert said in panel.view().sentence
    assert (panel.view("lanes").digest() == before) == (moves.keys() <= {"show", "pins"})
    known = {}
    exec(panel.code(), known)
    other = faces.swapping(**panel.settings)
    assert other.view().digest() == panel.view().digest()
    assert other.view("more").digest() == panel.view("more").digest()
    panel.refresh()
    assert {name: panel.fields[name].field.value for name in moves.keys() & fields} == {
        name: value for name, value in moves.items() if name in fields
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": 0}, "batch must be a whole number in 1..16777216, got 0"),
        ({"net": "lenet"}, "net must be one of alexnet_224"),
        ({"budget_mib": -1.0}, "budget_mib must be a number from 0.015625 to 1.04858e6, got -1.0"),
        ({"pins": ["a"]}, "pins must be a mapping from row to action, got \\['a'\\]"),
        ({"planner": "clever"}, "swapping planner must be one of"),
        ({"pins": {"a": 1}}, "pins must be a mapping from row to action, got \\{'a': 1\\}"),
    ],
)
def test_wrong_settings_are_refused_with_limit_and_value(panel, given, said):
    """Nothing is changed then."""
    before = panel.view().digest()
    with pytest.raises(ConfigError, match=said):
        panel.set(**given)
    with pytest.raises(UnknownSetting, match="did you mean 'planner'"):
        faces.swapping(planer="all")
    assert panel.view().digest() == before


def test_what_cannot_be_planned_says_why_in_every_picture(panel):
    """And a button answers the same; nothing else breaks."""
    said = "the budget must hold nature_cnn and one sample, got 1 MiB"
    panel.set(budget_mib=1.0)
    for name in ("", "plan", "lanes", "types"):
        assert said in panel.view(name).sentence
    assert said in press(panel, "drift")
    assert press(panel, "freeze") == "there is no plan to pin"
    panel.refresh()


def knobs(panel):
    """Return name -> value of the parameters that are shown."""
    panel.refresh()
    shown = [name for name, box in panel.content.source.knobs.boxes.items() if box.layout.display != "none"]
    return {name: panel.fields[name].field.value for name in shown}


def test_the_parameters_are_those_of_the_planner(panel):
    """Moved by hand they stand in its name, which code can set as well; what takes none has no such controls."""
    assert knobs(panel) == {}
    panel.set(planner="qtable")
    seeds = {"w": 0.5, "epsilon": 0.2, "alpha": 0.5, "gamma": 0.9, "n_trials": 300}
    assert knobs(panel) == seeds
    panel.fields["w"].field.value = 0.3
    panel.fields["n_trials"].field.value = 50
    assert panel.settings["planner"] == "qtable:w=0.3,n_trials=50"
    assert panel.view().sentence.startswith("nature_cnn, 7,225 samples, qtable:w=0.3,n_trials=50: ")
    assert knobs(panel) == seeds | {"w": 0.3, "n_trials": 50}
    assert panel.fields["planner"].field.value == "qtable:w=0.3,n_trials=50"
    panel.set(planner="hybrid")
    assert knobs(panel) == {}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("epsilon", 2.0, "epsilon must be a number from 0 to 1, got 2.0"),
        ("gamma", -1.0, "gamma must be a number from 0 to 1, got -1.0"),
        ("n_trials", 1, "n_trials must be a whole number from 2 to 100000, got 1"),
        ("n_trials", 10**9, "n_trials must be a whole number from 2 to 100000, got 1000000000"),
    ],
)
def test_a_wrong_parameter_is_one_line_and_changes_nothing(panel, name, value, said):
    """What was planned stays."""
    panel.set(planner="qtable:alpha=0.4")
    before = panel.view().digest()
    panel.refresh()
    panel.fields[name].field.value = value
    (refusal,) = panel.fields.refusals.values()
    assert refusal == said
    assert len(panel.messages) == 0
    assert panel.settings["planner"] == "qtable:alpha=0.4"
    assert panel.view().digest() == before
    shown = knobs(panel)
    assert shown == whatif.parameters("qtable:alpha=0.4"), "what was wrong is gone, the line has it"
    panel.fields["batch"].field.value = -1
    panel.refresh()
    assert panel.fields["batch"].field.value == 7225


def test_the_table_stands_beside_the_cost_of_its_trials(panel):
    """A row per plan that ran, a column per layer type; both say how many trials there were."""
    assert panel.view("values").sentence == "nothing yet: press Learn"
    panel.set(planner="qtable:n_trials=50,w=0.25")
    assert "w = 0.25: in 50 trials, " in press(panel, "learn")
    table = panel.view("values")
    trials = [float(row[-1]) for row in panel.view("more").rows() if row[0] == "cost of the trial"]
    assert sum(int(row[2]) for row in table.rows()) == len(trials) == 50
    assert float(table.rows()[0][1]) == pytest.approx(min(trials), abs=1e-3)
    assert [column["kind"] for column in table.facts["cols"]].count("heat") == len(table.table) - 3
    assert "reset" not in {each["name"] for each in panel.content.facts()["buttons"]}, "nothing is kept"


def test_the_hub_never_waits_for_a_plan(panel, monkeypatch):
    """A thread of the panel's makes it; a former one is drawn meanwhile, as a note says; clicks have the new one."""
    first = panel.view().sentence
    monkeypatch.setattr(Live, "running", True)
    begun, may_end, explained = threading.Event(), threading.Event(), panel.content.source.explained

    def slowly():
        begun.set()
        assert may_end.wait(10)
        return explained()

    monkeypatch.setattr(panel.content.source, "explained", slowly)
    panel.set(planner="all")
    assert panel.view().sentence == first
    assert begun.wait(10)
    assert panel.content.facts()["notes"][:-1] == ["planning: until then a former plan is drawn"]
    may_end.set()
    until(lambda: panel.view().sentence.startswith("nature_cnn, 7,225 samples, all: "))
    assert panel.content.facts()["notes"][:-1] == []
    panel.set(planner="capuchin")
    until(lambda: panel.view().sentence == first)
    panel.set(planner="all")
    press(panel, "freeze")
    assert set(panel.settings["pins"].values()) == {"swap"}


def test_a_row_is_pinned_freed_and_all_are_frozen(panel):
    """The plan obeys at once; a row of the plan says what it is pinned to."""
    first = next(iter(rows(panel)))
    assert press(panel, "swap", row=first) == "1 rows are pinned"
    assert rows(panel)[first][3] == rows(panel)[first][6] == "swap"
    press(panel, "keep", row=first)
    assert rows(panel)[first][3] == "keep"
    press(panel, "free", row=first)
    assert panel.settings["pins"] == {}
    assert press(panel, "freeze") == f"{len(rows(panel))} rows are pinned"
    frozen = {name: row[3] for name, row in rows(panel).items()}
    panel.set(planner="all")
    assert {name: row[3] for name, row in rows(panel).items()} == frozen


def test_a_planner_of_the_comparison_is_pinned(panel):
    """Its plan is followed, whatever planner there is; a planner that nobody compared is refused."""
    said = press(panel, "compare")
    assert " is fastest of " in said
    assert panel.settings["show"] == "pareto"
    assert panel.view("choices").sentence == panel.view("more").sentence == said
    press(panel, "choose", row="all")
    assert {row[3] for row in rows(panel).values()} == {"swap"}
    assert press(panel, "choose", row="nobody") == "there is no plan to pin of 'nobody': press Compare planners"
    facts = panel.content.facts()
    assert facts["notes"][:-1] == ["of former settings, press again: Compare planners"]


def test_less_budget_is_a_slower_step_of_the_same_batch(panel):
    """The lesson of the slider: samples stay, and a step takes longer the less it may use."""
    panel.refresh()
    seconds, notes = [], set()
    for mib in (3000.0, 2600.0, 2200.0, 1800.0):
        panel.fields["budget_mib"].field.value = mib
        assert panel.view("plan").sentence.startswith("nature_cnn, 7,225 samples, capuchin: ")
        seconds.append(panel.view("memory").value("step"))
        notes.add(panel.content.facts()["notes"][-1])
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]
    assert len(notes) == 1, "neither does what one sample and all of them need"


def test_the_slider_reaches_from_one_sample_to_keeping_all(panel):
    """To the next step of it; a budget beyond is in force, too, and the slider shows it."""
    step = whatif.step_case("nature_cnn", 7225, 2**40, "2080ti")
    ends = [n_bytes / 2**20 for n_bytes in whatif.extremes(step)]
    panel.refresh()
    slider = panel.fields["budget_mib"].field
    assert not slider.continuous_update, "a page would write back what it has rounded"
    assert ends[0] / 2**slider.step <= 2**slider.min <= ends[0]
    assert ends[1] <= 2**slider.max <= ends[1] * 2**slider.step
    assert panel.content.facts()["notes"] == ["budget: 736.4 MiB hold one sample, 2.5 GiB keep all"]
    panel.set(budget_mib=30000.0)
    panel.refresh()
    panel.refresh()
    assert slider.value == 30000.0
    assert panel.view("memory").numbers["peak"][1] <= ends[1]


def test_a_front_has_a_line_per_planner_and_stays_while_the_budget_moves(panel):
    """From one sample to keeping all; only the mark of the budget moves, and nothing is computed anew."""
    press(panel, "front")
    before = panel.view("more")
    names = [line["label"] for line in before.facts["lines"]]
    assert names == ["none", "all", "vdnn_all", "capuchin", "auto"]
    marks = {mark["label"]: mark["t"] for mark in before.facts["marks"]}
    assert marks["one sample"] < marks["budget"] == 2048.0 < marks["keeping all"]
    panel.fields["budget_mib"].field.value = 1500.0
    after = panel.view("more")
    assert {mark["label"]: mark["t"] for mark in after.facts["marks"]} == {**marks, "budget": 1500.0}
    assert after.columns["points"]["y"].tobytes() == before.columns["points"]["y"].tobytes()
    assert not any("press again" in note for note in panel.content.facts()["notes"])
    panel.set(batch=5000)
    assert "of former settings, press again: Time over budget" in panel.content.facts()["notes"]


@pytest.mark.parametrize(("name", "show"), [("learn", "learnt"), ("drift", "time"), ("sweep", "sweep")])
def test_a_button_computes_and_shows_its_chart(panel, name, show):
    """The answer is the chart's sentence; the chart says where it comes from."""
    said = press(panel, name)
    assert panel.settings["show"] == show
    view = panel.view("more")
    assert view.sentence == said
    assert view.origin == ("computed" if name == "sweep" else "simulated")
    panel.refresh()
    assert panel.fields["show"].field.value == show


def test_closing_leaves_no_model():
    """Fields, tabs and pictures are gone, and the numbers still answer."""
    before = set(ipywidgets_widget._instances)
    panel = faces.swapping(**SMALL)
    assert faces.swapping(**SMALL) is panel
    panel.close()
    assert set(ipywidgets_widget._instances) == before
    assert panel.to_dict()["view"]["origin"] == "computed"
    assert panel._repr_mimebundle_()[0]["text/html"].count('class="drlnb-view"') == 4, "those that show something"


# ---------------------------------------------------------------------- of a run
@pytest.fixture
def belted(run, link):
    """Return the panel of a run whose task `a` has a plan and a step."""
    panel = run.panel("swapping")
    link.say(header("a"), opened("a"))
    budget = SettingChanged(t=0.5, key="swapping.memory_budget_bytes", value=64 * MIB, task="a")
    told(link, "a", budget, profiled(of=chain(fixed_bytes=1.0)), planned(), step(10.0, 28, 2.0))
    until(lambda: panel.view().value("peak"))
    panel.refresh()
    return panel


def test_a_run_shows_its_steps_and_the_plan_in_force(belted):
    """Peaks are measured, the plan is the journal's; the fields say what is in force."""
    assert belted.view().sentence.startswith("a: plan ")
    assert belted.view().origin == "measured"
    assert [row[3] for row in belted.view("plan").rows()] == ["swap", "keep", "keep"]
    facts = belted.content.facts()
    assert facts["origin"] == "measured and computed"
    assert facts["notes"][0].startswith("plan: a, auto: keep 2, swap 1")
    assert belted.fields["budget_mib"].field.value == pytest.approx(64)
    assert belted.view("memory").origin == "computed and measured"
    assert belted.code() == 'run.panel("swapping")'
    assert {one["name"]: one["reason"] for one in facts["buttons"]}["apply"] == "nothing was moved"
    belted.fields["task"].field.value = "b"
    assert belted.view().sentence == "no step is planned: there is no memory budget, or no step yet"
    assert "no step has been profiled yet" in belted.view("plan").sentence


def test_a_pin_names_the_whole_storage_though_the_row_is_short(run, link):
    """The row says `conv#0`, the setting `net.conv#0`."""
    panel = run.panel("swapping")
    net = profile([row("net.conv", -1, 0), row("net.relu", 0, 1)], [SECOND] * 2)
    link.say(header("a"), opened("a"))
    told(link, "a", profiled(of=net), planned(None))
    until(lambda: panel.view("plan").rows())
    assert [line[0] for line in panel.view("plan").rows()] == ["conv#0", "relu#0"]
    press(panel, "swap", row="conv#0")
    assert link.asked == [("set", "swapping.pin", {"net.conv#0": "swap"}, "a")]


def test_a_budget_is_looked_at_before_it_is_applied(belted, link):
    """Moving asks for nothing and shows what would be planned; Apply asks once, and its line is copied."""
    belted.fields["planner"].field.value = "all"
    belted.fields["budget_mib"].field.value = 32.0
    assert link.asked == []
    assert belted.content.facts()["notes"][0].startswith("preview: a, all: swap 3; predicted ")
    assert [row[3] for row in belted.view("plan").rows()] == ["swap"] * 3
    assert press(belted, "apply") == "changed, from the next training step on"
    assert link.asked == [
        ("set", "swapping.memory_budget_bytes", 32 * MIB, "a"), ("set", "swapping.planner", "all", "a"),
    ]  # fmt: skip
    assert marked(belted) == {"budget_mib", "planner"}, "asked for, not in force yet"
    assert belted.code().splitlines()[1:] == [
        f"run.set(\"swapping.memory_budget_bytes\", {32 * MIB}, task='a')",
        "run.set(\"swapping.planner\", 'all', task='a')",
    ]
    told(link, "a", SettingChanged(t=3.0, key="swapping.memory_budget_bytes", value=32 * MIB, task="a"))
    until(lambda: belted.view().value("budget") == 32)
    belted.refresh()
    assert belted.fields["budget_mib"].field.value == pytest.approx(32)
    assert marked(belted) == {"planner"}
    assert belted.settings == {"planner": "all"}


def marked(panel):
    """Return the fields that are marked as chosen and not in force."""
    panel.refresh()
    return {name for name in ("planner", "budget_mib") if "drlnb-chosen" in panel.fields[name].field._dom_classes}


def test_a_parameter_of_a_run_is_looked_at_before_it_is_applied(belted, link):
    """It is the planner's name that changes: one setting."""
    belted.fields["planner"].field.value = "qtable"
    belted.refresh()
    belted.fields["w"].field.value = 0.8
    assert link.asked == []
    assert belted.content.facts()["notes"][0].startswith("preview: a, qtable:w=0.8: ")
    press(belted, "apply")
    assert link.asked == [("set", "swapping.planner", "qtable:w=0.8", "a")]


def learned(number, value):
    return words.SwapLearned(
        trial=number, plan_key="p", cost=1.0 + number, units=("a", "b"), row="10", unit="a", value=value
    )  # fmt: skip


def reset_reason(panel):
    return {one["name"]: one["reason"] for one in panel.content.facts()["buttons"]}["reset"]


def test_what_a_run_has_learned_is_measured_and_reset_forgets_it(belted, link):
    """The table and the cost of each trial; one setting of the task, whose line can be copied."""
    assert reset_reason(belted) == "auto learns nothing"
    assert belted.view("values").sentence == "nothing yet: press Learn"
    told(link, "a", SettingChanged(t=3.0, key="swapping.planner", value="qtable:w=0.2", task="a"), learned(1, 0.5),
         learned(2, 0.75))  # fmt: skip
    until(lambda: belted.view("values").sentence.startswith("a, qtable:w=0.2: 1 value of 1 row; the newest is 0.750"))
    assert belted.view("values").origin == belted.view("learnt").origin == "measured"
    said = "a, qtable:w=0.2: in 2 trials, 0 % of them chosen by chance, the least costs 2.000"
    assert belted.view("learnt").sentence == said
    assert reset_reason(belted) == ""
    assert press(belted, "reset") == "changed, from the next training step on"
    assert link.asked == [("set", "swapping.planner", "qtable:w=0.2", "a")]
    assert belted.code().splitlines()[1:] == ["run.set(\"swapping.planner\", 'qtable:w=0.2', task='a')"]
    told(link, "a", SettingChanged(t=4.0, key="swapping.planner", value="qtable:w=0.2", task="a"))
    until(lambda: belted.view("values").sentence == "nothing yet: press Learn")


def test_pins_of_a_run_are_one_setting(belted, link):
    """A row, all rows as they are, or a compared plan: each is one change of the task."""
    said = "changed, from the next training step on"
    assert press(belted, "keep", row="l0#0") == said
    assert press(belted, "freeze") == said
    assert " that fit: " in press(belted, "compare")
    assert press(belted, "choose", row="all") == said
    assert [asked[1:] for asked in link.asked] == [
        ("swapping.pin", {"l0#0": "keep"}, "a"),
        ("swapping.pin", {"l0#0": "swap", "l1#0": "keep", "l2#0": "keep"}, "a"),
        ("swapping.pin", dict.fromkeys(("l0#0", "l1#0", "l2#0"), "swap"), "a"),
    ]


def test_a_recording_has_the_panel_but_changes_nothing(recorded):  # noqa: F811
    """Rows have no buttons, Apply and Freeze say what it is."""
    panel = drlnb.play(recorded, speed=None).panel("swapping")
    reasons = {one["name"]: one["reason"] for one in panel.content.facts()["buttons"]}
    assert reasons["apply"] == reasons["freeze"] == "this is a recording"
    assert press(panel, "freeze") == "pin rows: this is a recording: nothing can be changed"
    assert press(panel, "compare").startswith("no step has been profiled yet")
