"""A loop of the user's own may use torch.distributed on the slots of a lease; what ends a rank ends the others."""

import os
import signal
import time

import pytest
import torch
import torch.distributed

from drlnb.records.errors import LeaseLost
from tests.fleet.cluster.conftest import ends
from tests.runtime.live import wait_until

pytestmark = pytest.mark.cluster


def summed(lease, path, n_sums, ends_so=None):
    """Sum numbers over the lease's slots; where `ends_so` is given, rank 1 ends so after the first half."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(path, lease.n_slots), rank=lease.rank, world_size=lease.n_slots
    )
    total = 0.0
    for i in range(n_sums):
        if ends_so is not None and lease.rank == 1 and i == n_sums // 2:
            ends_so()
        number = torch.tensor([float(i * (lease.rank + 1))])
        torch.distributed.all_reduce(number)
        total += float(number)
    return os.getpid(), total


def raises():
    raise ValueError("a row without a label")


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps():
    time.sleep(300)


def works(fleet, path):
    """Have two slots meet in a file and sum numbers fifty times; return their processes."""
    with fleet.lease(2, name="gang", wait_s=30) as lease:
        (pid0, total0), (pid1, total1) = lease.run(summed, lease, str(path), 50)
    assert total0 == total1 == 3 * sum(range(50))
    return {pid0, pid1}


def test_a_rank_that_ends_ends_the_others_and_all_slots_come_back(quick, tmp_path):
    """One raises, is killed, or sleeps: the other, which waits for it in a collective, is interrupted at once."""
    fleet = quick(2)
    processes = works(fleet, tmp_path / "whole")
    assert len(processes) == 2
    for ends_so, error, words in (
        (raises, ValueError, "a row without a label"),
        (dies, LeaseLost, "signal 9"),
        (sleeps, TimeoutError, "no sign of life for 2 s"),
    ):
        with fleet.lease(2, name="gang", wait_s=30, timeout_s=2.0) as lease:
            began = time.monotonic()
            with pytest.raises(error, match=words):
                lease.run(summed, lease, str(tmp_path / ends_so.__name__), 50, ends_so)
            assert time.monotonic() - began < 20, "not after the time-out of a collective"
        now = works(fleet, tmp_path / f"after-{ends_so.__name__}")
        assert (now == processes) == (ends_so is not dies), "who is interrupted keeps its process"
        processes = now
    wait_until(lambda: None not in dict(ends(fleet)).values(), "ends of all leases")
