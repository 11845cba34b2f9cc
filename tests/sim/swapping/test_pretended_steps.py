"""The machine of a real task over pretended steps: trials, noise, overflow and drift."""

import pytest

from drlnb.planning.replay import replay
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.profile import SWAP, SwapLink, SwapPlan
from drlnb.records.columns.swapping import (
    MeasureSwapLink,
    SwapPlanFound,
    SwapPlanKept,
    SwapPlanned,
    SwapPlanRolledBack,
    SwapStepMeasured,
    SwapStepOverflowed,
    SwapTrialStarted,
)
from drlnb.sim.swapping.executor import simulate_steps
from tests.planning.swapping.swap_words import acting, chain, wide

OF = wide(6, link=SwapLink.of(2.0))


def test_a_task_settles_on_the_best_plan_and_its_journal_is_replayed():
    """Every candidate is tried once; the steps under the kept plan take what was expected."""
    stream = simulate_steps(lambda n: OF, 1, 45.0, n_steps=40, noise_frac=0.001)
    (kept,) = stream.of(SwapPlanKept)
    assert kept.n_tried == len(stream.of(SwapTrialStarted))
    said = {each.plan_key: each.predicted_s for each in stream.of(SwapPlanned)}
    assert said[kept.plan_key] == min(value for key, value in said.items() if key)
    last = stream.of(SwapStepMeasured)[-1]
    assert last.plan_key == kept.plan_key
    assert last.step_s == pytest.approx(said[kept.plan_key], rel=0.01)
    assert replay(stream).difference is None


def test_the_first_step_overflows_where_nobody_knew():
    """It is made before there is a profile; afterwards none does."""
    stream = simulate_steps(lambda n: OF, 1, 45.0, n_steps=30)
    assert len(stream.of(SwapStepOverflowed)) <= 1
    assert len(stream.of(SwapStepMeasured)) >= 29


def test_a_step_says_what_it_swapped_and_waited_for():
    """Three inputs of ten bytes leave and come back; the last one is waited for, two seconds (a copy takes one)."""
    last = simulate_steps(lambda n: chain(), 1, 25.0, n_steps=12, planner="all").of(SwapStepMeasured)[-1]
    assert (last.swapped_bytes, last.n_saved) == (30, 3)
    assert last.stall_s == predict(chain(), acting(chain(), l0=SWAP, l1=SWAP, l2=SWAP), 1, 25.0).stall_s >= 2.0


@pytest.mark.thorough
def test_noise_is_the_seeds():
    """The same seed gives the same journal, another one another."""
    one, same, other = (simulate_steps(lambda n: OF, 1, 45.0, n_steps=20, seed=seed) for seed in (1, 1, 2))
    assert one.records == same.records
    assert one.records != other.records


def test_a_drift_leads_to_another_plan():
    """The link becomes forty times slower after forty steps: measured, searched again, and better than before."""
    fast, slow = chain(6, link=SwapLink.of(20.0)), chain(6, link=SwapLink.of(0.5))
    stream = simulate_steps(lambda n: fast if n < 40 else slow, 1, 45.0, n_steps=120, noise_frac=0.01)
    assert len(stream.of(MeasureSwapLink)) == 1
    before, after = stream.of(SwapPlanKept)
    (first, *_), (last, *_) = (
        [each.plan for each in stream.of(SwapPlanned) if each.plan_key == kept.plan_key] for kept in (before, after)
    )
    old, new = (predict(slow, SwapPlan(**plan | {"keys": tuple(plan["keys"])}), 1, 45.0) for plan in (first, last))
    assert new.step_s <= old.step_s
    assert replay(stream).difference is None


def test_a_chosen_planner_is_carried_out():
    """Its plan is the only one that is tried."""
    stream = simulate_steps(lambda n: chain(6), 1, 45.0, n_steps=20, planner="all")
    (found,) = stream.of(SwapPlanFound)
    assert [set(plan["actions"]) for plan in found.plans] == [{SWAP}]
    assert len(stream.of(SwapTrialStarted)) == 1
    assert not stream.of(SwapPlanRolledBack)
