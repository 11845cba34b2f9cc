"""A whole pretended training under a byte budget: its master profiles, searches, tries out, and outlives its deaths."""

import argparse

import pytest

from drlnb.planning.replay import replay
from drlnb.planning.swapping.profile import KEEP
from drlnb.records import round as words
from drlnb.records.columns import swapping
from drlnb.records.errors import ConfigError
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.report import main, simulate_train

#: A minibatch of the pretended network takes 1.2 GiB.
BUDGET = 1150 << 20


def train(budget, n_rounds, **more):
    """Train one task; return the streams of its attempts, each of which replays."""
    config = {"swapping": {"memory_budget_bytes": budget}, "checkpoint_min_s": 0.0, "checkpoint_every": 4}
    shape = {"n_slots": 1, "n_rounds": n_rounds, "n_collectors": 2, "hold": "round", "streams": False}
    _, (task,) = run_tasks([0], seed=0, costs=Costs(), config=config, validate=True, **shape, **more)
    assert task.end.state == "done"
    assert [replay(stream).difference for stream in task.streams] == [None] * len(task.streams)
    return task.streams


@pytest.fixture(scope="module")
def killed():
    """Return the two attempts of a task whose first master was killed after the plans had been tried."""
    return train(BUDGET, 15, faults=[Fault(kind="holder", t=50.0, index=0, down_s=1.0)])


@pytest.mark.thorough
def test_a_budget_that_binds_is_kept(killed):
    """Not all is kept, the best trial stays, and no step takes more."""
    stream, _ = killed
    (kept,) = stream.of(swapping.SwapPlanKept)
    (plan, *_) = [each.plan for each in stream.of(swapping.ApplySwapPlan) if each.plan_key == kept.plan_key]
    assert set(plan["actions"]) > {KEEP}
    assert max(step.peak_bytes for step in stream.of(swapping.SwapStepMeasured)) <= BUDGET
    assert [each.swap.report for each in stream.of(words.FinishRound)][:2] == ["profile", "steps"]
    assert stream.of(words.FinishRound)[-1].swap.plan_key == kept.plan_key


def test_what_fits_runs_as_it_is():
    """One line says so."""
    (stream,) = train(4 * BUDGET, 3)
    assert len(stream.of(swapping.SwapUnavailable)) == 1
    assert not stream.of(swapping.SearchSwapPlan)


def test_without_a_budget_a_training_has_no_word_of_it():
    """But for the plan of each round, which keeps all."""
    (stream,) = train(None, 2)
    assert {each.plan_key for each in stream.of(swapping.SwapPlanned)} == {None}
    assert not stream.of(swapping.SwapStepMeasured)


@pytest.mark.thorough
def test_another_master_goes_on_with_the_plan_of_the_checkpoint(killed):
    """It was killed after it had settled; nothing is profiled again."""
    first, second = killed
    (kept,) = first.of(swapping.SwapPlanKept)
    assert second.of(words.TaskOpened)[0].swapping is not None
    assert {each.swap.plan_key for each in second.of(words.FinishRound)} == {kept.plan_key}
    assert not second.of(swapping.SwapProfileTaken)


@pytest.mark.thorough
def test_a_budget_makes_the_update_as_much_longer_as_its_plan():
    """Without a budget, or where all fits, nothing is longer; else each gradient is, as its plan says."""
    costs = Costs(service_cv=0.0, collect_cv=0.0, compute_s=1.0)
    free, loose, tight = (
        simulate_train(1, 1, 12, 1, "round", costs=costs, memory_budget_bytes=n) for n in (None, 4 * BUDGET, 1050 << 20)
    )
    assert free.swap_slower == loose.swap_slower == 1.0
    assert tight.swap_slower > 1.0
    (stream,) = [stream for stream in tight.streams.values() if stream.of(swapping.SwapStepMeasured)]
    (kept,) = stream.of(swapping.SwapPlanKept)
    said = [
        each.predicted_s
        for each in stream.of(swapping.SwapPlanned)
        if each.plan_key == kept.plan_key and each.predicted_s
    ]
    plain = min(step.step_s for step in free_steps(loose))
    elapsed = stream.of(words.GradientComputed)[-1].elapsed_s
    assert elapsed == pytest.approx(said[0] / plain, rel=1e-5)
    assert tight.makespan_s > loose.makespan_s


def free_steps(result):
    return [
        step
        for stream in result.streams.values()
        for step in stream.of(swapping.SwapStepMeasured)
        if step.plan_key == "none"
    ]


def test_a_budget_below_what_stays_is_one_line():
    """With the limit and the value."""
    given = {"tasks": 1, "gpus": 1, "rounds": 2, "collectors": 1, "seed": 0, "hold": "round", "out": None, "json": None}
    with pytest.raises(ConfigError) as refused:
        main(argparse.Namespace(**given, swap_budget="10MB"))
    assert str(refused.value) == (
        "--swap-budget: the budget must be above the 729.3 MiB that stay anyway (impala, 256 samples, 2080ti), "
        "got 9.5 MiB"
    )
