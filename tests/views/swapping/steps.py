"""A task's steps under a chain of three layers that can be worked by hand, as its journal says them."""

from drlnb.planning.swapping import SwapPlan, facts
from drlnb.planning.swapping.profile import SWAP
from drlnb.records.columns import swapping as words
from drlnb.records.common import SettingChanged
from tests.planning.swapping.swap_words import acting, chain
from tests.views.journals import Run

MIB = 2**20
#: Three layers of 10 MiB each: 1 s forward, 2 s backward, a copy takes 1 s.
NET = chain()
SWAPPED = acting(NET, l0=SWAP)


def belt(*records, budget=None, pins=None, name="a", attempt=1):
    """Return the journal of a task whose stream says some records after it was opened."""
    run = Run()
    stream = f"task-{name}-a{attempt}"
    own = {} if budget is None else {"memory_budget_bytes": budget}
    config = {"task": name, "planners": {"swapping": "hybrid"}, "swapping": own | ({"pin": pins} if pins else {})}
    run.open(stream, "round", config)
    run.say(stream, *records)
    return run.journal()


def profiled(t=1.0, of=NET):
    return words.SwapProfileTaken(t=t, profile=facts(of), n_samples=1)


def planned(plan=SWAPPED, reason="found at once", predicted_s=9.0, predicted_mib=30):
    known = isinstance(plan, SwapPlan)
    return words.SwapPlanned(
        planner="hybrid", plan_key=plan.key if known else plan, plan=facts(plan) if known else None, reason=reason,
        predicted_s=predicted_s, predicted_bytes=int(predicted_mib * MIB),
    )  # fmt: skip


def step(seconds, mib, t, plan=SWAPPED.key, swapped_mib=0, stall_s=0.0):
    return words.SwapStepMeasured(
        t=t, plan_key=plan, step_s=seconds, peak_bytes=int(mib * MIB), swapped_bytes=int(swapped_mib * MIB),
        stall_s=stall_s,
    )  # fmt: skip


def trial(plan=SWAPPED):
    return words.SwapTrialStarted(plan_key=plan.key, n_steps=3)


def changed(t, key, value):
    return SettingChanged(t=t, key=f"swapping.{key}", value=value, task="a")
