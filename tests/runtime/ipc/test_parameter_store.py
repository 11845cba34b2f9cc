"""Parameters in shared memory."""

import multiprocessing
import threading

import numpy as np
import pytest

from drlnb.runtime.ipc.shared_memory import N_SLOTS, HostStore, StoreReader


@pytest.fixture
def store(tmp_path):
    """Make a store for versions of 1,000 bytes."""
    store = HostStore(1000, tmp_path)
    yield store
    store.close()


def test_a_reader_sees_nothing_then_the_newest_version(store):
    """A reader gets version 0 from an empty store, later the newest version's bytes."""
    reader = StoreReader(store.path)
    assert reader.read()[0] == 0
    for version in range(1, 3 * N_SLOTS):
        store.write(version, bytes([version]) * 1000)
        got, data = reader.read()
        assert got == version
        assert data.tobytes() == bytes([version]) * 1000
    reader.close()


def test_a_payload_of_another_size_is_refused(store):
    """A version of the wrong size is refused with both numbers."""
    with pytest.raises(ValueError, match="1000 bytes, got 999"):
        store.write(1, bytes(999))


def test_a_path_that_is_no_store_is_refused(tmp_path):
    """A file that is no store is refused by its path."""
    path = tmp_path / "x"
    path.write_bytes(bytes(8192))
    with pytest.raises(ValueError, match="is not a host store"):
        StoreReader(str(path))


def test_no_reader_ever_sees_a_torn_version(store):
    """While a writer publishes as fast as it can, each read is one version, whole, and versions never go back."""
    stop = threading.Event()

    def write():
        version = 0
        while not stop.is_set():
            version += 1
            store.write(version, bytes([version % 251]) * 1000)

    thread = threading.Thread(target=write)
    thread.start()
    reader = StoreReader(store.path)
    last = 0
    try:
        seen = 0
        while seen < 300 or last < 50:
            version, data = reader.read()
            if version:
                assert version >= last
                assert np.all(data == version % 251)
                last = version
                seen += 1
    finally:
        stop.set()
        thread.join()
        reader.close()


def _read(path, answers):
    reader = StoreReader(path)
    version, data = reader.read()
    answers.send((version, data.tobytes()))
    reader.close()


def test_another_process_reads_by_path(store):
    """A process that is no relative of the writer's file descriptors opens the store by its path."""
    store.write(7, b"p" * 1000)
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_read, args=(store.path, theirs))
    process.start()
    assert ours.recv() == (7, b"p" * 1000)
    process.join()
    ours.close()
    theirs.close()
    process.close()
