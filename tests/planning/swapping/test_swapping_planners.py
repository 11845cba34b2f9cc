"""What leaves the device's memory: nothing."""

import pytest

from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapView
from drlnb.records.columns.swapping import SwapPlanned


def test_nothing_is_swapped():
    """No plan rides in the compute command."""
    assert SWAPPING.ask(SWAPPING.build("none"), SwapView(round=1)) == SwapPlan(key=None)


@pytest.mark.parametrize("plan", [None, SwapPlan(key=3)])
def test_a_plan_that_does_not_fit_is_refused(plan, monkeypatch):
    """A key is a text, or None."""
    planner = SWAPPING.build("none")
    monkeypatch.setattr(planner, "plan", lambda view: plan)
    with pytest.raises(PlannerFailed, match="swapping planner none: a plan must be a SwapPlan with a text or None"):
        SWAPPING.ask(planner, SwapView(round=1))


def test_a_plan_comes_back_from_the_journal():
    """From the decision's record."""
    planned = SwapPlanned(round=1, planner="own", plan_key="p")
    assert SWAPPING.recorded(SwapView(round=1), Answer([planned])) == SwapPlan(key="p")
    assert SWAPPING.recorded(SwapView(round=1), Answer()) is None
