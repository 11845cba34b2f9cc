"""When a slot is asked for, and what has been sent to it."""

import pytest

from drlnb.planning.leasing.hold import Batch, HoldMachine, HoldView, hold_planner
from drlnb.planning.leasing.settings import HOLD_PLANNERS
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
    planner = hold_planner(name)
    assert planner.name == name
    plan = planner.plan(view(n_arrived))
    assert plan.action == action
    assert plan.reason


@pytest.mark.parametrize("name", HOLD_PLANNERS)
@pytest.mark.parametrize("has", [{"held": True}, {"requested": True}])
def test_a_slot_is_asked_for_once(name, has):
    """While one is held or asked for, things stay as they are."""
    assert hold_planner(name).plan(view(4, **has)).action == "keep"


def test_an_unknown_planner():
    """The message lists the names."""
    with pytest.raises(ValueError, match="one of round, yield, last, got 'best'"):
        hold_planner("best")


def test_batches_are_sent_once_per_lease():
    """Only what has not been sent goes out, in arrival order; a lost lease sends all again."""
    hold = HoldMachine(planner="round")
    first, second = (Batch(collector=i, key=f"k{i}", n_samples=1) for i in (1, 0))
    hold.add(first)
    assert hold.to_send() == ()
    assert not hold.held
    assert hold.request("a") == "a-1"
    hold.granted(Fence(epoch=1, token=1), "s", 2.0)
    assert hold.to_send() == (first,)
    hold.add(second)
    assert hold.to_send() == (second,)
    hold.computed(1, 0.5)
    hold.lost()
    assert hold.request("a") == "a-2"
    hold.granted(Fence(epoch=1, token=2), "s", 1.0)
    assert hold.to_send() == (first, second)
    assert (hold.computed_s, hold.waited_s) == (0.0, 3.0)
    assert hold.returned() == (Fence(epoch=1, token=2), 0.0)
    assert hold.next_round() == (first, second)
    assert hold.waited_s == 0.0
