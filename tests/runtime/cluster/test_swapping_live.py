"""Real trainings under a byte budget: the parameters of plain ones, bit by bit, in the bytes that were asked for."""

import cloudpickle
import pytest

from drlnb.planning.swapping.profile import KEEP, SWAP
from drlnb.records import round as words
from drlnb.records.columns import swapping
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError
from tests.runtime import swapped_net
from tests.runtime.laws import check_laws
from tests.runtime.live import titled
from tests.runtime.test_rounds_live import _final_parameters

pytestmark = pytest.mark.cluster

KEY = "swapping.memory_budget_bytes"
#: 512 samples in a round, two minibatches, two epochs: each saves three times 128 KiB.
SHAPE = {"n_envs": 4, "n_steps": 128, "batch_size": 256, "n_epochs": 2, "learning_rate": 1e-3, "clip_range": 0.2}
NET = {"policy": swapped_net.wide, "policy_kwargs": {}}
ROW = 256 * 128 * 4
#: The network's parameters, their gradients and moments.
OWN = 16 * (4 * 128 + 2 * 128 * 128 + 128 * 3 + 128 * 2 + 2 + 128 + 1)


@pytest.fixture
def wide(make_bench):
    """Return a cluster, and what makes the spec of a task with the wide policy."""
    cloudpickle.register_pickle_by_value(swapped_net)
    bench = make_bench()
    yield (
        bench,
        lambda budget=None, **more: {**bench.spec("a", **{**SHAPE, **NET, **more}), "memory_budget_bytes": budget},
    )
    cloudpickle.unregister_pickle_by_value(swapped_net)


def peaks(stream):
    """Yield (budget that the steps were made under, event) of each report."""
    budget = None
    for event, answer in stream.answers():
        if isinstance(event, swapping.SwapStepMeasured):
            yield budget, event
        for record in answer:
            if isinstance(record, words.FinishRound):
                budget = record.swap and record.swap.memory_budget_bytes


def change(bench, run, key, value):
    """Change a setting while the task trains; what is read of its rows from then on follows the change."""
    bench.link.set("r1", task="a", key=key, value=value)
    run.until(lambda row: row["r"] == "SettingChanged" and row["key"] == key, f"the change of {key}")


def rate(row):
    """Return the bytes per second to the tier that a row says were measured, 0 if it says nothing of it."""
    return row["link"]["d2h"][0][1] if row["r"] == "SwapLinkMeasured" else 0


def test_a_training_under_a_budget_learns_the_same(wide):
    """All fits at first; the budget is cut while it trains, rows go from KEEP to SWAP, the executor dies in a trial."""
    bench, spec = wide
    run = bench.start([spec(1 << 30, steps=1_000_000)])
    measured = run.until(lambda row: row["r"] == "SwapStepMeasured" and row["plan_key"] == "none", "a plain step")
    tight = measured["peak_bytes"] - ROW
    with pytest.raises(
        ConfigError, match=r"the budget must be above the .* KiB of the module's parameters, gradients, m"
    ):
        bench.link.set("r1", task="a", key=KEY, value=1000)
    change(bench, run, KEY, tight)
    run.until(lambda row: row["r"] == "SwapTrialStarted", "a trial")
    titled("drlnb executor", bench.handle.pid)[0].kill()
    kept = run.until(lambda row: row["r"] == "SwapPlanKept", "the end of the trials")
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"

    n_rounds = int((run.out / "checkpoints" / "a" / "LATEST").read_text())
    plain = bench.start([spec(steps=n_rounds * 512)], run="plain")
    assert plain.end()["a"]["state"] == "done"
    assert _final_parameters(run.out, "a") == _final_parameters(plain.out, "a")
    journal = check_laws(run.out)
    stream = journal.streams["task-a-a1"]
    under = [(budget, event.peak_bytes) for budget, event in peaks(stream)]
    assert all(peak <= budget for budget, peak in under)
    assert {budget for budget, _ in under} == {1 << 30, tight}
    (changed,) = [event for event in stream.of(SettingChanged) if event.value == tight]
    before = [each for each in stream.of(swapping.ApplySwapPlan) if each.plan_key == "none"]
    (plan,) = [each.plan for each in stream.of(swapping.ApplySwapPlan) if each.plan_key == kept["plan_key"]][-1:]
    assert changed.counts == "from the next training step on"
    assert set(before[0].plan["actions"]) == {KEEP}
    assert SWAP in plan["actions"]
    told = [each.reason for each in stream.of(swapping.SwapUnavailable)]
    assert any("less than its budget" in reason for reason in told)
    assert not plain.of("SwapStepMeasured"), "without a budget nothing is swapped"


@pytest.mark.slow
def test_who_is_left_of_two_keeps_the_budget_with_all_of_a_minibatch(make_bench):
    """Halves of a minibatch fit whole; when a member dies the other one makes all of it, at twice the bytes."""
    cloudpickle.register_pickle_by_value(swapped_net)
    bench = make_bench(n_slots=2)
    budget = OWN + 5 * ROW // 2
    gang = {"n_learners": 2, "deterministic": False, "memory_budget_bytes": budget}
    run = bench.start([{**bench.spec("a", **SHAPE, **NET, steps=1_000_000), **gang}], planners={"batching": "equal"})
    run.until(lambda row: row["r"] == "SwapStepMeasured" and row["plan_key"] == "none", "steps that keep all")
    titled("drlnb executor", bench.handle.pid)[1].kill()
    alone = run.until(lambda row: row["r"] == "SwapStepMeasured" and row["n_samples"] == 256, "a whole minibatch")
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    cloudpickle.unregister_pickle_by_value(swapped_net)
    assert alone["plan_key"] == "all"
    stream = check_laws(run.out).streams["task-a-a1"]
    measured = [(event.n_samples, event.peak_bytes) for event in stream.of(swapping.SwapStepMeasured)]
    assert {n for n, _ in measured} == {128, 256}
    assert max(peak for _, peak in measured) <= budget


def test_a_disk_that_becomes_slow_is_noticed_and_the_bits_stay(wide, tmp_path):
    """Its link is measured anew, since steps take longer; a planner's parameters are changed meanwhile."""
    bench, spec = wide
    switch = tmp_path / "bytes_per_s"
    slow_disk = {"policy": swapped_net.wide_on_a_slow_disk, "policy_kwargs": {"switch": str(switch)}}
    run = bench.start([spec(1 << 30, steps=1_000_000, **slow_disk)])
    run.until(lambda row: row["r"] == "SwapStepMeasured" and row["plan_key"] == "none", "a plain step")
    change(bench, run, "swapping.planner", "all")
    run.until(lambda row: row["r"] == "SwapPlanKept", "the end of the trials")
    switch.write_text("4e6")
    run.until(lambda row: 0 < rate(row) <= 1e8, "a drift")
    switch.unlink()
    with pytest.raises(ConfigError, match=r"w must be a number from 0 to 1, got 2\.0"):
        bench.link.set("r1", task="a", key="swapping.planner", value="qtable:w=2")
    change(bench, run, "swapping.planner", "qtable:n_trials=20,w=1.0")
    run.until(lambda row: row["r"] == "SwapPlanned" and row["planner"].startswith("qtable:"), "the table's plan")
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    n_rounds = int((run.out / "checkpoints" / "a" / "LATEST").read_text())
    plain = bench.start([spec(steps=n_rounds * 512)], run="plain")
    assert plain.end()["a"]["state"] == "done"
    assert _final_parameters(run.out, "a") == _final_parameters(plain.out, "a")
    check_laws(run.out)


@pytest.mark.slow
def test_a_task_that_is_resumed_learns_on(wide):
    """Trials are rounds; the table goes with the checkpoint to the next attempt, and the journals replay."""
    bench, spec = wide
    task, planners = spec(1 << 30, steps=1_000_000), {"swapping": "qtable:n_trials=400,w=1.0"}
    run = bench.start([task], planners=planners)
    run.until(lambda row: row["r"] == "SwapLearned" and row["trial"] >= 12, "some trials")
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    first = check_laws(run.out).streams["task-a-a1"]
    again = bench.start([task], resume=True, attempts={"a": 1}, planners=planners)
    again.until(lambda row: row["r"] == "SwapLearned" and row["s"] == "task-a-a2", "a trial of the second attempt")
    bench.link.control("r1", "stop")
    again.end()
    second = check_laws(again.out).streams["task-a-a2"]
    trials = [[each.trial for each in stream.of(swapping.SwapLearned)] for stream in (first, second)]
    assert trials[0] == list(range(1, len(trials[0]) + 1))
    assert trials[1][0] > 2, "it does not begin anew"
    assert trials[1] == list(range(trials[1][0], trials[1][0] + len(trials[1])))
    steps = [event for event in second.of(swapping.SwapStepMeasured) if event.plan_key != "all"]
    assert steps, "of plans that the first attempt knew"
    assert not second.of(swapping.SwapProfileTaken), "what its steps save is known"


def test_a_budget_below_the_models_own_size_ends_the_task_in_one_line(wide):
    """When its first parameters are made."""
    bench, spec = wide
    run = bench.start([spec(1000, steps=2048)])
    row = run.end()["a"]
    assert row["state"] == "failed"
    first, *rest = row["reason"].strip().splitlines()
    assert first.startswith("ConfigError: the budget must be above the ")
    assert first.endswith("of the module's parameters, gradients and buffers, got 1000 B")
    assert rest == []
