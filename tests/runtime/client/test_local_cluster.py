"""What is left of a local cluster."""

import contextlib
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from drlnb.records.errors import PeerError
from drlnb.runtime.client import local_cluster
from drlnb.runtime.client.local_cluster import LocalHandle, start_local, sweep, wait_gone
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


@pytest.mark.thorough
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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_shared_memory_that_cannot_be_used_is_named(tmp_path, monkeypatch, number):
    """A container's /dev/shm is small, or read-only: the processes would end with nothing that says so."""

    def refuse(self):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(type(multiprocessing.get_context("fork")), "Lock", refuse)
    with pytest.raises(PeerError) as error:
        start_local(n_workers=1, root=tmp_path / "cluster")
    assert str(error.value).startswith(f"local cluster: /dev/shm cannot be used ({os.strerror(number)})")


def test_a_cluster_that_does_not_start_is_told_with_its_last_words(tmp_path, monkeypatch):
    """The error has the last line of the supervisor's log, and where the log is; no process is left."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho first >&2\necho 'no port is free' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(
        PeerError, match=r"did not start: its supervisor exited with code 1: no port is free \(see .*supervisor\.log\)"
    ):
        start_local(n_workers=1, root=tmp_path / "cluster")


def test_a_supervisor_that_is_killed_while_it_starts_is_told_so(tmp_path, monkeypatch):
    """It has no last words: the signal is the cause, and who sends that one."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(
        PeerError, match=r"its supervisor was killed by signal 9 \(the system does so when memory is short"
    ):
        start_local(n_workers=1, root=tmp_path / "cluster")


def test_killing_leaves_no_semaphore(supervised, monkeypatch):
    """Python's tracker removes what nobody else can, when all others have ended: it is not killed before."""
    code = (
        "import multiprocessing as m, time; lock = m.get_context('spawn').Lock(); "
        "print(lock._semlock.name, flush=True); time.sleep(60)"
    )
    handle, child = supervised(f'exec {sys.executable} -c "{code}"')
    name = handle.process.stdout.readline().decode().strip().removeprefix("/")
    there = Path("/dev/shm") / f"sem.{name}"
    assert there.exists()
    child.kill()
    monkeypatch.setattr(local_cluster, "_LAST_S", 20.0)  # the tracker, which may be starting, is all that is waited for
    handle.kill()
    assert not there.exists()


# ------------------------------------------------------------------ what killed clusters have left
def _left(folder, name, age_s):
    """Make the scratch folder of a cluster that was started some time ago."""
    made = folder / name
    (made / "worker-1").mkdir(parents=True)
    (made / "supervisor.log").write_text("x")
    then = time.time() - age_s
    os.utime(made / "supervisor.log", (then, then))
    return made


def test_the_next_start_sweeps_what_is_old_and_nobodys_any_more(tmp_path):
    """What is young may be somebody's to read; what is no cluster's scratch folder is not touched."""
    old, young = _left(tmp_path, "drlnb-old", 4000), _left(tmp_path, "drlnb-young", 3000)
    foreign = _left(tmp_path, "other-old", 4000)
    (tmp_path / "drlnb-bench-old" / "deep").mkdir(parents=True)
    (tmp_path / "drlnb-link").symlink_to(foreign)
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([
        "drlnb-young",
        "other-old",
        "drlnb-bench-old",
        "drlnb-link",
    ])
    assert young.exists()
    assert not old.exists()
    assert (foreign / "supervisor.log").exists()


def test_somebody_elses_folder_is_not_swept(tmp_path, monkeypatch):
    """They may be root, and would delete a colleague's."""
    old = _left(tmp_path, "drlnb-old", 4000)
    monkeypatch.setattr(os, "getuid", lambda: old.stat().st_uid + 1)
    sweep(tmp_path)
    assert old.exists()


def test_a_cluster_that_lives_is_not_swept_however_old(tmp_path, monkeypatch):
    """Its processes hold its log; once the last one has ended, nothing keeps it."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"address": "a"}\'\nread line\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    handle = start_local(n_workers=1, root=tmp_path / "drlnb-live")
    os.utime(handle.log, (0, 0))
    sweep(tmp_path)
    assert handle.log.exists()
    handle.stop()
    sweep(tmp_path)
    assert not handle.log.parent.exists()
