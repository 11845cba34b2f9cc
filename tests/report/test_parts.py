"""Which pictures a report has, and in which order."""

from drlnb.report.build import build
from drlnb.report.parts import MAX_TASKS, pictures
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from tests.report.test_build import warm_run
from tests.views.batching.steps import FAST, STORY
from tests.views.batching.steps import planned as planned_split
from tests.views.distribution.test_measured import version
from tests.views.journals import Run, two_tasks
from tests.views.placement import steps as placement
from tests.views.swapping.steps import planned, profiled, step


def views_of(run, **how):
    fold = Fold()
    fold.feed(entries_of(run.journal()))
    return pictures(fold, [], max_bars=2000, **how)


def test_sections_stand_in_their_order():
    """A section of one task has its number behind its name."""
    run = warm_run(2, 4)
    run.say("task-t1-a1", profiled(), planned(), step(9.0, 25, 2.0), *version(1, "n0", "n1"))
    names = list(views_of(run))
    per_task = ["history0", "curve0", "history1", "curve1", "swapping0", "steps0", "plan0", "lanes0"]
    of_all = ["tasks", "leases", "shares", "learning", "rounds", "topology", "warmup", "starts"]
    assert names == of_all + per_task


def test_without_a_lease_there_is_nothing_to_share():
    """What sharing was like is not drawn of a run that never held a slot."""
    names = list(views_of(Run().slot().task("a")))
    assert names == ["tasks", "leases", "learning", "rounds"]
    assert list(views_of(two_tasks())) == [*names[:2], "shares", *names[2:]]


def test_how_the_newest_version_spread_is_drawn_where_there_are_hosts_to_tell_apart():
    """One host is no picture; of a machine's name nothing is left in the page."""
    run = Run().task("a")
    run.say("task-a-a1", *version(1, "n0"))
    assert "topology" not in views_of(run)
    run.say("task-a-a1", *version(2, "n0", "n1"))
    heading, view = views_of(run)["topology"]
    assert heading == "How the newest version reached the hosts"
    assert view.sentence == "version 2 by relay:m=2, shard 0 of 2: 1 of 2 hosts complete after 500 ms (measured)"


def test_of_many_tasks_the_first_have_pictures_of_their_own():
    """The page stays short; the waterfall of more than two tasks shows fewer rounds of each."""
    many, few = (views_of(warm_run(n, 12)) for n in (MAX_TASKS + 1, 2))
    assert [name for name in many if name.startswith("history")] == [f"history{i}" for i in range(MAX_TASKS)]
    assert many["history3"][0] == "t3: rounds that plans rest on"
    shown = [len(set(views["warmup"][1].columns["bars"]["round"].tolist())) for views in (many, few)]
    assert shown == [8, 12]


def test_a_task_under_a_budget_has_its_steps_and_its_plan():
    """Before its profile the steps alone; a task without a budget has nothing."""
    run = Run().task("a").task("b")
    run.say("task-b-a1", step(9.0, 25, 2.0, plan="all"))
    assert list(views_of(run))[4:] == ["swapping0", "steps0"]
    run.say("task-b-a1", profiled(3.0), planned())
    views = views_of(run)
    assert views["plan0"][0] == "b: what its plan does with each saved storage, and why"
    assert [row[3] for row in views["plan0"][1].rows()] == ["swap", "keep", "keep"]
    assert views["swapping0"][1].origin == "measured"
    assert views["lanes0"][1].origin == "computed"


def test_splits_are_drawn_of_tasks_with_several_members():
    """Four pictures of three steps of two learners; one member alone has nothing to split."""
    run = Run().task("a").task("b")
    run.say("task-a-a1", *STORY)
    run.say("task-b-a1", planned_split(1, 100, members=(FAST,)))
    views = views_of(run)
    assert [name for name in views if name.endswith("0")] == ["shares0", "sizes0", "speeds0", "ledger0"]
    assert "shares1" not in views
    assert views["ledger0"][0] == "a, learners: what was used, and what was not"
    assert views["ledger0"][1].value("lost") == 60


def test_gangs_are_drawn_where_there_is_anything_to_place():
    """Of a gang of two that lost a slot; tasks of one slot each that were planned once are no picture."""
    run = Run()
    run.say(run.pool, *placement.STORY)
    views = views_of(run)
    assert {name: views[name][0] for name in ("gangs", "plans", "why0", "choice0")} == {
        "gangs": "Which slots each task had",
        "plans": "Plans of placement, and what each came after",
        "why0": "a: what its newest plan was weighed against",
        "choice0": "a: among which slots its newest plan chose",
    }
    alone = Run()
    alone.say(alone.pool, *placement.STORY[:5], placement.planned(1, "n0/cpu0"))
    assert "gangs" not in views_of(alone)


def test_pictures_of_placement_name_no_machine(tmp_path):
    """Slots are called after machines: in the page they have numbers."""
    run = Run()
    run.say(run.pool, *placement.story("gpubox17", "gpubox18"))
    report = build(run.journal(), tmp_path / "page.html")
    assert "gpubox" not in report.path.read_text(encoding="utf-8")
    assert "node1 cpu0" in report.path.read_text(encoding="utf-8")
