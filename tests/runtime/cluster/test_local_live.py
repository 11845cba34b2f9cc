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
