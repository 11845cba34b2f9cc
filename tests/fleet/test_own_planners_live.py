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
from tests.runtime.live import titled, wait_until

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
        return Placement(slots=slots[:1], allowed=slots, collector_nodes=(view.node,) * view.n_collectors)


class Away:
    """The one slot that a task may use is the one that failed least."""

    name = "away"

    def plan(self, view):
        home = min(sorted(view.homes), key=lambda slot: len(view.failures.get(slot, ())))
        return Placement(slots=(home,), allowed=(home,), collector_nodes=(view.node,) * view.n_collectors)


class Loses(Away):
    """Gives up the first time that its slot is gone."""

    name = "loses"

    def plan(self, view):
        if view.slots and view.slots[0] not in view.homes:
            raise RuntimeError(f"{view.slots[0]} is gone")
        return super().plan(view)


@pytest.fixture
def fleet():
    """Open a fleet with two nodes."""
    with drlnb.Fleet(slots=2, n_workers=2) as fleet:
        yield fleet


def _task(name, total_timesteps=4096, **more):
    return drlnb.Task(
        "CartPole-v1", total_timesteps=total_timesteps, name=name, n_collectors=2, n_envs=2, n_steps=256, **more
    )


def _replays(run):
    return {stream.header.stream: replay(stream).difference for stream in run.journal().streams.values()}


def _planners(run, kind):
    return {record.planner for record in run.journal().of(kind)}


def test_own_planners_train_and_replay(fleet, tmp_path):
    """Given as objects and as a class; the journal names them, and holds what a replay needs."""
    own = {"distribution": Backwards, "collect": Uneven(), "placement": AtHome()}
    run = fleet.train(_task("a"), out=tmp_path / "r", planners=own)
    run.wait(timeout_s=240)
    assert run.tasks["a"].state == "done"
    assert _planners(run, DistributionPlanned) == {"own:backwards"}
    assert _planners(run, PlacementPlanned) == {"own:at-home"}
    sizes = [zip(plan.collectors, plan.n_steps, strict=True) for plan in run.journal().of(BatchPlanned)]
    assert {size for plan in sizes for size in plan} == {(0, 257), (1, 255)}
    assert set(_replays(run).values()) == {None}


def _kill_home(fleet, run, task):
    """Kill the executor of a task's home slot once a round is made and both slots are there; return the slot."""
    wait_until(lambda: run.tasks[task].n_timesteps, "a first round")
    wait_until(lambda: run.rows("pool")[-1]["slots"] == 2, "two slots")
    home = [row["slots"] for row in run.rows("placement") if row["task"] == task][-1]
    (process,) = titled(f"drlnb executor {home}", fleet.pool.handle.pid)
    process.kill()
    return home


def test_a_home_moves_away_from_an_executor_that_was_killed(fleet, tmp_path):
    """Every later lease is of the other slot, though the first is back; another run has the default; all replays."""
    run = fleet.train(_task("a", total_timesteps=40_960), out=tmp_path / "r", planners={"placement": Away()})
    other = fleet.train(_task("b", total_timesteps=20_480), out=tmp_path / "other")
    home = _kill_home(fleet, run, "a")
    for of in (run, other):
        of.wait(timeout_s=240)
    mine = [row for row in run.rows("placement") if row["task"] == "a"]
    before, lost, back = mine[-3:]  # there are more where a slot's executor was still starting as the task was placed
    assert [row["event"] for row in (lost, back)] == ["SlotFailed", "SlotAdded"]
    assert [row["slots"] == home for row in (before, lost, back)] == [True, False, False]
    assert {row["planner"] for row in run.rows("placement") if row["task"] == "b"} == {"ect"}
    leases = [row for row in run.rows("leases") if row["task"] == "a"]
    assert {row["slots"] for row in leases if before["t_s"] < row["granted_s"] < lost["t_s"]} == {home}
    assert {row["slots"] for row in leases if row["granted_s"] > lost["t_s"]} == {lost["slots"]}
    assert any(row["granted_s"] > back["t_s"] for row in leases)
    assert (run.tasks["a"].state, other.tasks["b"].state) == ("done", "done")
    assert {*_replays(run).values(), *_replays(other).values()} == {None}


def test_a_planner_that_raises_as_a_slot_fails_ends_its_task_and_no_other(fleet, tmp_path):
    """One line names the planner and what is wrong; the other run of the pool goes on."""
    bad = fleet.train(_task("bad", total_timesteps=400_000), out=tmp_path / "bad", planners={"placement": Loses()})
    good = fleet.train(_task("good", total_timesteps=20_480), out=tmp_path / "good")
    home = _kill_home(fleet, bad, "bad")
    reason = f"placement planner own:loses raised RuntimeError: {home} is gone"
    with pytest.raises(TrainingFailed, match=f"^task bad failed: {reason}"):
        bad.wait(timeout_s=240)
    good.wait(timeout_s=240)
    assert good.tasks["good"].state == "done"
    assert {*_replays(bad).values(), *_replays(good).values()} == {None}


def test_a_planner_that_fails_ends_its_run_and_no_other(fleet, tmp_path):
    """One line names planner, round and what is wrong."""
    bad = fleet.train(_task("bad"), out=tmp_path / "bad", planners={"collect": Uneven(fails=3)})
    good = fleet.train(_task("good"), out=tmp_path / "good", planners={"placement": "pack"})
    reason = "round 3: collect planner own:uneven: n_steps of collector 0 must be a whole number >= 1, got 0"
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
        "[drlnb.planners]\ncollect.most = planners_of_mine:Most\n"
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
        run = fleet.train(_task("a"), out=tmp_path / "r", planners={"collect": "most:n=64"})
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
