"""A master keeps the plans of swapping that commands under way may name."""

from types import SimpleNamespace

from drlnb.records.columns.swapping import ApplySwapPlan
from drlnb.runtime.master.slot_effects import SlotEffects


def test_the_latest_plans_are_kept_and_one_that_comes_back_is_the_latest():
    """Eight of them: a task that is planned for again and again does not grow."""
    slot = SlotEffects(SimpleNamespace())
    for key in ["none", *"abcdefg", "none", *"hij"]:
        slot.apply_plan(ApplySwapPlan(plan_key=key, plan={"of": key}))
    assert slot._plans == {key: {"of": key} for key in [*"defg", "none", *"hij"]}
