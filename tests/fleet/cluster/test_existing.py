import pytest

from drlnb.fleet.cluster.existing import check, differences, prepare
from drlnb.fleet.tasks.run_spec import RunSpec
from drlnb.records.errors import ConfigError, RunLocked, SpecMismatch
from drlnb.records.spec import RlWork
from drlnb.runtime.files import lock
from drlnb.runtime.files.lock import Lock
from drlnb.runtime.files.run_directory import RunDir


def task(**changes):
    plain = {"name": "a", "env": "CartPole-v1", "seed": 0, "total_timesteps": 100, "n_envs": 2, "n_collectors": 2}
    return RlWork(**{**plain, "hyperparameters": {"gamma": 0.9}, **changes})


def spec(run="r2", planners=None, **changes):
    planners = planners or {"hold": "round"}
    return RunSpec(run=run, created="", tasks=(task(**changes),), planners=planners, settings={}, versions={})


@pytest.fixture
def out(tmp_path):
    """Return a directory that holds an interrupted run."""
    RunDir(tmp_path / "run").create(spec("r1").to_plain())
    return tmp_path / "run"


def finish(out):
    RunDir(out).write_status({"tasks": {"a": {"state": "done"}}})


def test_a_new_directory_is_made(tmp_path):
    """Where nothing is, every choice makes a new run."""
    for choice in ("error", "resume", "restart", "overwrite"):
        run = prepare(tmp_path / choice, spec(), choice)
        assert (run.read_spec()["run"], run.resumed) == ("r2", False)


def test_an_existing_run_is_refused_with_the_three_choices(out):
    """The default never touches what is there, and says what can be done."""
    with pytest.raises(ConfigError) as error:
        prepare(out, spec())
    assert str(error.value) == (
        f"{out} already holds an unfinished run: choose on-existing = resume (goes on with it), "
        "restart (keeps it as run-1 and begins anew) or overwrite (deletes it), or another directory"
    )


def test_a_finished_run_says_that_it_is_finished(out):
    """Neither the default nor resume begins again; each names the choices."""
    finish(out)
    with pytest.raises(ConfigError, match="already holds a finished run: choose on-existing = resume"):
        check(out, spec())
    with pytest.raises(ConfigError, match=r"holds a finished run, nothing is left to do.*restart .keeps it as run-1"):
        check(out, spec(), "resume")
    with pytest.raises(ConfigError, match="holds a finished run"):
        check(out, None, "resume")


def test_a_finished_run_goes_on_with_a_larger_budget(out):
    """More steps than it was given make a finished run unfinished."""
    finish(out)
    assert check(out, spec(total_timesteps=101), "resume") == "resume"


def test_resume_keeps_the_run_and_takes_over_what_may_differ(out):
    """Id and seed stay; budget, collectors and how it is evaluated are those that were asked for."""
    asked = {"total_timesteps": 500, "n_collectors": 1, "eval_episodes": 0, "eval_max_steps": 9}
    run = prepare(out, spec(**asked), "resume")
    assert run.resumed
    assert RunSpec.read(run) == spec("r1", **asked)


def test_a_run_may_go_on_with_more_learners(out):
    """Bits do not depend on them."""
    prepare(out, spec(n_learners=2), "resume")
    assert RunDir(out).read_spec()["tasks"][0]["n_learners"] == 2


def test_what_a_probe_found_is_no_difference():
    """A run that is resumed has not been probed yet; a task may come back with another priority."""
    probed = {"can_snapshot": True, "observation_space": {"kind": "box"}, "action_space": {"kind": "discrete", "n": 2}}
    assert differences(spec(**probed, priority=0), spec(can_snapshot=None, priority=3)) == []


def test_resume_of_another_spec_lists_what_differs(out):
    """Every field that forbids it is named, with both values."""
    other = spec(planners={"hold": "last"}, seed=3, hyperparameters={"gamma": 0.5})
    with pytest.raises(SpecMismatch) as error:
        prepare(out, other, "resume")
    assert str(error.value) == (
        f"{out} holds another run: a: seed is 0 there, 3 was asked for; a: gamma is 0.9 there, 0.5 was asked for; "
        "planner hold is 'round' there, 'last' was asked for"
    )


def test_tasks_that_come_or_go_are_differences():
    """A run has the same tasks to its end."""
    found = differences(spec(), spec(name="b"))
    assert found == ["task a is missing", "task b is new"]


def test_restart_keeps_the_older_run_beside(out):
    """The first free number is taken; what was there is not changed."""
    (out.parent / "run-1").mkdir()
    run = prepare(out, spec(), "restart")
    assert run.read_spec()["run"] == "r2"
    assert RunDir(out.parent / "run-2").read_spec()["run"] == "r1"


def test_overwrite_deletes_the_older_run(out):
    """Only the new run is left."""
    (out / "metrics" / "a.csv").write_text("x\n")
    run = prepare(out, spec(), "overwrite")
    assert run.read_spec()["run"] == "r2"
    assert not (out / "metrics" / "a.csv").exists()


def test_overwrite_refuses_to_delete_a_foreign_file(out):
    """A stranger's file keeps the older run whole."""
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"notes\.txt was not written by drlnb"):
        prepare(out, spec(), "overwrite")
    assert RunDir(out).read_spec()["run"] == "r1"


@pytest.mark.parametrize("choice", ["error", "resume", "restart", "overwrite"])
def test_a_live_run_is_never_touched(out, choice, monkeypatch):
    """Whatever was chosen, a run that goes on is left alone, and its address named."""
    RunDir(out).write_lock(Lock(run="r1", epoch=1, address="tcp://h:1"))
    monkeypatch.setattr(lock, "goes_on", lambda lock: lock.run == "r1")
    with pytest.raises(RunLocked, match=r"is in use: its run r1 goes on at tcp://h:1 .*drlnb runs stop"):
        check(out, spec(), choice)
    monkeypatch.setattr(lock, "goes_on", lambda lock: False)
    assert check(out, spec(), "restart") == "restart"


@pytest.mark.parametrize("choice", ["error", "resume", "restart", "overwrite"])
def test_a_run_that_may_live_is_never_touched(out, choice):
    """Nobody can be asked: another machine's loopback, or a lock of a colleague's that cannot be read."""
    theirs = Lock(run="r1", epoch=1, address="tcp://127.0.0.1:1", host="node2", boot="another machine")
    RunDir(out).write_lock(theirs)
    with pytest.raises(RunLocked, match=r"is in use: its run r1 .*on node2; nobody there answers from here"):
        check(out, spec(), choice)
    (out / "LOCK").write_text("")
    with pytest.raises(RunLocked, match=r"LOCK cannot be read, .*delete that file if nobody does"):
        check(out, spec(), choice)
    assert RunDir(out).read_spec()["run"] == "r1"


@pytest.mark.parametrize("choice", ["error", "resume", "restart", "overwrite"])
def test_a_folder_of_something_else_is_refused(tmp_path, choice):
    """A folder with files and no run in it is nobody's to write into."""
    (tmp_path / "photo.jpg").write_text("x")
    with pytest.raises(ConfigError, match=r"is not empty and holds no run of drlnb \(found photo\.jpg\)"):
        check(tmp_path, spec(), choice)


def test_a_file_is_no_directory(tmp_path):
    """Neither a file, nor a place below one, can hold a run."""
    (tmp_path / "f").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        check(tmp_path / "f", spec())
    with pytest.raises(ConfigError, match="f is a file"):
        check(tmp_path / "f" / "g", spec())


def test_an_unknown_choice_is_refused(tmp_path):
    """The four choices are named."""
    with pytest.raises(ConfigError, match="must be one of error, resume, restart, overwrite, got 'delete'"):
        check(tmp_path, spec(), "delete")
