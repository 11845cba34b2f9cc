"""A machine asks the planners that it is given, and a plan that does not fit is refused by name."""

import pytest
from warmup_words import Starts, only

from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.planning.warmup import WARMUP, WarmupMachine, WarmupPlan, WarmupView
from drlnb.records.columns.warmup import StartCollector, WarmupPlanned
from tests.matches import like


class Fixed:
    """A planner that always returns the same."""

    name = "fixed"

    def __init__(self, made):
        self.made = made

    def plan(self, view):
        assert isinstance(view, WarmupView)
        return self.made


def task_with(made):
    """Return a task whose collectors are up and act in round 1, with a planner of its own."""
    task = Starts(2)
    task.copied = False
    task.machine = WarmupMachine(task.config, build=lambda name: Fixed(made))
    return task.open()


def test_a_users_own_planner_plans_the_starts():
    """Each collector starts 1.5 s after its own sending, the second one half a second later."""
    task = task_with(WarmupPlan(action="start", reason="mine", start_after_s=1.25, offsets_s=(0.25, 0.75), lead_s=1.0))
    out = task.arrived(0, at=3.0)
    assert only(WarmupPlanned, out) == like(WarmupPlanned, action="start", reason="mine", start_after_s=1.5)
    assert only(StartCollector, out).after_s == 1.5
    assert only(StartCollector, task.arrived(1, at=3.5)).after_s == 2.0


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ("later", "a plan must be a WarmupPlan to start cold, start or keep, got 'later'"),
        (WarmupPlan(action="start", reason="", offsets_s=(1.0,)), "offsets_s must be one for each of 2 workers, got 1"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(made, problem):
    """The planner is named, and what is wrong."""
    task = task_with(made)
    with pytest.raises(PlannerFailed, match=f"warmup planner fixed: {problem}"):
        task.arrived(0, at=3.0)


def test_a_plan_is_read_back_from_a_journal():
    """The first collector's record holds what the plan was; without one there is none."""
    planned = WarmupPlanned(
        round=3, collector=1, action="start", planner="saa", reason="saves 1 s", start_after_s=2.0, lead_s=1.0,
        candidates=((None, 1.0, 0.0),), filtered=(8, 5.0, 6.0), saved_s=1.0,
    )  # fmt: skip
    view = WarmupView()
    assert WARMUP.recorded(view, Answer([planned])) == WarmupPlan(
        action="start", reason="saves 1 s", start_after_s=2.0, lead_s=1.0, candidates=((None, 1.0, 0.0),),
        filtered=((8, 5.0, 6.0),), saved_s=1.0,
    )  # fmt: skip
    assert WARMUP.recorded(view, Answer()) is None
