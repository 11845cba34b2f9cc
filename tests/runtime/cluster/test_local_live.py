"""The local cluster: its workers come back."""

import pytest
from distributed import Client

from drlnb.runtime.client.local_cluster import start_local
from tests.runtime.live import wait_until

pytestmark = pytest.mark.cluster


def test_a_worker_that_is_closed_with_its_nanny_is_replaced(tmp_path):
    """The supervisor makes another one, under the same name: the node, its slots and its collectors come back."""
    handle = start_local(n_workers=2, root=tmp_path / "cluster")
    try:
        with Client(handle.address) as client:
            client.wait_for_workers(2)
            before = client.scheduler_info()["workers"]
            address, gone = next(iter(before.items()))
            client.retire_workers([address], close_workers=True)
            wait_until(lambda: address not in client.scheduler_info()["workers"], "it is gone")

            def names():
                return sorted(row["name"] for row in client.scheduler_info()["workers"].values())

            wait_until(lambda: len(names()) == 2, "another one is there")
            assert names() == sorted(row["name"] for row in before.values())
            assert gone["name"] in names()
            assert set(client.run(lambda: 1).values()) == {1}
    finally:
        handle.stop()


def test_what_dask_keeps_of_itself_is_bounded_to_a_minute(tmp_path):
    """Scheduler, nanny and worker measure themselves twice a second; 120 samples of that are kept, not 7,200."""
    handle = start_local(n_workers=1, root=tmp_path / "cluster")
    try:
        with Client(handle.address) as client:
            client.wait_for_workers(1)
            of_worker = client.run(lambda dask_worker: dask_worker.monitor.maxlen)
            of_nanny = client.run(lambda dask_worker: dask_worker.monitor.maxlen, nanny=True)
            of_scheduler = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.monitor.maxlen)
    finally:
        handle.stop()
    assert [*of_worker.values(), *of_nanny.values(), of_scheduler] == [120, 120, 120]
