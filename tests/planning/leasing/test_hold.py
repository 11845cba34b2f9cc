"""Hold planners ask for slots, and the hold machine follows what is sent to them."""

import pytest

from drlnb.planning.leasing.hold import Batch, Hold
from drlnb.planning.leasing.planners import HOLD, HoldPlan, HoldView
from drlnb.planning.leasing.settings import HOLD_PLANNERS
from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.records.columns.leasing import HoldPlanned
from drlnb.records.ids import Fence


def view(n_arrived=0, n_expected=4, *, held=False, requested=False):
    return HoldView(n_arrived=n_arrived, n_expected=n_expected, held=held, requested=requested)


@pytest.mark.parametrize(
    ("name", "n_arrived", "action"),
    [("round", 0, "wait"), ("round", 1, "request"), ("round", 4, "request"),
     ("last", 0, "wait"), ("last", 3, "wait"), ("last", 4, "request")],
)  # fmt: skip
def test_when_a_slot_is_asked_for(name, n_arrived, action):
    """`round` at the first of 4 arrivals, `last` at the fourth."""
    planner = HOLD.build(name)
    assert planner.name == name
    plan = planner.plan(view(n_arrived))
    assert plan.action == action
    assert plan.reason


@pytest.mark.parametrize("name", HOLD_PLANNERS)
@pytest.mark.parametrize("has", [{"held": True}, {"requested": True}])
def test_a_slot_is_asked_for_once(name, has):
    """While one is held or asked for, things stay as they are."""
    assert HOLD.build(name).plan(view(4, **has)).action == "keep"


def test_an_unknown_planner():
    """The message lists the names."""
    with pytest.raises(ValueError, match="one of round, yield, last, got 'best'"):
        HOLD.build("best")


def test_batches_are_sent_once_per_lease():
    """Only what has not been sent goes out, in arrival order; a lost lease sends all again."""
    hold = Hold()
    first, second = (Batch(collector=i, key=f"k{i}", n_samples=1) for i in (1, 0))
    hold.add(first)
    assert hold.to_send() == ()
    assert not hold.held
    assert hold.request("a") == "a-1"
    hold.granted(Fence(epoch=1, token=1), ("s",), 2.0)
    assert hold.to_send() == (first,)
    hold.add(second)
    assert hold.to_send() == (second,)
    hold.computed(1, 0.5)
    hold.lost()
    assert hold.request("a") == "a-2"
    hold.granted(Fence(epoch=1, token=2), ("s",), 1.0)
    assert hold.to_send() == (first, second)
    assert hold.computed_s == [0.0]
    assert hold.returned() == (Fence(epoch=1, token=2), (0.0,))
    assert hold.next_round() == (first, second)


class Greedy:
    """A planner of a user's own, without `yields`."""

    name = "greedy"

    def __init__(self, plan):
        self.made = plan

    def plan(self, view):
        return self.made


def test_a_users_own_planner_is_asked():
    """Its plan is what it returns."""
    plan = HoldPlan(action="wait", reason="greedy")
    assert HOLD.ask(Greedy(plan), Hold(streams=True).view(4)) == plan


@pytest.mark.parametrize(
    ("plan", "held", "problem"),
    [
        ("wait", False, "a plan must be a HoldPlan to request, wait, keep or return, got 'wait'"),
        (HoldPlan(action="take", reason=""), False, "a plan must be a HoldPlan to request, wait, keep or return"),
        (HoldPlan(action="request", reason=""), True, "it requests a slot while one is held or asked for"),
        (HoldPlan(action="return", reason=""), False, "it returns a slot while none is held"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan, held, problem):
    """The planner is named, and what is wrong."""
    hold = Hold()
    if held:
        hold.request("a")
        hold.granted(Fence(epoch=1, token=1), ("s",), 0.0)
    with pytest.raises(PlannerFailed, match=f"hold planner greedy: {problem}"):
        HOLD.ask(Greedy(plan), hold.view(4))


def test_a_plan_is_read_back_from_a_journal():
    """To keep things as they are leaves no record."""
    planned = HoldPlanned(round=1, action="return", planner="yield", reason="somebody waits")
    assert HOLD.recorded(view(), Answer([planned])) == HoldPlan(action="return", reason="somebody waits")
    assert HOLD.recorded(view(), Answer()).action == "keep"
