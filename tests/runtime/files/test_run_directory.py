import errno
import json
import os

import pytest

from drlnb.records.errors import ConfigError, RunLocked
from drlnb.records.journal import JOURNAL_FORMAT
from drlnb.runtime.files.run_directory import RunDir

SPEC = {"run": "r1", "tasks": [{"name": "CartPole-v1"}]}


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "run")
    made.create(SPEC)
    return made


def test_a_new_run_directory_has_its_spec_and_its_folders(run):
    """run.json reads back as it was written, no temporary file stays."""
    assert run.read_spec() == SPEC
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "journal", "logs", "metrics", "run.json"]


def test_two_runs_never_make_the_same_directory(run):
    """The second of two creators is told that it lost the race, and the first one's spec stays."""
    with pytest.raises(RunLocked, match="another run was started here at the same moment"):
        RunDir(run.path).create({**SPEC, "run": "r2"})
    assert run.read_spec()["run"] == "r1"


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])
def test_a_disk_without_hard_links_holds_runs_too(tmp_path, monkeypatch, number):
    """FAT, some network disks: of two creators one still loses, and nothing is left beside the spec."""

    def refuse(*names):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    run = RunDir(tmp_path / "run")
    run.create(SPEC)
    assert run.read_spec() == SPEC
    with pytest.raises(RunLocked, match="another run was started here at the same moment"):
        RunDir(run.path).create({**SPEC, "run": "r2"})
    assert run.read_spec() == SPEC
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "journal", "logs", "metrics", "run.json"]


def test_a_directory_without_run_json_holds_no_run(tmp_path):
    """Reading the spec of any other folder says so and names it."""
    with pytest.raises(ConfigError, match=f"{tmp_path} holds no run of drlnb"):
        RunDir(tmp_path).read_spec()


@pytest.mark.parametrize("text", ["{", "[]", '{"run": "r1"}'])
def test_a_broken_spec_is_told_with_its_path(run, text):
    """A run.json that somebody edited is refused, not believed."""
    (run.path / "run.json").write_text(text)
    with pytest.raises(ConfigError, match=r"run\.json is not what drlnb wrote"):
        run.read_spec()


def test_states_come_from_status_json_and_else_from_the_journal(run):
    """An end in status.json counts; `running` there only means that nobody wrote the end."""
    assert run.states() == {"CartPole-v1": "interrupted"}
    run.write_status({"tasks": {"CartPole-v1": {"state": "running"}}})
    assert run.states() == {"CartPole-v1": "interrupted"}
    header = {
        "k": "h",
        "r": "StreamOpened",
        "stream": "s",
        "machine": "round",
        "config": {},
        "origin": "measured",
        "format": JOURNAL_FORMAT,
    }
    lines = [header | {"version": "0"}, {"k": "c", "r": "EndTask", "state": "stopped", "reason": "asked for"}]
    for attempt, n_lines in ((2, 2), (10, 1)):
        text = "".join(json.dumps(line) + "\n" for line in lines[:n_lines])
        (run.journal / f"task-CartPole-v1-a{attempt}.jsonl").write_text(text)
    assert sorted(run.attempts("CartPole-v1")) == [2, 10]
    assert run.states() == {"CartPole-v1": "interrupted"}
    (run.journal / "task-CartPole-v1-a10.jsonl").unlink()
    assert run.states() == {"CartPole-v1": "stopped"}
    run.write_status({"tasks": {"CartPole-v1": {"state": "done"}}})
    assert run.states() == {"CartPole-v1": "done"}


def test_removing_a_run_deletes_all_that_is_ours(run):
    """Every file that the runtime writes is known as ours, and so are reports and what trackers write there."""
    ours = ["status.json", "status.json.tmp", "LOCK", "journal/broker-e1.jsonl", "metrics/CartPole-v1.csv",
            "logs/n0/CartPole-v1-0.log", "checkpoints/CartPole-v1/LATEST", "checkpoints/CartPole-v1/16/state.bin",
            "checkpoints/CartPole-v1/tmp-17-99/state.bin", "report.html", "wandb/offline-run-1/files/config.yaml",
            "tensorboard/CartPole-v1/events.out.tfevents.17.host.9.0", "mlruns/0/meta.yaml"]  # fmt: skip
    for name in ours:
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text("x")
    assert run.foreign() is None
    run.remove()
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "thesis.tex",
        "journal/notes.txt",
        "checkpoints/CartPole-v1/16/sub/a",
        "mine/",
        "tensorboard/mine.txt",
        "my-report.html",
    ],
)
def test_a_foreign_file_saves_the_whole_directory(run, name):
    """Nothing is deleted where something is not ours; the message names it."""
    path = run.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if name.endswith("/") else path.write_text("x")
    with pytest.raises(ConfigError, match=f"{path} was not written by drlnb"):
        run.remove()
    assert run.read_spec() == SPEC


def test_a_pipe_where_a_file_should_be_is_told_and_not_waited_for(run):
    """Reading one waits until somebody writes there: a lock counts as taken, a spec is refused."""
    os.mkfifo(run.path / "LOCK")
    assert "LOCK cannot be read, so somebody may run it" in run.live_lock().said
    for name, read in (("run.json", run.read_spec), ("status.json", run.read_status)):
        (run.path / name).unlink(missing_ok=True)
        os.mkfifo(run.path / name)
        with pytest.raises(ConfigError, match=rf"{name}: cannot be read: it is no regular file"):
            read()


def test_a_path_that_this_locale_cannot_read_is_refused():
    """As the bytes of a name in a pure C locale: it could not be sent to any other process."""
    with pytest.raises(ConfigError, match=r"cannot be read in this locale.*set LC_ALL=C.UTF-8, or PYTHONUTF8=1"):
        RunDir("r\udcc3\udcbcn")
