"""A run directory belongs to one run: its lock is renewed, and judged by its owner's answer, else by its age."""

import os
import socket
import stat
import time

import pytest

from drlnb.runtime.files import lock as lock_file
from drlnb.runtime.files.lock import Lock, machine
from drlnb.runtime.files.run_directory import RunDir

SPEC = {"run": "r1", "tasks": [{"name": "CartPole-v1"}]}
FAR = {"run": "r1", "epoch": 7, "host": "node2", "boot": "another machine"}
LOCK = Lock(address="tcp://10.0.0.1:8786", **FAR)


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "run")
    made.create(SPEC)
    return made


@pytest.fixture
def unasked(monkeypatch):
    monkeypatch.setattr(lock_file, "goes_on", lambda lock: pytest.fail("it was asked"))


def aged(run, seconds):
    """Let the lock be renewed some seconds ago."""
    then = time.time() - seconds
    os.utime(run.path / "LOCK", (then, then))


def row(*wanted, state="running"):
    """Return what a broker says of run r1, of whose tasks so much is wanted; and one that is over."""
    tasks = {f"t{i}": {"state": state, "wanted": each} for i, each in enumerate(wanted)}
    return {"run": "r1", "state": "running", "tasks": {**tasks, "over": {"state": "done", "wanted": ""}}}


#: A run that begins, one of whose tasks only one is to stop, and one that saves what it has done.
STARTS, GOES_ON, STOPS = row("", state="starting"), row("stop", ""), row("stop")


class Scheduler:
    """What a scheduler at an address answers; ``None`` where it has no broker."""

    def __init__(self, hello, runs):
        self.hello, self.runs, self.n_asked = hello, runs, 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def drlnb_hello(self):
        if isinstance(self.hello, Exception):
            raise self.hello
        return self.hello

    async def drlnb_runs(self):
        """Return the runs; of several answers the next, and then none: the cluster is gone."""
        if isinstance(self.runs, tuple):
            self.n_asked += 1
            if self.n_asked > len(self.runs):
                raise OSError("gone")
            return self.runs[self.n_asked - 1]
        return self.runs


@pytest.mark.parametrize(
    ("hello", "runs", "young", "old"),
    [
        ({"epoch": 7}, [{"run": "r0", "state": "done"}, STARTS], True, True),
        ({"epoch": 7}, [GOES_ON], True, True),
        ({"epoch": 7}, ([STOPS], [STOPS], [{"run": "r1", "state": "stopped"}]), False, False),
        ({"epoch": 7}, ([STOPS],), False, False),
        ({"epoch": 7}, [{"run": "r1", "state": "done"}], False, False),
        ({"epoch": 8}, [{"run": "r1", "state": "running"}], True, False),
        (None, None, True, False),
        (OSError("nobody there"), [], True, False),
    ],
)
def test_the_owners_answer_counts_and_else_the_age(run, monkeypatch, hello, runs, young, old):
    """Only the broker that took the lock can say yes or no; where it does not answer, a renewed lock is a live one.

    A run that stops is waited for, until it has, or its cluster is gone.
    """
    monkeypatch.setattr("distributed.core.rpc", lambda address, timeout: Scheduler(hello, runs))
    monkeypatch.setattr(lock_file, "_AGAIN_S", 0.001)
    run.write_lock(LOCK)
    aged(run, 10)
    assert (run.live_lock() is not None) == young
    aged(run, 61)
    assert (run.live_lock() is not None) == old


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:40001", "tcp://localhost:1", "tcp://[::1]:1", "tls://10.0.0.1:1"])
def test_a_lock_that_cannot_be_asked_is_judged_by_its_age(run, unasked, address):
    """Loopback of another machine is another place here, and TLS needs certificates; the message says what to do."""
    run.write_lock(Lock(address=address, **FAR))
    aged(run, 20)
    said = run.live_lock().said
    assert f"its run r1 goes on at {address} on node2; nobody there answers from here" in said
    assert "renewed 20 s ago" in said
    assert "try again in 40 s" in said
    aged(run, 61)
    assert run.live_lock() is None


@pytest.mark.parametrize(
    ("status", "live"),
    [
        ('{"run": "r1", "state": "stopped"}', False),
        ('{"run": "r0", "state": "stopped"}', True),
        ('{"run": "r1", "state": "running"}', True),
        ('{"run": "r1"', True),
        ("[]", True),
    ],
)
def test_where_nobody_answers_a_run_is_over_whose_status_says_so(run, monkeypatch, status, live):
    """Its cluster is about to end, and answers no more."""
    monkeypatch.setattr("distributed.core.rpc", lambda address, timeout: Scheduler(OSError("gone"), []))
    run.write_lock(LOCK)
    (run.path / "status.json").write_text(status)
    assert (run.live_lock() is not None) == live


def test_ages_are_told_by_the_disks_clock(run, unasked, monkeypatch):
    """Our own clock may be an hour ahead of the file server's: a lock of now is young all the same."""
    run.write_lock(Lock(address="tls://h:1", **FAR))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert "renewed 0 s ago" in run.live_lock().said


def test_a_dead_process_of_this_machine_is_stale_without_asking(run, unasked):
    """Nobody is asked where the process is known to be gone (no process has the largest id), however young the lock."""
    run.write_lock(Lock(run="r1", epoch=7, address="tcp://x", pid=2**22 + 1, boot=machine()))
    assert run.live_lock() is None


def test_a_process_id_of_another_machine_says_nothing(run, unasked):
    """A host of the same name, or this one before it was started anew, has other processes."""
    run.write_lock(Lock(run="r1", epoch=7, address="tls://x", pid=2**22 + 1, host=socket.gethostname(), boot="other"))
    assert run.live_lock() is not None


@pytest.mark.parametrize(
    "text",
    ["", '{"run": "r1", "ep', "[]", "7", '{"run": "r1"}', '{"run": 1, "epoch": 1, "address": "a"}', "\x00",
     '{"run": "r1", "epoch": 1, "address": "a", "pid": 1e99}', '{"run": "r1", "epoch": 1, "address": "a", "said": "x"}',
     '{"run": "r1", "epoch": 1, "address": "a", "pid": 99999999999999999999}'],
)  # fmt: skip
def test_a_lock_that_cannot_be_read_counts(run, unasked, text):
    """Whoever wrote it may live: it says which file to delete if nobody does."""
    (run.path / "LOCK").write_text(text)
    assert f"{run.path / 'LOCK'} cannot be read" in run.live_lock().said
    assert "delete that file if nobody does" in run.live_lock().said
    run.remove_lock(0)
    assert run.live_lock() is not None


def test_a_lock_of_somebody_elses_counts_though_it_may_not_be_read(run, unasked, monkeypatch):
    """A colleague's run in a group directory is not destroyed because its files are private."""

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    run.write_lock(LOCK)
    monkeypatch.setattr("pathlib.Path.read_text", denied)
    assert "cannot be read, so somebody may run it" in run.live_lock().said


def test_a_renewal_makes_the_lock_young_and_names_who_took_it_over(run, unasked):
    """Nothing is made anew where the lock was removed, or cannot be read."""
    assert run.renew_lock("r1", 7) is None
    assert not (run.path / "LOCK").exists()
    run.write_lock(Lock(address="tls://h:1", **FAR))
    aged(run, 1000)
    assert run.live_lock() is None
    assert run.renew_lock("r1", 7) is None
    assert "renewed 0 s ago" in run.live_lock().said
    assert run.renew_lock("r1", 8) == run.read_lock()
    assert run.renew_lock("r0", 7) == run.read_lock()
    (run.path / "LOCK").write_text("{")
    assert run.renew_lock("r1", 7) is None


@pytest.mark.parametrize(
    ("umask", "modes"), [(0o022, (0o644, 0o600)), (0o002, (0o664, 0o600)), (0o077, (0o600, 0o600))]
)
def test_files_follow_the_umask_but_where_code_lies_in_them(tmp_path, umask, modes):
    """A group reads locks and specs of its members; pickled functions are their author's alone."""
    factory = {"name": "a", "env_factory": "gAWV", "hyperparameters": {}}
    before = os.umask(umask)
    try:
        for name, task in (("open", {"name": "a"}), ("code", factory)):
            run = RunDir(tmp_path / name)
            run.create({"run": "r1", "tasks": [task]})
            run.write_lock(LOCK)
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("open/run.json", "code/run.json")}
    assert tuple(found.values()) == modes
    assert stat.S_IMODE((tmp_path / "code/LOCK").stat().st_mode) == modes[0]


def test_a_lock_is_removed_by_its_own_epoch_only(run):
    """A late end of an older broker does not unlock what a newer one runs."""
    run.write_lock(LOCK)
    run.remove_lock(6)
    assert run.read_lock() == LOCK
    run.remove_lock(7)
    assert run.read_lock() is None
