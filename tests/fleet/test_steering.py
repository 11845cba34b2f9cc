"""A task that failed or was stopped is started again; the others are left alone."""

import math

import pytest

from drlnb.fleet import follower as module
from drlnb.fleet.follower import Follower
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError, PeerError, RunLocked
from drlnb.records.spec import FitWork
from drlnb.runtime.files.lock import Lock
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.conftest import ended, finished, opened
from tests.widgets.conftest import until


@pytest.fixture
def out(tmp_path, specs):
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs]})
    return folder


@pytest.fixture
def run(link, specs, out, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    made = Training(Follower(link, "r1", specs, out))
    yield made
    made.close()


def states(run):
    return {name: (task.state, task.n_timesteps) for name, task in run.tasks.items()}


def test_a_failed_task_begins_again_while_the_others_go_on(run, link):
    """It counts as running from the click on; rows of its former attempt that come late count no more."""
    link.say(opened("a"), finished("a", 3), ended("a", "failed", "it broke"), opened("b"), finished("b", 1))
    until(lambda: states(run) == {"a": ("failed", 300), "b": ("running", 100)})
    run.restart("a")
    assert [wish for wish in link.asked if wish[0] == "restart"] == [("restart", "a")]
    assert (run.tasks["a"].state, run.tasks["a"].failure, run.ended) == ("running", "", False)
    link.say(ended("a", "failed", "late"), ended("b"), opened("a", 2, n_rounds=2, n_timesteps=200))
    until(lambda: states(run) == {"a": ("running", 200), "b": ("done", 100)})
    link.say(finished("a", 3, attempt=2), ended("a", attempt=2))
    assert {name: task.state for name, task in run.wait(5).items()} == {"a": "done", "b": "done"}
    assert run.tasks["a"].n_restarts == 0


def test_a_run_that_has_ended_goes_on_in_the_same_handle(run, link, out):
    """The task alone is started; its directory is locked again, its metrics go on, and waiting waits again."""
    link.say(opened("a"), finished("a", 1), ended("a", "stopped", "asked for"), opened("b"), ended("b"))
    assert run.wait(5)["a"].state == "stopped"
    assert out.read_lock() is None
    link.known[0]["tasks"]["b"] = {"state": "done", "reason": ""}
    run.restart()
    assert (run.ended, out.read_lock().run) == (False, "r1")
    assert [wish for wish in link.asked if wish[0] == "restart"] == [("restart", "a")]
    link.say(opened("a", 2, n_rounds=1, n_timesteps=100), finished("a", 2, attempt=2), ended("a", attempt=2))
    assert run.wait(5)["a"].state == "done"
    assert out.read_lock() is None
    lines = (out.metrics / "a.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["time/iterations", "1", "2"]


def test_what_is_not_over_is_not_started_again(run, link):
    """The sentence says how the task stands."""
    link.say(opened("a"), opened("b"), ended("b"))
    until(lambda: run.tasks["b"].state == "done")
    for task, said in (("a", "task a is running"), ("b", "task b is done")):
        with pytest.raises(ConfigError, match=f"{said}: only one that failed or was stopped can be started again"):
            run.restart(task)
    with pytest.raises(ConfigError, match="no task of run r1 has failed or was stopped"):
        run.restart()
    with pytest.raises(ConfigError, match="this run has no task 'c'; it has a, b"):
        run.restart("c")
    assert not [wish for wish in link.asked if wish[0] == "restart"]


def test_a_cluster_that_is_gone_is_told_with_the_way_out(run, link, out):
    """`drlnb.resume` finds another one; the task stays as it is."""
    link.say(ended("a", "failed", "it broke"), ended("b"))
    assert run.watch.settle(5)
    link.failure = PeerError("scheduler", "no connection")
    with pytest.raises(PeerError) as error:
        run.restart("a")
    assert str(error.value) == f"scheduler: no connection; go on with: drlnb.resume({str(out.path)!r})"
    assert (run.status, run.ended) == ("failed", True)


def test_a_run_that_goes_on_elsewhere_is_not_started_twice(run, link, out, monkeypatch):
    """Another cluster holds the directory."""
    link.say(ended("a", "failed", "it broke"), ended("b"))
    assert run.watch.settle(5)
    monkeypatch.setattr(RunDir, "live_lock", lambda self: Lock(run="r1", epoch=7, address="a", said="it lives"))
    with pytest.raises(RunLocked, match="run is in use: it lives"):
        run.restart("a")
    monkeypatch.undo()
    run.close()
    with pytest.raises(ConfigError, match=r"this handle of run r1 was closed; go on with: drlnb\.resume"):
        run.restart("a")


def test_a_task_that_was_started_again_elsewhere_is_watched_again(run, link):
    """`attach` gives the handle that is there, and it hears of the new attempt."""
    link.say(opened("a"), ended("a", "failed", "it broke"), ended("b"))
    assert run.watch.settle(5)
    run.watch.go_on({"a": {"state": "failed", "attempt": 1}, "b": {"state": "done", "attempt": 1}})
    assert run.ended
    run.watch.go_on({"a": {"state": "starting", "attempt": 1}, "b": {"state": "done", "attempt": 1}})
    assert (run.ended, run.tasks["a"].state) == (False, "running")
    link.say(opened("a", 2), ended("a", attempt=2))
    assert run.wait(5)["a"].state == "done"


@pytest.mark.parametrize(
    ("n_learners", "key", "said"),
    [
        (1, "warmup.rho", "warmup.rho has no effect on supervised work: it has one learner and no collectors"),
        (1, "distribution.plan", "distribution.plan has no effect on supervised work: it has one learner"),
        (1, "batching.quorum", "batching.quorum has no effect on supervised work: it has one learner"),
        (1, "batching.planner", "batching.planner has no effect on supervised work: it has one learner"),
        (1, "rl.learning_rate", "rl.learning_rate is a setting of an algorithm, and task fit has none"),
        (2, "batching.collect", "batching.collect has no effect on supervised work: it has no collectors"),
        (2, "warmup.rho", "warmup.rho has no effect on supervised work: it has no collectors"),
    ],
)
def test_supervised_work_refuses_what_would_change_nothing(link, tmp_path, n_learners, key, said):
    """A setting of collectors, of an algorithm or of several learners is refused while it trains, and is not sent."""
    spec = FitWork(name="fit", program="m:f", total_timesteps=10, n_learners=n_learners)
    folder = RunDir(tmp_path / "run")
    folder.create({"run": "r1", "tasks": [spec.to_plain()]})
    link.known = [{"run": "r1", "state": "running", "tasks": {"fit": {"state": "running", "reason": ""}}}]
    made = Training(Follower(link, "r1", (spec,), folder))
    with pytest.raises(ConfigError) as caught:
        made.set(key, 1.0)
    made.close()
    assert str(caught.value).startswith(said)
    assert not link.asked


@pytest.mark.parametrize("name", ["quorum", "deadline_s", "max_age_s", "late"])
def test_whom_a_step_waits_for_is_set_of_shared_steps_alone(link, run, tmp_path, name):
    """Rounds of collectors leave nothing out, so such a setting is refused there; work of several learners has it."""
    with pytest.raises(ConfigError) as caught:
        run.set(f"batching.{name}", 0.5)
    about = "has no effect on a task with collectors: only the steps of fleet.fit can leave samples out"
    assert str(caught.value) == f"batching.{name} {about}"
    spec = FitWork(name="fit", program="m:f", total_timesteps=10, n_learners=2)
    folder = RunDir(tmp_path / "fit")
    folder.create({"run": "r1", "tasks": [spec.to_plain()]})
    link.known = [{"run": "r1", "state": "running", "tasks": {"fit": {"state": "running", "reason": ""}}}]
    made = Training(Follower(link, "r1", (spec,), folder))
    sent = []
    link.set = lambda run, key, value, task: sent.append((key, value))
    made.set(f"batching.{name}", 0.5)
    made.close()
    assert sent == [(f"batching.{name}", 0.5)]


def test_a_member_is_slowed_down_by_name_or_number(run, link):
    """Twice the time in 20 rounds, if nothing else is said; a number is a collector's."""
    link.say(opened("a"), opened("b"))
    until(lambda: states(run) == {"a": ("running", 0), "b": ("running", 0)})
    run.slow_down("n0/cpu1", task="a")
    run.slow_down(3, "4", 1.0, task="b")  # text is read, as of settings
    assert link.asked == [("slow", "a", "n0/cpu1", 2.0, 20), ("slow", "b", "3", 4.0, 1)]
    assert [type(each) for each in link.asked[1][3:]] == [float, int]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"factor": 0.5}, "factor must be a number from 1 to 100, got 0.5"),
        ({"factor": math.nan}, "factor must be a number from 1 to 100, got nan"),
        ({"factor": True}, "factor must be a number from 1 to 100, got True"),
        ({"factor": "twice"}, "factor must be a number from 1 to 100, got 'twice'"),
        ({"n_rounds": 0}, "n_rounds must be a whole number >= 1, got 0"),
        ({"n_rounds": 2.5}, "n_rounds must be a whole number >= 1, got 2.5"),
        ({"member": None}, "member must be the name of a slot or the number of a collector, got None"),
        ({"member": True}, "member must be the name of a slot or the number of a collector, got True"),
        ({"task": None}, "this run has no task None; it has a, b"),
        ({"task": "c"}, "this run has no task 'c'; it has a, b"),
        ({"task": "b"}, "task b is done: nobody can be slowed down"),
    ],
)
def test_what_cannot_be_slowed_down_is_said_in_one_line(run, link, wrong, said):
    """And the cluster is asked for nothing."""
    link.say(opened("a"), opened("b"), ended("b"))
    until(lambda: run.tasks["b"].state == "done")
    with pytest.raises(ConfigError) as error:
        run.slow_down(**{"member": "n0/cpu1", "task": "a"} | wrong)
    assert str(error.value) == said
    assert link.asked == []
