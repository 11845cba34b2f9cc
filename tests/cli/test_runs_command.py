import pytest

from drlnb.cli.main import main
from drlnb.runtime.rundir import RunDir


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(here, name, *states):
    run = RunDir(here / "runs" / name)
    tasks = {f"t{i}": state for i, state in enumerate(states)}
    run.create({"run": f"id-{name}", "tasks": [{"name": task} for task in tasks]})
    run.write_status({"tasks": {task: {"state": state} for task, state in tasks.items()}})
    return run


def test_the_runs_of_this_folder_are_listed_with_their_worst_end(here, capsys):
    """A run of which one task was interrupted is interrupted."""
    made(here, "one", "done", "done")
    made(here, "two", "done", "running")
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["id-one", "done"], ["id-two", "interrupted"]]
    assert "t0 done, t1 interrupted" in lines[1]


def test_no_runs_is_no_error(here, capsys):
    """It says where it looked, and where else runs may be."""
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == (
        "no run directories in runs/ (for the runs of a cluster: drlnb runs --client ADDRESS)\n"
    )


def test_a_run_that_does_not_go_on_cannot_be_steered(here, capsys):
    """The way out is told."""
    run = made(here, "one", "stopped")
    assert main(["runs", "pause", str(run.path)]) == 2
    assert capsys.readouterr().err == (
        f"drlnb: {run.path} does not go on anywhere; start it again with: drlnb resume {run.path}\n"
    )
