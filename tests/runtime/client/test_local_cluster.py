"""What is left of a local cluster."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from drlnb.records.errors import PeerError
from drlnb.runtime.client import local_cluster
from drlnb.runtime.client.local_cluster import LocalHandle, start_local, wait_gone
from tests.survivors import survivors


@pytest.fixture
def careless():
    """Start a process that never reaps its child, which ends at once; give both."""
    # A shell would reap it if it ended before the shell became something else.
    script = "import os, signal\nprint(os.fork() or os._exit(0), flush=True)\nsignal.pause()"
    with subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        yield psutil.Process(parent.pid), child
        parent.kill()


def test_who_has_ended_is_gone_though_nobody_reaps_it(careless):
    """In a container whose first process reaps nothing, closing a cluster waits for nobody."""
    parent, child = careless
    assert wait_gone([child], 60.0) == []
    assert child.status() == psutil.STATUS_ZOMBIE
    assert wait_gone([parent, child], 0.05) == [parent]


def test_who_is_reaped_meanwhile_is_gone():
    """A number that no process has any more is no error."""
    with subprocess.Popen(["/bin/true"]) as process:
        gone = psutil.Process(process.pid)
        process.wait()
    assert wait_gone([gone], 60.0) == []


@pytest.fixture
def supervised(monkeypatch):
    """Start stand-ins of a supervisor with a child, which run a line of shell; what is left of them is killed."""
    monkeypatch.setattr(local_cluster, "_LAST_S", 0.05)
    started = []

    def start(line):
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"sleep 60 & echo $!; {line}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        child = psutil.Process(int(process.stdout.readline()))
        started.extend([child, psutil.Process(process.pid)])
        return LocalHandle(process, "", Path("log")), child

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.parametrize(
    "line",
    [
        "read line; exit 0",  # ends when its life line is closed, and leaves its child behind
        "trap '' TERM; while :; do wait; done",  # never looks at its life line
    ],
)
def test_stopping_leaves_nothing_of_a_cluster(supervised, line):
    """Neither a supervisor that does not end, nor a worker that it has left behind; its pipes are closed."""
    handle, child = supervised(line)
    handle.stop(timeout_s=0.3)
    assert handle.process.poll() is not None
    assert survivors([child]) == []
    assert (handle.process.stdin.closed, handle.process.stdout.closed) == (True, True)


def test_killing_waits_for_nobody(supervised):
    """The supervisor and all below it at once; to do it again is harmless, and so is to stop it."""
    handle, child = supervised("trap '' TERM; while :; do wait; done")
    handle.kill()
    assert handle.process.returncode == -signal.SIGKILL
    assert survivors([child]) == []
    handle.kill()
    handle.stop()


def test_a_cluster_that_does_not_start_is_told_with_its_last_words(tmp_path, monkeypatch):
    """The error has the last line of the supervisor's log, and where the log is; no process is left."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho first >&2\necho 'no port is free' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(PeerError, match=r"did not start: no port is free \(see .*supervisor\.log\)"):
        start_local(n_workers=1, root=tmp_path / "cluster")
