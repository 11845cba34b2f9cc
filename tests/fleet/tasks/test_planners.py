"""Planners are chosen by name, by entry point, or given as objects of the user's own."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from drlnb.fleet.tasks.planners import chosen, trained_for
from drlnb.fleet.tasks.run_spec import run_spec
from drlnb.planning.decisions import KINDS
from drlnb.planning.distribution import DISTRIBUTION, star
from drlnb.planning.placement import PlacementView
from drlnb.records.errors import ConfigError
from drlnb.rl.pickled import unpack
from drlnb.runtime.ipc.pickling import unpack_planners
from tests.fleet.conftest import small_task

GOLDEN = Path(__file__).parents[2] / "journals"


class Direct:
    """Sends to each host."""

    name = "direct"

    def plan(self, view):
        return star(len(view.hosts), view.model_bytes)


class Failing(Direct):
    def __init__(self):
        raise RuntimeError("no")


def test_patent_is_all_rules_of_the_patents():
    """Its planners, and collectors that end; `auto` is the defaults."""
    rules = chosen("patent")
    assert [rules.names[each] for each in ("hold", "warmup", "distribution")] == ["round", "patent", "relay"]
    assert rules.patent
    assert chosen("auto") == chosen({}) == chosen(None)
    assert not chosen({"hold": "round", "warmup": "patent"}).patent


@pytest.mark.parametrize("planner", [Direct, Direct()])
def test_an_object_or_a_class_is_a_planner(planner):
    """It travels as text; the others are the defaults."""
    rules = chosen({"distribution": planner, "collect": "proportional"})
    assert rules.names == chosen().names | {"distribution": "own:direct", "collect": "proportional"}
    assert list(rules.own) == ["distribution"]
    assert unpack(rules.own["distribution"]).name == "direct"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (3, "distribution planner must be a name, or an object or a class with a name and plan\\(view\\), got 3"),
        (object, "distribution planner must be a name, or an object"),
        (Failing, "distribution planner Failing cannot be made: RuntimeError: no"),
        ("chian", "multitree, got 'chian'; did you mean 'chain'?"),
        ("chain:m=2", "distribution planner chain takes c, got 'm'"),
    ],
)
def test_what_is_no_planner_is_refused(value, problem):
    """In one line."""
    with pytest.raises(ConfigError, match=problem):
        chosen({"distribution": value})


class Hears:
    """Would learn if anybody told it something."""

    name = "hears"

    def plan(self, view):
        raise NotImplementedError

    def observe(self, memory, report):
        raise NotImplementedError


@pytest.mark.parametrize("planner", [Hears, Hears()])
@pytest.mark.parametrize("decision", sorted(set(KINDS) - {"batching", "collect"}))
def test_what_would_learn_and_is_sent_no_reports_is_refused(decision, planner):
    """Not passed over in silence: nothing would ever call its ``observe``; for learners and collectors it is called."""
    problem = (
        f"{decision} planner hears has observe(memory, report), which nobody would call: "
        f"planners of {decision} are sent no reports, their views hold what was measured"
    )
    with pytest.raises(ConfigError) as error:
        chosen({decision: planner})
    assert str(error.value) == problem
    for hears in ("batching", "collect"):
        assert chosen({hears: planner}).names[hears] == "own:hears"


def test_a_planner_of_learners_needs_a_task_that_has_several():
    """It would be taken and never asked: one line says what serves collectors, where it was once the same word."""
    one = small_task()
    with pytest.raises(ConfigError) as error:
        run_spec([one], chosen({"batching": "proportional"}))
    assert str(error.value) == (
        "planners={'batching': 'proportional'}: no task has n_learners above 1: proportional shares a gradient among "
        "learners, and one computes it all; for steps of collectors: batching.collect, "
        "planners={'collect': 'proportional'}"
    )
    two = replace(one, n_learners=2, n_collectors=2, n_envs=2)
    assert run_spec([one, two], chosen({"batching": "proportional"})).planners["batching"] == "proportional"
    for planners in ({"batching": "equal"}, {"batching": "jump-reset"}, {"collect": "proportional"}, "patent"):
        assert run_spec([one], chosen(planners)).tasks == (one,)


def test_a_planner_that_cannot_travel_is_refused():
    """What keeps it from travelling is named."""
    planner = Direct()
    planner.lines = (line for line in "ab")
    with pytest.raises(ConfigError, match=r"cannot travel to another process: attribute 'lines' \(generator\)"):
        chosen({"distribution": planner})


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package with planners of its own; return its folder."""
    package = tmp_path / "elsewhere"
    (package / "planners_of_mine-1.dist-info").mkdir(parents=True)
    (package / "planners_of_mine-1.dist-info" / "METADATA").write_text("Name: planners_of_mine\nVersion: 1\n")
    (package / "planners_of_mine-1.dist-info" / "entry_points.txt").write_text(
        "[drlnb.planners]\n"
        "distribution.rotated = planners_of_mine:Rotated\n"
        "batching.broken = planners_of_mine:Broken\n"
        "batching.absent = planners_of_mine:Absent\n"
    )
    (package / "planners_of_mine.py").write_text(
        "class Rotated:\n"
        "    name, params = 'rotated', {'by': int}\n"
        "    def __init__(self, by): self.by = by\n"
        "    def plan(self, view): raise NotImplementedError\n"
        "class Broken:\n"
        "    name = 'broken'\n"
        "    def __init__(self): raise OSError('no disk')\n"
    )
    monkeypatch.syspath_prepend(package)
    return package


@pytest.mark.usefixtures("installed")
def test_an_entry_point_is_a_planner_by_name():
    """With its parameters; its class is rebuilt where it is needed."""
    rules = chosen({"distribution": "rotated:by=2"})
    assert rules.names["distribution"] == "own:rotated:by=2"
    assert unpack(rules.own["distribution"]).by == 2


@pytest.mark.parametrize(
    ("decision", "text", "problem"),
    [
        ("distribution", "rotated", r"distribution planner rotated needs by \(a whole number\)"),
        ("distribution", "rotated:by=x", "distribution planner rotated: by must be a whole number, got 'x'"),
        ("distribution", "rotatd:by=2", "multitree, got 'rotatd:by=2'; did you mean 'rotated'?"),
        ("batching", "broken", "batching planner 'broken' cannot be made: OSError: no disk"),
        ("batching", "absent", "batching planner 'absent' cannot be made: AttributeError"),
    ],
)
@pytest.mark.usefixtures("installed")
def test_an_entry_point_that_cannot_be_made_is_refused(decision, text, problem):
    """Planner and reason are named."""
    with pytest.raises(ConfigError, match=problem):
        chosen({decision: text})


def test_a_planner_is_rebuilt_where_it_is_asked():
    """Each process rebuilds those of its decisions alone."""
    own = chosen({"distribution": Direct()}).own
    rebuilt = unpack_planners({**own, "placement": "not rebuilt"}, ["distribution"])
    assert rebuilt.make(DISTRIBUTION, "own:direct").name == "own:direct"
    with pytest.raises(ValueError, match="placement planner cannot be rebuilt here"):
        unpack_planners({**own, "placement": "not text"}, ["placement"])


def test_the_placement_patent_is_trained_for_the_slots_of_a_run(monkeypatch, capsys):
    """Before it begins, which is said; a user's own planner of that decision, or a run that goes on, is left alone."""
    monkeypatch.setattr("drlnb.sim.placement.training.BEFORE_RUN_S", 0.05)
    rules = chosen({"placement": "patent"})
    assert rules.names["placement"] == "own:patent"
    assert rules.own == {}
    own = trained_for(lambda: ["n0/cpu1", "n0/cpu0"], rules.names, rules.own)
    assert "placement planner patent is trained for the 2 slots of this pool" in capsys.readouterr().err
    view = PlacementView(
        homes={"n0/cpu0": 0, "n0/cpu1": 0}, free_collectors={"n0": 4}, node="n0", n_collectors=1, n_learners=2
    )
    plan = unpack(own["placement"]).plan(view)
    assert sorted(plan.slots) == ["n0/cpu0", "n0/cpu1"]
    assert trained_for(lambda: ["n0/cpu0"], rules.names, own) is own
    assert trained_for(lambda: ["n0/cpu0"], chosen().names, {}) == {}


def test_the_placement_patent_is_trained_on_a_past_run(monkeypatch, capsys):
    """A run of two slots, each of which failed once: it goes by their names, on a pool that has one of them."""
    monkeypatch.setattr("drlnb.sim.placement.training.BEFORE_RUN_S", 0.05)
    name = f"patent:history={GOLDEN / 'faults'}"
    rules = chosen({"placement": name})
    assert (rules.names["placement"], rules.own) == (f"own:{name}", {})
    own = trained_for(lambda: ["n0/slot0", "n2/slot0"], rules.names, rules.own)
    assert capsys.readouterr().err.endswith(
        "planner patent is trained on 2 failures of 2 slots, 1 of them of this pool: 0.05 s\n"
    )
    planner = unpack(own["placement"])
    assert planner.name == name
    view = PlacementView(
        homes={"n0/slot0": 0, "n2/slot0": 0}, free_collectors={"n0": 4}, node="n0", n_collectors=1, n_learners=1
    )
    assert planner.plan(view).slots == ("n0/slot0",)
    with pytest.raises(ConfigError, match="faults knows slots n0/slot0, n1/slot0, this pool has n5/cpu0"):
        trained_for(lambda: ["n5/cpu0"], rules.names, {})


@pytest.mark.parametrize("folder", ["none", "."])
def test_a_past_run_that_is_none_is_refused_before_anything_is_started(folder, tmp_path, monkeypatch):
    """In one line that names it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^{re.escape(folder)}: no journal here") as refused:
        chosen({"placement": f"patent:history={folder}"})
    assert "\n" not in str(refused.value)


def test_the_patents_rules_are_all_of_them():
    """Of each decision that a patent is about; placement's is trained for the pool before the run."""
    names = chosen("patent").names
    assert names | {"collect": ""} == {
        "hold": "round",
        "warmup": "patent",
        "batching": "patent",
        "collect": "",
        "distribution": "relay",
        "swapping": "qtable",
        "placement": "own:patent",
    }
