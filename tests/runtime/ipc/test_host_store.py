"""The host store and its readers: whole versions, held in place, whoever is slow or dies."""

import ctypes
import errno
import faulthandler
import fcntl
import multiprocessing
import os
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drlnb.runtime.ipc import host_store
from drlnb.runtime.ipc.host_store import N_SLOTS, HostStore, StoreView

N_BYTES = 1000
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def store():
    """Make a store for versions of 1,000 bytes."""
    store = HostStore(N_BYTES)
    yield store
    store.close()


@pytest.fixture
def view(store):
    """Attach a reader."""
    view = StoreView(store.path)
    yield view
    view.close()


def bytes_of(version, n_bytes=N_BYTES):
    return bytes([version % 251]) * n_bytes


def test_a_reader_sees_nothing_then_the_newest_version(store, view):
    """In place: what it sees is the writer's memory, which it may only read."""
    with view.pinned() as version:
        assert (version, len(view.bytes)) == (0, 0)
    for version in range(1, 3 * N_SLOTS):
        assert store.write(version, bytes_of(version))
        assert view.refresh()
        assert not view.refresh()
        assert view.version == version
        assert view.bytes.tobytes() == bytes_of(version)
        assert not view.bytes.flags.writeable
        assert store.current == (1, version)


def test_ranges_are_current_when_they_are_whole(store, view):
    """Not before, in whatever order they come; and a version that never is whole is abandoned."""
    store.begin(1)[500:] = 7
    store.begin(1)[:500] = 6
    assert store.newest.tobytes() == bytes([6]) * 500 + bytes([7]) * 500
    assert not view.refresh()
    store.commit()
    assert view.refresh()
    assert view.bytes.tobytes() == store.newest.tobytes()
    store.begin(2)[:10] = 1
    store.write(3, bytes_of(3))
    assert view.refresh()
    assert view.bytes.tobytes() == bytes_of(3)


def test_older_versions_are_refused(store, view):
    """Of an older attempt too, whatever its number; a later attempt may count from anywhere."""
    store.write(5, bytes_of(5))
    for version, attempt in ((5, 1), (4, 1), (9, 0)):
        with pytest.raises(ValueError, match=r"must be above \(1, 5\), got"):
            store.write(version, bytes_of(version), attempt=attempt)
    store.write(5, bytes_of(6), attempt=2)
    assert view.refresh()
    assert (view.version, view.bytes.tobytes()) == (5, bytes_of(6))
    store.begin(6, attempt=2)
    with pytest.raises(ValueError, match="must be above"):
        store.begin(5, attempt=2)


def test_a_payload_of_another_size_is_refused(store):
    """A version of the wrong size is refused with both numbers."""
    with pytest.raises(ValueError, match="1000 bytes, got 999"):
        store.write(1, bytes(999))


@pytest.mark.parametrize("n_bytes", [8192, 1 << 16])
def test_a_path_that_is_no_store_is_refused(tmp_path, n_bytes):
    """A file that is no store is refused by its path; so is one that is gone."""
    path = tmp_path / "x"
    path.write_bytes(bytes(n_bytes))
    with pytest.raises(ValueError, match=r"x is not a host store"):
        StoreView(str(path))
    with pytest.raises(FileNotFoundError):
        StoreView(str(tmp_path / "y"))


def test_slow_readers_that_hold_every_slot_stop_nobody(store):
    """What they hold stays as it is; the newest version waits, and is current once a slot is free."""
    views = [StoreView(store.path) for _ in range(N_SLOTS)]
    for version, view in enumerate(views, 1):
        assert store.write(version, bytes_of(version))
        view.refresh()
    late = StoreView(store.path)
    assert not store.write(5, bytes_of(5))
    assert not store.write(6, bytes_of(6))
    assert not store.settle()
    assert (store.current, store.newest.tobytes()) == ((1, 4), bytes_of(6))
    assert [view.bytes[0] for view in views] == [1, 2, 3, 4]
    late.refresh()
    assert late.version == 4
    views[1].release()
    assert store.settle()
    assert late.refresh()
    assert (late.version, late.bytes.tobytes()) == (6, bytes_of(6))
    assert not store.write(7, bytes_of(7))
    views[0].release()
    assert not store.write(8, bytes_of(8))  # 7 gets the slot, 8 waits
    assert store.current == (1, 7)
    for view in (*views, late):
        view.close()


def test_a_pinned_view_goes_nowhere(store, view):
    """Neither by a refresh inside nor by a nested block; after the block it goes on, also after one that raised."""
    store.write(1, bytes_of(1))
    with view.pinned() as version:
        assert version == 1
        store.write(2, bytes_of(2))
        with pytest.raises(RuntimeError, match="version 1 is pinned"):
            view.refresh()
        with pytest.raises(RuntimeError, match="version 1 is pinned"), view.pinned():
            pass
    with pytest.raises(ZeroDivisionError), view.pinned():
        raise ZeroDivisionError
    for version in range(3, 10):
        assert store.write(version, bytes_of(version))


def test_a_copy_holds_no_slot(store):
    """What was read stays, however many versions come; the version counts as applied."""
    view = StoreView(store.path, copy=True)
    store.write(1, bytes_of(1))
    assert view.refresh()
    kept = view.bytes
    for version in range(2, 12):
        assert store.write(version, bytes_of(version))
    assert kept.tobytes() == bytes_of(1)
    assert store.applied() == (1, 1)
    with view.pinned() as version:
        assert version == 11
    assert not view.refresh()
    view.close()


def test_readers_that_are_behind_are_counted(store):
    """A newer version, or one of a later attempt, counts as this one."""
    assert store.readers(1, 1)[:2] == (0, 0)
    store.write(1, bytes(store.n_bytes))
    views = [StoreView(store.path) for _ in range(3)]
    views[0].refresh()
    assert [store.readers(1, 1)[:2], store.readers(1, 2)[:2]] == [(3, 2), (3, 3)]
    store.write(1, bytes(store.n_bytes), attempt=2)
    views[1].refresh()
    assert [store.readers(1, 9)[:2], store.readers(2, 1)[:2], store.readers(1, 1)[:2]] == [(3, 2), (3, 2), (3, 1)]
    for view in views:
        view.close()
    assert store.readers(2, 1)[:2] == (0, 0)


def test_the_least_applied_version_is_known(store):
    """Of living readers; one that has left does not count."""
    assert store.applied() is None
    first, second = StoreView(store.path), StoreView(store.path)
    assert store.applied() == (0, 0)
    store.write(1, bytes_of(1))
    first.refresh()
    second.refresh()
    store.write(2, bytes_of(2))
    first.refresh()
    assert store.applied() == (1, 1)
    second.close()
    second.close()
    assert store.applied() == (1, 2)
    first.close()
    assert store.applied() is None


def test_readers_without_a_cell_are_told_to_copy(store, monkeypatch):
    """A store for two readers: the third copies, or is refused; a cell serves again when its reader has left."""
    monkeypatch.setattr(host_store, "N_CELLS", 2)
    store = HostStore(N_BYTES)
    views = [StoreView(store.path) for _ in range(2)]
    with pytest.raises(OSError, match=r"has 2 readers, more must copy \(copy=True\)"):
        StoreView(store.path)
    store.write(1, bytes_of(1))
    copy = StoreView(store.path, copy=True)
    assert copy.refresh()
    assert store.applied() == (0, 0)
    views.pop().close()
    views.append(StoreView(store.path))
    for view in (*views, copy):
        view.close()
    store.close()


def test_a_store_that_is_closed_says_so(store, view):
    """What a reader holds it keeps; where to look next is its own business."""
    store.write(1, bytes_of(1))
    with view.pinned():
        store.close()
        assert view.closed
        assert view.bytes.tobytes() == bytes_of(1)
    with pytest.raises(ConnectionError, match="has left"):
        view.refresh()


def test_two_tasks_share_nothing(store):
    """Each has a store of its own size; readers of one see nothing of the other."""
    other = HostStore(5)
    view = StoreView(other.path)
    store.write(1, bytes_of(1))
    assert not view.refresh()
    other.write(2, b"other")
    assert view.refresh()
    assert (view.version, view.bytes.tobytes()) == (2, b"other")
    view.close()
    other.close()


def test_the_memory_is_sealed_and_its_want_is_told(store, monkeypatch):
    """Nobody changes its size; what cannot be had is named with the system's own words, and nothing is left."""
    with Path(store.path).open("r+b") as file:
        assert fcntl.fcntl(file, fcntl.F_GET_SEALS) == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        with pytest.raises(PermissionError):
            file.truncate(0)
    room = psutil.virtual_memory().available
    with pytest.raises(OSError, match=r"4 slots of [0-9,]+ bytes: [0-9,]+ bytes asked for, [0-9,]+ bytes of memory"):
        HostStore(room)

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="4 slots of 1,000 bytes: No space left on device"):
        HostStore(N_BYTES)


class Model(RuleBasedStateMachine):
    """A store and its readers against the plainest account of them: what was committed, and who holds what."""

    def __init__(self):
        super().__init__()
        self.store = HostStore(64)
        self.views, self.version, self.whole = [], 0, 0

    @precondition(lambda self: len(self.views) < 6)
    @rule()
    def attach(self):
        self.views.append([StoreView(self.store.path), 0])

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def refresh(self, data):
        seat = data.draw(st.sampled_from(self.views))
        before = seat[0].version
        assert seat[0].refresh() == (self.store.current[1] != before)
        assert seat[0].version == self.store.current[1] >= before
        seat[1] = seat[0].version

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def release(self, data):
        seat = data.draw(st.sampled_from(self.views))
        seat[0].release()
        seat[1] = 0

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def leave(self, data):
        seat = data.draw(st.sampled_from(self.views))
        self.views.remove(seat)
        seat[0].close()

    @rule()
    def begin(self):
        self.version += 1
        self.store.begin(self.version)[:32] = self.version % 251

    @precondition(lambda self: self.version > self.whole)
    @rule()
    def commit(self):
        self.store.begin(self.version)[32:] = self.version % 251
        self.whole = self.version
        n_held = len({held for _, held in self.views if held} | {self.store.current[1]})
        if self.store.commit():
            assert self.store.current == (1, self.version)
        else:
            assert n_held == N_SLOTS

    @rule()
    def settle(self):
        before = self.store.current
        settled = self.store.settle()
        assert settled or self.store.current == before
        if settled and self.whole == self.version:
            assert self.store.current[1] == self.whole

    @invariant()
    def what_is_held_stays(self):
        for view, held in self.views:
            if held:
                assert set(view.bytes.tolist()) == {held % 251}

    def teardown(self):
        for view, _ in self.views:
            view.close()
        self.store.close()


Model.TestCase.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)
TestModel = Model.TestCase


def _publish(store, stop):
    version = 0
    while not stop.is_set():
        version += 1
        store.write(version, bytes_of(version))


@pytest.mark.parametrize("copy", [False, True])
def test_no_reader_sees_a_torn_version(store, copy):
    """While a writer publishes as fast as it can, each version is whole, stays, and none goes back."""
    stop = threading.Event()
    thread = threading.Thread(target=_publish, args=(store, stop))
    view, last, seen = StoreView(store.path, copy=copy), 0, 0
    thread.start()
    try:
        while seen < 200:
            with view.pinned() as version:
                assert version >= last
                if version:
                    assert np.all(view.bytes == version % 251)
                    seen, last = seen + 1, version
    finally:
        stop.set()
        thread.join()
        view.close()


# -- processes -------------------------------------------------------------------------------------------------------


def started(target, *args):
    """Start a process; return it and our end of a pipe, on which it has said that it is ready."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=target, args=(theirs, *args))
    process.start()
    theirs.close()
    return process, ours


def ended(process, ours):
    process.join()
    ours.close()
    code = process.exitcode
    process.close()
    return code


def _holds(pipe, path):
    view = StoreView(path)
    view.refresh()
    pipe.send(view.bytes.tobytes())
    pipe.recv()


def test_a_reader_that_is_killed_holds_nothing(store):
    """Each life holds a slot and is killed: its cell is cleared when a slot is needed, or versions are asked for."""
    held = []
    for version in range(1, N_SLOTS + 1):
        store.write(version, bytes_of(version))
        process, pipe = started(_holds, store.path)
        assert pipe.recv() == bytes_of(version)
        held.append((process, pipe))
    assert not store.write(5, bytes_of(5))
    os.kill(held[0][0].pid, signal.SIGKILL)
    os.waitid(os.P_PID, held[0][0].pid, os.WEXITED | os.WNOWAIT)  # dead, and not collected
    assert store.settle()
    assert store.applied() == (1, 2)
    for process, pipe in held:
        process.kill()
        assert ended(process, pipe) == -signal.SIGKILL
    assert store.applied() is None


def test_a_number_of_a_process_that_is_given_again_is_another_process(store, monkeypatch):
    """A cell belongs to the process that was started then."""
    view = StoreView(store.path)
    store.write(1, bytes_of(1))
    assert store.applied() == (0, 0)
    view._cell[host_store._START] += 1
    assert store.applied() is None
    view.close()


def test_a_writer_waits_for_no_lock(store):
    """Somebody who attaches may be stopped half-way: the dead are cleared another time."""
    view = StoreView(store.path)
    view._cell[host_store._START] += 1
    store.write(1, bytes_of(1))
    with Path(store.path).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert store.applied() == (0, 0)
    assert store.applied() is None
    view.close()


def _writes(pipe, folder):
    store = HostStore(N_BYTES)
    store.write(1, bytes_of(1))
    store.begin(2)[:500] = 9
    pipe.send(store.path)
    pipe.recv()


def test_a_writer_that_is_killed_leaves_its_last_version(tmp_path):
    """Readers keep what is whole; no file and no process is left, and nobody attaches any more."""
    process, pipe = started(_writes, tmp_path)
    path = pipe.recv()
    view = StoreView(path)
    with view.pinned() as version:
        process.kill()
        assert ended(process, pipe) == -signal.SIGKILL
        assert (version, view.bytes.tobytes()) == (1, bytes_of(1))
    assert not view.refresh()
    view.close()
    with pytest.raises(FileNotFoundError):
        StoreView(path)
    assert list(tmp_path.iterdir()) == []


def _spoils(pipe, path):
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    view = StoreView(path)
    view.refresh()
    ctypes.memset(view.bytes.ctypes.data, 0, 8)


def test_a_reader_that_writes_ends_alone(store):
    """By SIGSEGV: nobody else acts with what it has spoilt."""
    store.write(1, bytes_of(1))
    assert ended(*started(_spoils, store.path)) == -signal.SIGSEGV
    assert store.newest.tobytes() == bytes_of(1)


def _compares(pipe, path, n_refreshes):
    view = StoreView(path)
    torn = last = seen = 0
    while seen < n_refreshes:
        with view.pinned() as version:
            torn += version < last or (version > 0 and not np.all(view.bytes == version % 251))
            seen, last = seen + (version > last), version
    pipe.send(torn)
    pipe.close()


@pytest.mark.parametrize(
    ("n_readers", "n_refreshes"),
    [pytest.param(3, 500, marks=pytest.mark.cluster), pytest.param(4, 25_000, marks=pytest.mark.slow)],
)
def test_no_version_is_torn_or_mixed_in_other_processes(store, n_readers, n_refreshes):
    """D11: at the full rate of publishing, in all refreshes of all readers together."""
    readers = [started(_compares, store.path, n_refreshes) for _ in range(n_readers)]
    version = 0
    while any(not pipe.poll() for _, pipe in readers):
        version += 1
        store.write(version, bytes_of(version))
    assert [pipe.recv() for _, pipe in readers] == [0] * n_readers
    assert [ended(*reader) for reader in readers] == [0] * n_readers


class Slow(StoreView):
    """Takes its time over a new version."""

    def _moved(self):
        self.until = time.perf_counter_ns() + 20_000_000
        while time.perf_counter_ns() < self.until:
            pass


def test_the_longest_pause_of_a_reader_is_told():
    """While it goes on to a version it cannot act; a look that finds nothing new is no pause, nor is a late one's."""
    store = HostStore(8)
    slow, quick = Slow(store.path), StoreView(store.path)
    assert store.readers(1, 1) == (2, 2, 0.0)
    store.write(1, bytes(8))
    quick.refresh()
    assert 0.0 < store.readers(1, 1)[2] < 0.02
    slow.refresh()
    slow.refresh()
    assert store.readers(1, 1)[2] >= 0.02
    store.write(2, bytes(8))
    assert store.readers(1, 2) == (2, 2, 0.0)
    for each in (slow, quick, store):
        each.close()
