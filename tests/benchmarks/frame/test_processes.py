"""Trainings in processes of their own: they begin together, are stopped in time, and name what went wrong."""

import contextlib
import os
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from benchmarks.frame.processes import train_all
from benchmarks.frame.stage import virtual_devices
from drlnb.records.errors import TrainingFailed
from tests.survivors import survivors


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Return a function that makes a module of a child's code, which children can import."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def make(code):
        (tmp_path / "planted_child.py").write_text("import sys, time, json\n" + textwrap.dedent(code))
        return "planted_child"

    return make


@pytest.mark.cluster
def test_children_begin_together_when_all_are_ready(child):
    """The second is ready half a second after the first; neither begins before."""
    module = child("""
        work = json.loads(sys.stdin.readline())
        time.sleep(work["late"])
        ready = time.monotonic()
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({"seconds": ready, "ends": [time.monotonic()]}))
    """)
    first, second = train_all([{"late": 0.0}, {"late": 0.5}], module=module)
    assert first.seconds < second.seconds < first.ends[0]


@pytest.mark.cluster
def test_a_child_that_fails_is_named_with_its_last_words(child):
    """One fails before it is ready: the other does not wait for it."""
    module = child("""
        sys.exit("no legs") if json.loads(sys.stdin.readline()).get("fails") else None
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({"seconds": 1.0}))
    """)
    with pytest.raises(TrainingFailed, match="planted_child exited with 1: no legs"):
        train_all([{"fails": True}, {}], module=module)


@pytest.mark.cluster
def test_a_training_that_takes_too_long_is_stopped_and_named(child):
    """The process is killed and waited for; one line names what and after how long."""
    module = child("""
        sys.stdin.readline()
        print("ready", flush=True)
        time.sleep(60)
    """)
    began = time.monotonic()
    with pytest.raises(TrainingFailed, match="planted_child took more than 1 s and was stopped"):
        train_all([{}], module=module, longest_s=1.0)
    assert time.monotonic() - began < 20


def test_devices_are_hidden_only_meanwhile(monkeypatch):
    """What the user had set is there again afterwards, also when it was nothing."""
    for before in ("1", None):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if before is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
        with virtual_devices():
            assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_a_zombie_does_not_survive():
    """Killed and not yet reaped is dead."""
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as parent:
        process = psutil.Process(parent.pid)
        assert survivors([process]) == [process]
        with contextlib.suppress(ProcessLookupError):
            parent.kill()
        deadline = time.monotonic() + 5.0
        while survivors([process]) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert survivors([process]) == []
