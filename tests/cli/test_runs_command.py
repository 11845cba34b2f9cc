import pytest

from drlnb.cli.main import main
from drlnb.records.errors import ConfigError
from drlnb.runtime.files.lock import Lock
from drlnb.runtime.files.run_directory import RunDir


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


def test_a_run_whose_lock_cannot_be_read_may_go_on(here, capsys):
    """It is listed as running, and nobody knows where it could be steered; the message says what to do."""
    run = made(here, "one", "stopped")
    (run.path / "LOCK").write_text("")
    assert main(["runs"]) == 0
    line = capsys.readouterr().out
    assert line.split()[1] == "running"
    assert "LOCK cannot be read, so somebody may run it" in line
    assert main(["runs", "pause", str(run.path)]) == 2
    assert "LOCK cannot be read, so somebody may run it" in capsys.readouterr().err


def test_a_run_on_another_machine_is_listed_with_its_address(here, capsys):
    """Nobody there can be asked from here, but its lock is young."""
    run = made(here, "one", "running")
    run.write_lock(Lock(run="id-one", epoch=1, address="tcp://127.0.0.1:1", host="node2", boot="another machine"))
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("runs/one at tcp://127.0.0.1:1")


class _Cluster:
    """A cluster with one run that notes what it is told."""

    def __init__(self):
        self.told = []

    def runs(self):
        return [{"run": "r1"}]

    def control(self, run_id, action, *, task=None, reason=""):
        self.told.append((action, run_id, task))

    def set(self, run_id, key, value, *, task=None):
        if key == "rl.gamma":
            raise ConfigError("rl.gamma cannot change")
        self.told.append(("set", run_id, key, value, task))

    def close(self):
        self.told.append("closed")


@pytest.fixture
def cluster(monkeypatch):
    made = _Cluster()
    monkeypatch.setattr("drlnb.fleet.cluster.pool.connect", lambda address: made)
    return made


@pytest.mark.parametrize(
    ("words", "told", "said"),
    [
        (["set", "r1", "rl.learning_rate", "1e-4"], ("set", "r1", "rl.learning_rate", 1e-4, None),
         "r1: rl.learning_rate = 1e-4 from the next round on"),
        (["set", "r1", "rl.target_kl", "none", "--task", "a"], ("set", "r1", "rl.target_kl", None, "a"),
         "r1, task a: rl.target_kl = none from the next round on"),
        (["set", "r1", "rl.tau1", "[0.5, 0.1]"], ("set", "r1", "rl.tau1", [0.5, 0.1], None),
         "r1: rl.tau1 = [0.5, 0.1] from the next round on"),
        (["set", "r1", "leasing.hold", "last"], ("set", "r1", "leasing.hold", "last", None),
         "r1: leasing.hold = last from the next round on"),
        (["set", "r1", "task.priority", "2", "--task", "a"], ("set", "r1", "task.priority", 2, "a"),
         "r1, task a: task.priority = 2 at once"),
        (["set", "r1", "leasing.ttl_s", "30"], ("set", "r1", "leasing.ttl_s", 30, None),
         "r1: leasing.ttl_s = 30 from the next grant on (of the pool: for all who share it)"),
        (["set", "r1", "slot.drain", "0/cpu0"], ("set", "r1", "slot.drain", "0/cpu0", None),
         "r1: slot.drain = 0/cpu0 at once (of the pool: for all who share it)"),
        (["pause", "r1", "--task", "a"], ("pause", "r1", "a"), "r1, task a: asked to pause at the next round boundary"),
        (["stop", "r1"], ("stop", "r1", None), "r1: asked to stop within seconds"),
    ],
)  # fmt: skip
def test_a_run_is_tuned_and_steered_by_its_id(cluster, capsys, words, told, said):
    """Values are read as numbers, words or JSON; the line says what will happen."""
    assert main(["runs", *words, "--client", "tcp://x:1"]) == 0
    assert cluster.told == [told, "closed"]
    assert capsys.readouterr().out == f"{said}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set", "r1", "rl.gamma"], "runs set needs RUN KEY VALUE, such as: drlnb runs set runs/first "),
        (["stop", "r1", "rl.gamma"], "runs stop takes RUN alone, got also 'rl.gamma'"),
        (["list", "--task", "a"], "list takes no run and no task, got 'a'"),
        (["set", "r2", "rl.gamma", "1"], "tcp://x:1 has no run r2; it has r1"),
        (["set", "r1", "rl.gamma", "1"], "rl.gamma cannot change"),
    ],
)
def test_a_wrong_wish_is_one_line(cluster, capsys, words, said):
    """Exit code 2, and nothing is sent to the cluster."""
    assert main(["runs", *words, "--client", "tcp://x:1"]) == 2
    assert capsys.readouterr().err.startswith(f"drlnb: {said}")
    assert cluster.told in ([], ["closed"])
