"""All six decisions by the patents' own rules at once: they train, replay exactly, and the report shows each."""

import re

import cloudpickle
import pytest

import drlnb
from drlnb.planning.replay import replay
from drlnb.records.columns import batching, distribution, leasing, placement, swapping, warmup
from tests.runtime import swapped_net

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

#: Gradients are computed at arrival, by two learners: 128 samples of an environment each.
SHAPE = {"n_envs": 4, "n_collectors": 2, "n_steps": 128, "batch_size": 512, "n_epochs": 1, "learning_rate": 3e-3}
#: Bytes of what a layer of the wide network keeps of 128 samples, and of its parameters, gradients and moments.
ROW = 128 * 128 * 4
OWN = 16 * (4 * 128 + 2 * 128 * 128 + 128 * 3 + 128 * 2 + 2 + 128 + 1)


@pytest.fixture
def tasks():
    """Return a task whose gradient is written out, and one whose network keeps more than its budget."""
    cloudpickle.register_pickle_by_value(swapped_net)
    plain = drlnb.Task(
        "CartPole-v1", name="mlp", n_learners=2, total_timesteps=30 * 512, memory_budget="64MiB", **SHAPE
    )
    budget = OWN + 5 * ROW // 2
    wide = drlnb.Task(
        "Acrobot-v1",
        name="wide",
        policy=swapped_net.wide,
        n_learners=2,
        total_timesteps=40 * 512,
        memory_budget=budget,
        **SHAPE,
    )
    yield [plain, wide]
    cloudpickle.unregister_pickle_by_value(swapped_net)


def planners(run, kind):
    return {record.planner for record in run.journal().of(kind)}


@pytest.mark.timeout(300)
def test_all_patents_rules_at_once(tasks, tmp_path, capsys):
    """Each decision was the patent's; what a rule cannot do is said once, in the terminal and in the report."""
    with drlnb.Fleet(slots=2, n_workers=2) as fleet:
        run = fleet.train(tasks, out=tmp_path / "r", planners="patent")
        run.wait(timeout_s=240)
        assert {name: (task.state, task.failure) for name, task in run.tasks.items()} == dict.fromkeys(
            ("mlp", "wide"), ("done", "")
        )
        said = capsys.readouterr().err
        journal = run.journal()
        assert planners(run, leasing.HoldPlanned) == {"round"}
        assert planners(run, warmup.WarmupPlanned) == {"patent"}
        assert planners(run, placement.PlacementPlanned) == {"own:patent"}
        assert planners(run, distribution.DistributionPlanned) == {"relay"}
        assert {each.planner for each in journal.of(batching.SplitPlanned)} == {"patent"}
        assert planners(run, swapping.SwapPlanned) - {"none"} == {"qtable"}, "and steps before there is a profile"
        assert journal.of(warmup.StopCollector), "collectors end between rounds"
        assert {len(lease.slots) for lease in journal.of(leasing.LeaseGranted) if lease.round} == {2}
        assert any(row["swapped_bytes"] for row in run.rows("swapping")), "something has left a slot"
        assert {each["n_used"] - each["n_planned"] for each in run.rows("batching") if each["role"] == "update"} == {0}
        assert [replay(stream).difference for stream in journal.streams.values()] == [None] * 3
        page = run.report(tmp_path / "report.html").path.read_text(encoding="utf-8")
    sections = dict(re.findall(r'data-drlnb="view-(\w+)">(.)', page))
    shown = {"leases", "gangs", "plans", "warmup", "topology", "shares0", "swapping0", "plan0"}
    assert shown <= sections.keys()
    for text in (said, page):
        for name in ("mlp", "wide"):
            assert text.count(f"{name} waits for all 2 learners, and leaves no sample out") == 1
    assert page.count("mlp: the gradient of an MLP policy is written out") == 1
