"""``planners="patent"`` where several learners share steps: whom they wait for, and that it is said where it is all."""

from dataclasses import replace

import pytest

from drlnb.fleet import launch
from drlnb.fleet.tasks.planners import chosen
from drlnb.fleet.tasks.run_spec import run_spec
from tests.fleet.conftest import small_task
from tests.fleet.fit.test_several_learners import asked, refused

HIS = {"batching.quorum": 0.5, "batching.deadline_s": 0.1}


@pytest.mark.parametrize(
    ("given", "batching"),
    [
        ({"n_learners": 4}, {"quorum": 0.75, "late": "drop"}),
        (
            {"n_learners": 4, "settings": {"batching.max_age_s": 2.0}},
            {"quorum": 0.75, "late": "drop", "max_age_s": 2.0},
        ),
        ({"n_learners": 4, "settings": {"batching.late": "cut"}}, {"quorum": 0.75, "late": "cut"}),
        ({"n_learners": 4, "settings": HIS}, {"quorum": 0.5, "deadline_s": 0.1}),
        ({"n_learners": 4, "settings": {"batching.quorum": 1.0}}, {"quorum": 1.0}),
        ({"n_learners": 4, "exact": True}, None),
        ({"n_learners": 3}, None),
        ({"n_learners": 2}, None),
    ],
)
def test_steps_wait_for_three_quarters_where_samples_may_be_left_out(given, batching):
    """What the user says of it stays; `exact`, or three quarters that are all, leave full synchrony."""
    spec = asked(planners="patent", **given).spec
    assert spec.planners["batching"] == "patent"
    assert spec.settings.get("batching") == batching


def test_one_learner_has_no_planner_of_shares():
    """Nobody would ask it, so the run does not name it, and waits for nobody."""
    begun = asked(planners="patent", n_learners=1)
    assert begun.spec.planners["batching"] == "jump-reset"
    assert "batching" not in begun.spec.settings
    assert chosen("patent").names["batching"] == "patent"
    assert run_spec([small_task()], chosen("patent")).planners["batching"] == "jump-reset"


def test_what_would_have_no_effect_is_refused_as_ever():
    """Three of three are waited for: a deadline would change nothing."""
    said = refused(planners="patent", n_learners=3, settings={"batching.deadline_s": 0.1})
    assert said.startswith("batching.deadline_s has no effect")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_learners": 4}, []),
        (
            {"n_learners": 3},
            ["patent: fit waits for all 3 learners, and leaves no sample out: three quarters of 3 are all"],
        ),
        (
            {"n_learners": 4, "exact": True},
            ["patent: fit waits for all 4 learners, and leaves no sample out: batching.quorum is 1.0"],
        ),
        ({"n_learners": 1}, []),
    ],
)
def test_full_synchrony_is_said_once(given, said, monkeypatch):
    """As the run is launched."""
    lines = []
    monkeypatch.setattr(launch, "say", lines.append)
    assert launch._of_patent(asked(planners="patent", **given).spec) == {}
    assert lines == said


def test_gangs_of_rounds_wait_for_all(monkeypatch):
    """Their shares are whole: nothing can be left out."""
    lines = []
    monkeypatch.setattr(launch, "say", lines.append)
    task = replace(small_task(), n_learners=2, n_collectors=2, n_envs=2)
    launch._of_patent(run_spec([task], chosen("patent")))
    waits = [line for line in lines if "waits for" in line]
    assert waits == [
        f"patent: {task.name} waits for all 2 learners, and leaves no sample out: the shares of a round stay whole"
    ]
