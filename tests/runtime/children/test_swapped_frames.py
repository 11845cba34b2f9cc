"""An executor makes gradient steps under the plans that its frames name, and reports what they did."""

from dataclasses import asdict

import cloudpickle
import pytest
import torch

from drlnb.planning.codec import from_plain
from drlnb.planning.swapping import SwapPlan, SwapProfile, facts
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.profile import KEEP, SWAP
from drlnb.records.columns.swapping import SwapOrder
from drlnb.rl.pickled import pack
from drlnb.runtime.children.model_cache import Residency
from drlnb.runtime.swapping.tiers.made import TIERS
from tests.planning.swapping.swap_words import having
from tests.runtime import swapped_net
from tests.runtime.learning import FENCE, LearningChild
from tests.runtime.swapped_net import SlowFile

#: The network's parameters, their gradients and moments, and what a minibatch of 128 saves for each layer.
OWN, ROW = 16 * (4 * 128 + 2 * 128 * 128 + 128 * 3 + 128 * 2 + 2 + 128 + 1), 128 * 128 * 4
BUDGET = OWN + 2 * ROW + ROW // 2


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_child():
    """Return what makes an executor child with the wide policy: 256 samples in a round, two minibatches, two epochs."""
    cloudpickle.register_pickle_by_value(swapped_net)
    made = []

    def make(**given):
        policy = {"name": "wide", "pickled": pack(swapped_net.wide)}
        hyper = {"policy": policy, "n_steps": 64, "batch_size": 128, "n_epochs": 2, "policy_kwargs": {}}
        made.append(LearningChild(**{**hyper, **given}))
        return made[-1]

    yield make
    cloudpickle.unregister_pickle_by_value(swapped_net)
    for child in made:
        child.child.models.drop("r/a")
        for collector in child.collectors:
            collector.close()


def swapped(key, report="median", plan=None, budget=BUDGET, n_samples=128):
    """Return what a frame says of swapping."""
    said = {"swap": asdict(SwapOrder(key, budget, report, n_samples))}
    return said if plan is None else said | {"swap_plan": plan}


def finish(child, how, n_steps=64):
    """Compute a round of 256 samples, or others; return the answer and the new parameters."""
    for header, data in frames(child, child.version, n_steps):
        assert child.ask("stage", data, **header)[0]["op"] == "staged"
    answer, made = child.ask("finish", round=child.version, **how)
    child.version += answer["op"] == "made"
    return answer, made


def frames(child, number, n_steps=64):
    collected, published = [], child.learner.published()
    for i, collector in enumerate(child.collectors):
        fragment = collector.collect(published, version=child.version, round=number, n_steps=n_steps, n_timesteps=0)
        header, data = fragment.pack()
        row = {"round": number, "collector": i, "version": child.version, "after_timesteps": 64, "n_state": 0}
        collected.append(({**row, "fragment": header, "settings": {}}, bytes(data)))
    return collected


def of(kind, answer):
    return [row for row in answer["swaps"] if row["r"] == kind]


def profile_of(answer):
    (row,) = of("SwapProfileTaken", answer)
    assert row["n_samples"] == 128
    return from_plain(SwapProfile, row["profile"])


def test_without_a_budget_nothing_is_swapped(make_child):
    """No hook is set, nothing is reported."""
    child = make_child()
    answer, _ = finish(child, {})
    assert answer["swaps"] == []
    assert child.child.models["r/a"].driven is None


def test_the_first_steps_swap_everything_and_are_recorded(make_child):
    """Three rows of 64 KiB, one for each layer; the peak is below the budget, and the parameters are plain's."""
    plain, child = make_child(), make_child()
    answer, made = finish(child, swapped("all", "profile"))
    assert made == finish(plain, {})[1]
    profile = profile_of(answer)
    assert [(row.layer_type, row.bytes(128)) for row in profile.rows] == [("Tanh", ROW)] * 3
    assert profile.fixed_bytes == pytest.approx(OWN, rel=0.01)
    (step,) = of("SwapStepMeasured", answer)
    assert (step["plan_key"], step["n_saved"], step["swapped_bytes"]) == ("all", 3, 3 * ROW)
    assert step["peak_bytes"] <= BUDGET
    assert (step["n_samples"], step["device_kind"]) == (128, "cpu")


def test_a_plan_that_is_not_here_is_asked_for(make_child):
    """Once: later frames name it; the peak is what the cost model expects, the bits are plain's."""
    plain, child = make_child(), make_child()
    profile = profile_of(finish(child, swapped("all", "profile"))[0])
    finish(plain, {})
    plan = having(SwapPlan.keeping(profile), {profile.rows[0].key: SWAP, profile.rows[1].key: SWAP})
    assert finish(child, swapped("p"))[0] == {"op": "need-plan"}
    answer, made = child.ask("finish", round=2, **swapped("p", "steps", facts(plan)))
    child.version += 1
    assert made == finish(plain, {})[1]
    steps = of("SwapStepMeasured", answer)
    assert [row["swapped_bytes"] for row in steps] == [2 * ROW] * 4
    assert {row["peak_bytes"] for row in steps[1:]} == {int(predict(profile, plan, 128, BUDGET).peak_bytes)}
    answer, made = finish(child, swapped("p"))
    assert made == finish(plain, {})[1]
    assert [row["r"] for row in answer["swaps"]] == ["SwapStepMeasured"]
    assert finish(child, swapped("other"))[0] == {"op": "need-plan"}


def test_a_step_that_is_larger_than_planned_for_swaps_everything(make_child):
    """A plan keeps all of 128 samples; 256 would take twice as much: they keep the budget, and a profile is wanted.

    Smaller ones are made under the plan again, and larger ones under a plan for them.
    """
    child, half = make_child(batch_size=256, n_epochs=4), {"n_steps": 32}
    budget = OWN + 5 * ROW
    profile = profile_of(finish(child, swapped("all", "profile", budget=budget), **half)[0])
    keeping = facts(SwapPlan.keeping(profile))
    (step,) = finish(child, swapped("p", plan=keeping, budget=budget), **half)[0]["swaps"]
    assert (step["plan_key"], step["swapped_bytes"]) == ("p", 0)
    step, changed = finish(child, swapped("p", budget=budget))[0]["swaps"]
    assert (step["plan_key"], step["n_samples"], step["swapped_bytes"]) == ("all", 256, 6 * ROW)
    assert step["peak_bytes"] <= budget
    assert changed == {"r": "SwapTraceChanged", "shape_key": ""}
    assert finish(child, swapped("p", budget=budget), **half)[0]["swaps"] == [], "there were larger ones"
    (step,) = finish(child, swapped("p", budget=budget, n_samples=256))[0]["swaps"]
    assert (step["plan_key"], step["peak_bytes"] > budget) == ("p", True), "the plan that was made for 128"


def test_a_link_is_reported_where_it_was_asked_for(make_child):
    """With the rates of the copies so far."""
    child = make_child()
    finish(child, swapped("all", "profile"))
    answer, _ = finish(child, swapped("all", "link"))
    (row,) = of("SwapLinkMeasured", answer)
    assert row["link"]["d2h"][0][1] > 1e6


def test_a_disk_that_becomes_slow_changes_no_bit(make_child, monkeypatch):
    """The link that is reported is that of the copies: two rows in the first frame, as many on a slow disk."""
    monkeypatch.setitem(TIERS, "cpu", lambda device, meter, folder: SlowFile(meter, folder))
    plain, child = make_child(), make_child()
    finish(child, swapped("all", "profile"))
    finish(plain, {})
    monkeypatch.setattr(SlowFile, "bytes_per_s", 4e6)
    answer, made = finish(child, swapped("all", "link"))
    assert made == finish(plain, {})[1]
    (row,), (step,) = of("SwapLinkMeasured", answer), of("SwapStepMeasured", answer)
    assert step["step_s"] >= 2 * ROW / 4e6
    assert row["link"]["d2h"][0][1] < 2 * 4.01e6, "half of the copies took that long"


def test_rows_that_a_plan_does_not_know_are_kept_and_told(make_child):
    """So that a profile is taken anew."""
    child = make_child()
    profile = profile_of(finish(child, swapped("all", "profile"))[0])
    plan = SwapPlan(profile_key="old", keys=(profile.rows[0].key,), actions=(KEEP,))
    answer, _ = finish(child, swapped("p", plan=facts(plan)))
    assert len(of("SwapTraceChanged", answer)) == 1
    assert of("SwapStepMeasured", answer)[0]["peak_bytes"] >= OWN + 3 * ROW


def test_where_memory_runs_out_the_gradient_is_made_again_with_everything_swapped(make_child, monkeypatch):
    """The parameters are plain's; the plan is named, and the steps after it swap everything."""
    plain, child = make_child(), make_child()
    profile = profile_of(finish(child, swapped("all", "profile"))[0])
    finish(plain, {})
    network = child.learner.networks.module
    both, calls = network.both, []

    def failing(obs):
        calls.append(len(obs))
        if len(calls) == 2:
            outputs, values = both(obs)
            (outputs.sum() + values.sum()).backward()  # half a gradient lies there when the device gives up
            raise torch.OutOfMemoryError("the device is full")
        return both(obs)

    monkeypatch.setattr(network, "both", failing)
    answer, made = finish(child, swapped("p", "steps", facts(SwapPlan.keeping(profile))))
    assert made == finish(plain, {})[1]
    assert calls == [128] * 5
    assert [row["plan_key"] for row in of("SwapStepOverflowed", answer)] == ["p"]
    assert {row["plan_key"] for row in of("SwapStepMeasured", answer)} == {"all"}


def test_a_disk_without_room_is_told_and_training_goes_on(make_child):
    """Plain steps, with one line."""
    plain, child = make_child(), make_child()
    finish(child, swapped("all", "profile"))
    finish(plain, {})
    child.child.models["r/a"].driven._engine._tier.broken = "No space left on device"
    with pytest.warns(RuntimeWarning, match="swapping does nothing from now on: tier file: No space left"):
        answer, made = finish(child, swapped("all"))
    assert made == finish(plain, {})[1]
    assert answer["swaps"] == [{"r": "SwapBroken", "reason": "tier file: No space left on device"}]


def test_a_smaller_last_minibatch_is_no_other_step(make_child):
    """Neither recorded nor reported: 256 samples are 160 and 96, and a round has two of each; three are recorded."""
    child = make_child(batch_size=160)
    answer, _ = finish(child, swapped("all", "profile"))
    assert of("SwapProfileTaken", answer) == []
    answer, _ = finish(child, swapped("all", "profile"))
    (row,) = of("SwapProfileTaken", answer)
    assert row["n_samples"] == 160
    answer, _ = finish(child, swapped("all", "steps"))
    assert len(of("SwapStepMeasured", answer)) == 2


@pytest.mark.parametrize(
    ("given", "n_steps"),
    [
        ({"n_epochs": 1, "batch_size": 256}, 0),
        ({"algo": "gpf", "n_epochs": 1, "batch_size": None, "n_action_samples": None}, 0),
        ({"algo": "gpf"}, 1),
    ],
)
def test_other_gradients_are_swapped_too(make_child, given, n_steps):
    """Those that are computed at arrival report with each batch: those of the largest share count."""
    plain, child = make_child(**given), make_child(**given)
    how = swapped("all")
    rows = []
    for header, data in frames(child, 1):
        answer, _ = child.ask("stage", data, **header, **how)
        rows += answer["swaps"]
    answer, made = child.ask("finish", round=1, **how)
    assert made == finish(plain, {})[1]
    assert len(of("SwapStepMeasured", answer)) == n_steps
    assert (len(rows) > 0) == (n_steps == 0)
    assert all(row["plan_key"] == "all" for row in rows)


def test_a_budget_below_the_networks_own_size_fails_the_task_at_once(make_child):
    """In one line that names both."""
    child = make_child()
    answer, _ = child.ask("initialise", spec=child.spec.to_plain(), **swapped("all", budget=OWN - 1000))
    assert (answer["op"], answer["kind"], answer["detail"]) == ("error", "ConfigError", "")
    assert answer["message"].startswith("the budget must be above the 532.")
    assert answer["message"].endswith("of the module's parameters, gradients and buffers, got 531.1 KiB")


def test_the_budget_that_was_set_since_the_task_was_described_is_the_one_that_counts(make_child):
    """A task of a budget that is too small trains once it was set to a larger one: there is one way of the budget."""
    child = make_child()
    spec = child.spec.to_plain() | {"memory_budget_bytes": OWN - 1000}
    assert child.ask("initialise", spec=spec, **swapped("all"))[0]["op"] == "made"


def test_a_models_swapper_ends_with_it(make_child):
    """When the task is forgotten, makes room, or begins anew: its threads do not stay."""
    child = make_child()
    finish(child, swapped("all", "profile"))
    models: Residency = child.child.models
    first = models["r/a"].driven
    child.ask("initialise", spec=child.spec.to_plain(), fence=FENCE)
    assert first._engine._tier.broken == "it is closed"
    child.version = 1
    finish(child, swapped("all", "profile"))
    second = models["r/a"].driven
    assert models.shrink(0, "r/b") == ("r/a",)
    assert second._engine._tier.broken == "it is closed"
