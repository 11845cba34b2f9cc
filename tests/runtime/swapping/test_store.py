"""Swap plans are kept by key, and are open during a training step of the executor."""

from contextlib import contextmanager

import pytest

from drlnb.runtime.swapping.store import SwapPlans


def test_without_a_key_nothing_is_put_around_a_step():
    """The plan of `none` has no key: the plans that are here stay closed."""
    plans, opened = SwapPlans(), []
    plans.put("a", lambda: opened.append("a"))
    with plans.around(None):
        assert opened == []
    assert opened == []


def test_an_unknown_plan_is_named():
    """With those that are here."""
    plans = SwapPlans()
    with pytest.raises(ValueError, match="no swap plan 'b' is here; known are none"):
        plans.around("b")
    plans.put("a", SwapPlans)
    with pytest.raises(ValueError, match="no swap plan 'b' is here; known are a"):
        plans.around("b")


def test_a_plan_is_open_around_each_training_step(child):
    """Staging and finishing a round alike; the parameters are those of a round without it."""
    steps = []

    @contextmanager
    def hook():
        steps.append("begin")
        yield
        steps.append("end")

    child.child.swaps.put("a", hook)
    child.round(swap_plan_key="a")
    assert steps == ["begin", "end"] * 3, "two batches and the finish"
