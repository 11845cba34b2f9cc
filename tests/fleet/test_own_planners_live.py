"""A user's own planners train tasks on a real cluster, and their runs replay without them."""

import pytest

import drlnb
from drlnb.planning.batching import BatchPlan
from drlnb.planning.distribution import LEARNER, Plan, Send
from drlnb.planning.placement import Placement
from drlnb.planning.replay import replay
from drlnb.records.columns.batching import BatchPlanned
from drlnb.records.columns.distribution import DistributionPlanned
from drlnb.records.columns.placement import PlacementPlanned
from drlnb.records.columns.warmup import StopCollector
from drlnb.records.errors import TrainingFailed

pytestmark = pytest.mark.cluster


class Backwards:
    """Sends to the last host first."""

    name = "backwards"

    def plan(self, view):
        n = len(view.hosts)
        routes = tuple(((LEARNER, host),) for host in reversed(range(n)))
        sends = tuple(Send(0, view.model_bytes, i) for i in range(n))
        return Plan(n_hosts=n, model_bytes=view.model_bytes, routes=routes, sends=sends)


class Uneven:
    """Gives one step of the second collector to the first, and in round 3 nobody any."""

    name = "uneven"

    def __init__(self, fails=0):
        self.fails = fails

    def plan(self, view):
        if view.round == self.fails:
            return BatchPlan(n_steps=(0,) * len(view.collectors))
        return BatchPlan(n_steps=tuple(view.n_steps + (1, -1)[i] for i in view.collectors))


class AtHome:
    """Places all collectors on the master's node."""

    name = "at-home"

    def plan(self, view):
        slots = tuple(sorted(view.homes))
        return Placement(home=slots[0], allowed=slots, collector_nodes=(view.node,) * view.n_collectors)


@pytest.fixture
def fleet():
    """Open a fleet with two nodes."""
    with drlnb.Fleet(slots=2, n_workers=2) as fleet:
        yield fleet


def _task(name, **more):
    return drlnb.Task("CartPole-v1", total_timesteps=4096, name=name, n_collectors=2, n_envs=2, n_steps=256, **more)


def _replays(run):
    return {stream.header.stream: replay(stream).difference for stream in run.journal().streams.values()}


def _planners(run, kind):
    return {record.planner for record in run.journal().of(kind)}


def test_own_planners_train_and_replay(fleet, tmp_path):
    """Given as objects and as a class; the journal names them, and holds what a replay needs."""
    own = {"distribution": Backwards, "batching": Uneven(), "placement": AtHome()}
    run = fleet.train(_task("a"), out=tmp_path / "r", planners=own)
    run.wait(timeout_s=240)
    assert run.tasks["a"].state == "done"
    assert _planners(run, DistributionPlanned) == {"own:backwards"}
    assert _planners(run, PlacementPlanned) == {"own:at-home"}
    sizes = [zip(plan.collectors, plan.n_steps, strict=True) for plan in run.journal().of(BatchPlanned)]
    assert {size for plan in sizes for size in plan} == {(0, 257), (1, 255)}
    assert set(_replays(run).values()) == {None}


def test_a_planner_that_fails_ends_its_run_and_no_other(fleet, tmp_path):
    """One line names planner, round and what is wrong."""
    bad = fleet.train(_task("bad"), out=tmp_path / "bad", planners={"batching": Uneven(fails=3)})
    good = fleet.train(_task("good"), out=tmp_path / "good", planners={"placement": "pack"})
    reason = "round 3: batching planner own:uneven: n_steps of collector 0 must be a whole number >= 1, got 0"
    with pytest.raises(TrainingFailed, match=f"task bad failed: {reason}"):
        bad.wait(timeout_s=240)
    good.wait(timeout_s=240)
    assert good.tasks["good"].state == "done"
    assert bad.tasks["bad"].state == "failed"
    assert set(_replays(bad).values()) == {None}


def test_an_entry_point_trains(tmp_path, monkeypatch):
    """Its package is known to the workers by their path."""
    package = tmp_path / "elsewhere"
    (package / "planners_of_mine-1.dist-info").mkdir(parents=True)
    (package / "planners_of_mine-1.dist-info" / "METADATA").write_text("Name: planners_of_mine\nVersion: 1\n")
    (package / "planners_of_mine-1.dist-info" / "entry_points.txt").write_text(
        "[drlnb.planners]\nbatching.most = planners_of_mine:Most\n"
    )
    (package / "planners_of_mine.py").write_text(
        "from drlnb.planning.batching import BatchPlan\n"
        "class Most:\n"
        "    name, params = 'most', {'n': int}\n"
        "    def __init__(self, n): self.n = n\n"
        "    def plan(self, view): return BatchPlan(n_steps=(min(self.n, view.n_steps),) * len(view.collectors))\n"
    )
    monkeypatch.syspath_prepend(package)
    monkeypatch.setenv("PYTHONPATH", str(package), prepend=":")
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(_task("a"), out=tmp_path / "r", planners={"batching": "most:n=64"})
        run.wait(timeout_s=240)
        assert run.tasks["a"].state == "done"
        assert {(plan.planner, plan.n_steps) for plan in run.journal().of(BatchPlanned)} == {
            ("own:most:n=64", (64, 64))
        }
        assert set(_replays(run).values()) == {None}


def test_the_seed_ends_collectors_where_environments_go_on(fleet, tmp_path, capsys):
    """CartPole can be snapshot: its collectors end after each round; PPO's epochs are named with the way out."""
    run = fleet.train(_task("a"), out=tmp_path / "r", planners="patent")
    run.wait(timeout_s=240)
    assert run.tasks["a"].state == "done"
    assert run.journal().of(StopCollector)
    assert "n_epochs=1" in capsys.readouterr().err
